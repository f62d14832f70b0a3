"""The branches below ``ralph/`` with what is known of them, and the main branch that they are held against.

Refs tell what there is, records only add to it: a record that names another branch, or none, changes nothing
about what a branch is. Names and ids come from git alone, never from a file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap import git
from ralph_wrap.branches.sessions import known
from ralph_wrap.errors import NotFoundError
from ralph_wrap.state import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.branches.sessions import Known
    from ralph_wrap.git import Git
    from ralph_wrap.state.project import Project

HEADS = "refs/heads/"
"""Where branches are."""

OURS = f"{HEADS}ralph/"
"""Where those of sessions are."""

WIP = "-wip"
"""How the name of a branch ends that holds saved work."""

_ID = re.compile(r"[0-9a-f]{4}")
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Branch(NamedTuple):
    """One branch below ``ralph/`` with the saved work that belongs to it; or saved work that is all there is.

    Attributes:
        name: short name: ``ralph/a3f2``.
        id: the agent id that it is named by, ``None`` if it is not.
        tip: object id.
        saved: tip of ``<name>-wip``; the same as *tip* where only saved work is left.
        record: of the newest session that names the branch: what its record holds, and its report over that;
            ``None`` if no session does. Where only saved work is left, of the one that has saved it.
        verdict: on a session that is not finished and names the branch; ``None`` if there is none.
        base: the commit that it started from, as its session has recorded; perhaps not there any more.

    """

    name: str
    id: str | None
    tip: str
    saved: str | None
    record: Mapping[str, Any] | None
    verdict: str | None
    base: str | None = None

    @property
    def ref(self) -> str:
        """Its full name."""
        return HEADS + self.name

    @property
    def saved_name(self) -> str | None:
        """The branch that holds its saved work."""
        return None if self.saved is None else self.name if self.only_saved else self.name + WIP

    @property
    def only_saved(self) -> bool:
        """Whether saved work is all there is: the branch itself is gone, or never was one of ours."""
        return self.id is not None and self.name.endswith(WIP)

    @property
    def belongs_to(self) -> str | None:
        """The branch that its session went on with, where only saved work has the session's own name."""
        branch = (self.record or {}).get("branch") if self.only_saved else None
        return branch if isinstance(branch, str) and branch != self.name.removesuffix(WIP) else None

    @property
    def label(self) -> str:
        """What names it among others: its id, else its name."""
        return self.id or self.name


class Main(NamedTuple):
    """The branch that the others are held against.

    Attributes:
        name: short name; of a remote branch with the remote's: ``origin/main``.
        tip: object id.
        ref: full name.

    """

    name: str
    tip: str
    ref: str


def read(place: Project, environ: Mapping[str, str]) -> list[Branch]:
    """Return every branch below ``ralph/``, in the order of their names.

    Saved work of an agent id goes with the branch of that id; alone it is a row of its own.

    Raises:
        RalphError: there is no repository.

    """
    project.repository_of(place)
    tips = {ref.removeprefix(HEADS): oid for ref, oid in git.refs(place.git(environ), OURS).items()}
    stems = {name.removesuffix(WIP) for name in tips if _saver(name)}
    sessions = known(place, environ, tips, stems - {*tips})
    return [
        _branch(name, tips, sessions)
        for name in sorted(tips)
        if _saver(name) is None or name.removesuffix(WIP) not in tips
    ]


def _saver(name: str) -> str | None:
    """Return the agent id whose saved work a branch holds, by its name; of another name it is nobody's."""
    stem = name.removeprefix("ralph/").removesuffix(WIP)
    return stem if name.endswith(WIP) and _ID.fullmatch(stem) else None


def _branch(name: str, tips: Mapping[str, str], sessions: Mapping[str, Known]) -> Branch:
    stem = name.removeprefix("ralph/")
    saver = _saver(name)
    agent_id = saver or (stem if _ID.fullmatch(stem) else None)
    told = sessions.get(name.removesuffix(WIP) if saver else name)
    base = told.base if told else None
    return Branch(
        name=name,
        id=agent_id,
        tip=tips[name],
        saved=tips[name] if saver else tips.get(name + WIP) if agent_id else None,
        record=told.record if told else None,
        verdict=told.verdict if told else None,
        base=base if base and _OID.fullmatch(base) else None,
    )


def main_branch(place: Project, where: Git, configured: str | None) -> Main:
    """Return the main branch.

    It is the configured one; else what the main checkout has checked out, unless that is one of ours; else
    ``origin/HEAD``; else ``main``; else ``master``.

    Arguments:
        configured: ``main`` in the configuration.

    Raises:
        NotFoundError: there is none, or not the configured one.
        RalphError: there is no repository.

    """
    project.repository_of(place)
    if configured:
        wanted = [HEADS + configured, f"refs/remotes/{configured}"]
    else:
        checked_out = git.list_worktrees(where)[0].branch
        ours = checked_out is None or checked_out.startswith("ralph/")
        origin = git.followed(where, "refs/remotes/origin/HEAD")
        local = [HEADS + origin.removeprefix("refs/remotes/origin/"), origin] if origin else []
        wanted = [*([] if ours else [f"{HEADS}{checked_out}"]), *local, f"{HEADS}main", f"{HEADS}master"]
    there = git.refs(where, *wanted)
    for ref in wanted:
        if ref in there:
            return Main(ref.removeprefix(HEADS).removeprefix("refs/remotes/"), there[ref], ref)
    if configured:
        raise NotFoundError(
            f"there is no branch {configured!r}", "git branch --list --all; main = in .ralph/config.toml"
        )
    raise NotFoundError(
        "there is no main branch: nothing of its own is checked out, and none is called main or master",
        'main = "NAME" in .ralph/config.toml names it',
    )


def named(branches: list[Branch], wanted: str) -> Branch:
    """Return the branch of a name.

    Arguments:
        branches: as :func:`read` returns them.
        wanted: an id (``a3f2``), a name (``ralph/foo``), or what follows ``ralph/`` in it (``foo``).

    Raises:
        NotFoundError: there is none.

    """
    for fits in (
        lambda one: one.id == wanted,
        lambda one: wanted in {one.name, one.ref},
        lambda one: wanted == one.name + WIP and one.saved is not None,
        lambda one: f"ralph/{wanted}" == one.name,
    ):
        if found := next(filter(fits, branches), None):
            return found
    raise NotFoundError(
        f"there is no branch ralph/{wanted.removeprefix('ralph/')}", "ralph-wrap review lists them"
    )


__all__ = [
    "HEADS",
    "OURS",
    "WIP",
    "Branch",
    "Main",
    "main_branch",
    "named",
    "read",
]
