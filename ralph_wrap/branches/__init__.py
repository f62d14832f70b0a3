"""The branches of sessions with the data of these sessions, and the main branch.

These are all branches below ``ralph/``, and the branches elsewhere that a session recorded. The refs decide
which branches exist. A record adds data, and it may name a branch. A name that git does not know is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ralph_wrap import config
from ralph_wrap.branches.sessions import BranchSession, RecordedSession, known, recorded
from ralph_wrap.errors import NotFoundError, RalphError, no_commit
from ralph_wrap.git import list_refs, list_worktrees, symbolic_ref_target
from ralph_wrap.git.oid import is_oid
from ralph_wrap.state.ids import agent_id_of, is_agent_id
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.state.selector import Candidate, select
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command

HEADS = "refs/heads/"
"""Prefix of the full names of branches."""

ORIGIN = "refs/remotes/origin/"
"""Prefix of the full names of the branches of the remote ``origin``."""

ORIGIN_HEAD = f"{ORIGIN}HEAD"
"""The symbolic ref to the main branch that this remote had when it was cloned, or asked for the last time."""

SET_HEAD = command("git", "remote", "set-head", "origin", "--auto")
"""The command that asks this remote for the name of its main branch, and mends that ref."""

OURS = f"{HEADS}ralph/"
"""Prefix of the full names of session branches."""

WIP = "-wip"
"""Suffix of a branch with saved work."""


_MOST_PATTERNS = 1000  # on a command line; an agent can forge records with any number of names


class Branch(NamedTuple):
    """One branch of a session with its saved work, or saved work whose branch does not exist.

    Attributes:
        name: short name: ``ralph/a3f2``.
        id: the agent id in the name, else of the newest session that names the branch. ``None`` if there is
            none, or another branch has this id.
        tip: object id.
        saved: tip of ``ralph/<id>-wip``; equal to *tip* if only saved work exists.
        record: record and report of the newest session that names the branch, merged: the report wins.
            ``None`` if no session names it. If only saved work exists, of the session that saved it.
        verdict: of a session that names the branch and is not finished; ``None`` if there is none.
        base: the recorded commit that the branch started from; it may not exist any more.
        sessions: ids of the sessions that name the branch, the newest first.
        creators: ids of those that state that they created it.

    """

    name: str
    id: str | None
    tip: str
    saved: str | None
    record: Mapping[str, Any] | None
    verdict: str | None
    base: str | None = None
    sessions: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """Its full name."""
        return HEADS + self.name

    @property
    def saved_name(self) -> str | None:
        """Name of the branch with its saved work."""
        return None if self.saved is None else self.name if self.only_saved else f"ralph/{self.id}{WIP}"

    @property
    def only_saved(self) -> bool:
        """Whether only saved work exists: the branch was deleted, or a later session has its own."""
        return _saver(self.name) is not None

    @property
    def named_by_id(self) -> bool:
        """Whether a session's id is in its name."""
        return self.id is not None and self.name.removesuffix(WIP) == f"ralph/{self.id}"

    @property
    def belongs_to(self) -> str | None:
        """The branch that its session worked on, if only the saved work is named by the session's id."""
        branch = (self.record or {}).get("branch") if self.only_saved else None
        return branch if isinstance(branch, str) and branch != self.name.removesuffix(WIP) else None

    @property
    def title(self) -> str:
        """What people call its session; empty if that is not known."""
        title = (self.record or {}).get("title")
        return title if isinstance(title, str) else ""

    @property
    def label(self) -> str:
        """Its id if it has one, else its name."""
        return self.id or self.name


class MainBranch(NamedTuple):
    """The main branch; the other branches are compared with it.

    Attributes:
        name: short name; for a remote branch with the name of the remote: ``origin/main``.
        tip: object id.
        ref: full name.
        is_checked_out: it was chosen because the main checkout has it checked out.

    """

    name: str
    tip: str
    ref: str
    is_checked_out: bool = False


def read(project: Project) -> list[Branch]:
    """Return every branch of a session, sorted by name.

    Saved work belongs to the branch with the same agent id. Without such a branch it is a separate entry.

    Raises:
        RalphError: there is no repository.

    """
    repository_of(project)
    sessions = recorded(project)
    elsewhere = {HEADS + session.branch for session in sessions if session.branch and session.record}
    wanted = {ref for ref in elsewhere if not ref.startswith(OURS)}
    # A name in a record may be a pattern for git, or the beginning of other names.
    patterns = [OURS, *sorted(wanted)] if len(wanted) <= _MOST_PATTERNS else [HEADS]
    refs = list_refs(project.git, *patterns)
    tips = {
        ref.removeprefix(HEADS): oid for ref, oid in refs.items() if ref.startswith(OURS) or ref in wanted
    }
    return of_tips(tips, sessions)


def of_tips(tips: Mapping[str, str], sessions: Sequence[RecordedSession]) -> list[Branch]:
    """Return branches with the data of their sessions, sorted by name.

    Arguments:
        tips: object ids by the short names of the branches and of the saved work.
        sessions: the recorded sessions.

    """
    stems = {name.removesuffix(WIP) for name in tips if _saver(name)}
    data = known(sessions, tips, stems - {*tips})
    newest_first = sorted(
        tips, key=lambda name: data[name].sessions[:1] if name in data else (), reverse=True
    )
    names: dict[str, str] = {}  # by id
    for name in (*filter(_id_in, newest_first), *newest_first):
        ended = data[name].sessions if name in data else ()
        agent_id = _id_in(name) or (agent_id_of(ended[0]) if ended else None)
        if agent_id and not _saver(name):
            names.setdefault(agent_id, name)
    agent_ids = {name: agent_id for agent_id, name in names.items()}
    attached = {f"ralph/{agent_id}{WIP}" for agent_id in names}
    return [_branch(name, agent_ids.get(name), tips, data) for name in sorted({*tips} - attached)]


def _id_in(name: str) -> str | None:
    """Return the agent id in the name of a branch, ``None`` if there is none."""
    stem = name.removeprefix("ralph/")
    return stem if stem != name and is_agent_id(stem) else None


def _saver(name: str) -> str | None:
    """Return the agent id in the name of a branch with saved work, ``None`` for any other branch."""
    return _id_in(name.removesuffix(WIP)) if name.endswith(WIP) else None


def _branch(
    name: str, agent_id: str | None, tips: Mapping[str, str], data: Mapping[str, BranchSession]
) -> Branch:
    saver = _saver(name)
    session = data.get(name.removesuffix(WIP) if saver else name)
    base = session.base if session else None
    return Branch(
        name=name,
        id=saver or agent_id,
        tip=tips[name],
        saved=tips[name] if saver else tips.get(f"ralph/{agent_id}{WIP}"),
        record=session.record if session else None,
        verdict=session.verdict if session else None,
        base=base if base and is_oid(base) else None,
        sessions=session.sessions if session else (),
        creators=session.creators if session else (),
    )


def main_branch(project: Project, configured: str | None) -> MainBranch:
    """Return the main branch.

    The configured branch comes first. The next candidate is the branch that the main checkout has checked
    out, unless it is below ``ralph/``. Then follow ``origin/HEAD``, ``main`` and ``master``.

    Arguments:
        configured: ``main`` in the configuration.

    Raises:
        NotFoundError: there is no main branch, or the configured branch does not exist.
        RalphError: there is no repository.

    """
    repository_of(project)
    checked_out: str | None = None
    origin: str | None = None
    if configured:
        wanted = [HEADS + configured, f"refs/remotes/{configured}"]
    else:
        checked_out = list_worktrees(project.git)[0].branch
        ours = checked_out is None or checked_out.startswith("ralph/")
        origin = symbolic_ref_target(project.git, ORIGIN_HEAD)
        local = [HEADS + origin.removeprefix(ORIGIN), origin] if origin else []
        wanted = [*([] if ours else [f"{HEADS}{checked_out}"]), *local, f"{HEADS}main", f"{HEADS}master"]
    tips = list_refs(project.git, *wanted)
    for ref in wanted:
        if ref in tips:
            name = ref.removeprefix(HEADS).removeprefix("refs/remotes/")
            return MainBranch(name, tips[ref], ref, ref == f"{HEADS}{checked_out}")
    if configured:
        raise NotFoundError(
            f"there is no branch {configured!r}", "git branch --list --all; main = in .ralph/config.toml"
        )
    if not list_refs(project.git, HEADS):
        raise no_commit(project.checkout)
    way_out = 'set main = "NAME" in .ralph/config.toml'
    stale = [f"if origin/HEAD is out of date ({origin.removeprefix(ORIGIN)}): {SET_HEAD}"] if origin else []
    raise NotFoundError(
        "there is no main branch: the project has no branch of its own checked out, and no main or master",
        Commands.of(*stale, way_out) if stale else way_out,
    )


def tip_of_main(project: Project) -> str | None:
    """Return the object id of the main branch's tip; ``None`` if there is none, or git cannot say."""
    if project.repository is None:
        return None
    try:
        configured = config.of_project(project.main, project.environ, "main").main
        return main_branch(project, configured).tip
    except RalphError:
        return None


def named(branches: Sequence[Branch], wanted: str) -> Branch:
    """Return the branch with a name.

    Arguments:
        branches: as :func:`read` returns them.
        wanted: an id (``a3f2``), a name (``ralph/foo``), a name without ``ralph/`` (``foo``), the id of a
            session that worked on the branch, or a title.

    Raises:
        UsageError: the title of several branches fits.
        NotFoundError: there is no such branch.

    """
    newest_first = sorted(branches, key=lambda branch: branch.sessions[:1], reverse=True)
    if (found := select(wanted, [_candidate(branch) for branch in newest_first])) is None:
        full = wanted if "/" in wanted or " " in wanted else f"ralph/{wanted}"
        raise NotFoundError(f"there is no branch {full}", "to list them: ralph-wrap review")
    branch: Branch = found
    return branch


def _candidate(branch: Branch) -> Candidate:
    names = (
        (branch.id,),
        (branch.name, branch.ref),
        (branch.saved_name,),
        (branch.name.removeprefix("ralph/"),),
        (*branch.sessions, *map(agent_id_of, branch.sessions)),
    )
    return Candidate(branch, branch.label, names, branch.title)


__all__ = [
    "HEADS",
    "ORIGIN",
    "ORIGIN_HEAD",
    "OURS",
    "SET_HEAD",
    "WIP",
    "Branch",
    "MainBranch",
    "main_branch",
    "named",
    "of_tips",
    "read",
    "recorded",
    "tip_of_main",
]
