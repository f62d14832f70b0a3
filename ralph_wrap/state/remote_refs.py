"""Where the refs of a remote's sessions are in this repository: ``refs/ralph-remotes/<remote>/``.

They are outside of ``refs/ralph/``: what only they hold does not count as saved here, because the next fetch
can move them. ``refs/heads/ralph/3f9a`` of ``origin`` is ``refs/ralph-remotes/origin/heads/ralph/3f9a``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ralph_wrap.state.ids import is_agent_id

REMOTES = "refs/ralph-remotes/"
"""The prefix of what was fetched from all remotes."""

_EVERY = ("refs/heads/ralph/*", "refs/ralph/claims/*", "refs/ralph/snapshots/*", "refs/ralph/rescue/*")


_BELOW_AN_ID = ("refs/ralph/claims/", "refs/ralph/snapshots/", "refs/ralph/rescue/")
_HEADS = "refs/heads/ralph/"


def owner_of(ref: str) -> str | None:
    """Return the agent id of the session that a ref of a remote belongs to; ``None`` for any other ref.

    Arguments:
        ref: its full name on the remote.

    """
    agent_id = ref.removeprefix(_HEADS).removesuffix("-wip") if ref.startswith(_HEADS) else ""
    for prefix in _BELOW_AN_ID:
        if ref.startswith(prefix):
            agent_id = ref.removeprefix(prefix).partition("/")[0]
    return agent_id if is_agent_id(agent_id) else None


def holders(refs: Iterable[str], agent_id: str) -> list[str]:
    """Return the remotes that have refs of a session, as far as they were fetched.

    Arguments:
        refs: full names of refs here.
        agent_id: of the session.

    """
    names = [ref.removeprefix(REMOTES) for ref in refs if ref.startswith(REMOTES)]
    marks = (f"/heads/ralph/{agent_id}", f"/heads/ralph/{agent_id}-wip", f"/ralph/claims/{agent_id}")
    return sorted({name.removesuffix(mark) for name in names for mark in marks if name.endswith(mark)})


def tracking(remote: str, ref: str) -> str:
    """Return where a ref of a remote is here."""
    return f"{REMOTES}{remote}/{ref.removeprefix('refs/')}"


def refspecs(remote: str, agent_id: str, branch: str) -> tuple[str, ...]:
    """Return what to fetch of one session; each pattern may match nothing.

    Arguments:
        remote: name of the remote.
        agent_id: of the session.
        branch: its branch, without ``refs/heads/``.

    """
    refs = [f"refs/heads/ralph/{agent_id}*", f"refs/ralph/claims/{agent_id}*"]
    refs += [f"refs/ralph/snapshots/{agent_id}/*", f"refs/ralph/rescue/{agent_id}/*"]
    if not branch.startswith(f"ralph/{agent_id}"):
        refs.append(f"refs/heads/{branch}*")
    return tuple(f"+{ref}:{tracking(remote, ref)}" for ref in refs)


def every_refspec(remote: str) -> tuple[str, ...]:
    """Return what to fetch of all sessions."""
    return tuple(f"+{ref}:{tracking(remote, ref)}" for ref in _EVERY)


def fetched(refs: Mapping[str, str], remote: str) -> dict[str, str]:
    """Return the refs of a remote by their names there.

    Arguments:
        refs: refs of ours, and perhaps others.
        remote: name of the remote.

    """
    prefix = f"{REMOTES}{remote}/"
    return {f"refs/{ref.removeprefix(prefix)}": oid for ref, oid in refs.items() if ref.startswith(prefix)}


def everything(remote: str) -> str:
    """Return the prefix of all refs of a remote's sessions here."""
    return f"{REMOTES}{remote}/"
