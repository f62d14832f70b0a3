"""The branches below ``ralph/`` with the data of their sessions, and the main branch.

The refs decide which branches exist. Records only add data: a wrong or missing record never changes the list
of branches. Names and ids come from git alone, never from a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralph_wrap.branches.sessions import known
from ralph_wrap.errors import NotFoundError
from ralph_wrap.git import list_refs, list_worktrees, symbolic_ref_target
from ralph_wrap.git.oid import is_oid
from ralph_wrap.state.ids import is_agent_id
from ralph_wrap.state.project import repository_of
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.branches.sessions import BranchSession
    from ralph_wrap.state.project import Project

HEADS = "refs/heads/"
"""Prefix of the full names of branches."""

OURS = f"{HEADS}ralph/"
"""Prefix of the full names of session branches."""

WIP = "-wip"
"""Suffix of a branch with saved work."""


class Branch(NamedTuple):
    """One branch below ``ralph/`` with its saved work, or saved work whose branch does not exist.

    Attributes:
        name: short name: ``ralph/a3f2``.
        id: the agent id in the name, ``None`` if there is none.
        tip: object id.
        saved: tip of ``<name>-wip``; equal to *tip* if only saved work exists.
        record: record and report of the newest session that names the branch, merged: the report wins.
            ``None`` if no session names it. If only saved work exists, of the session that saved it.
        verdict: of a session that names the branch and is not finished; ``None`` if there is none.
        base: the recorded commit that the branch started from; it may not exist any more.

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
        """Name of the branch with its saved work."""
        return None if self.saved is None else self.name if self.only_saved else self.name + WIP

    @property
    def only_saved(self) -> bool:
        """Whether only saved work exists: the branch was deleted, or never was below ``ralph/``."""
        return self.id is not None and self.name.endswith(WIP)

    @property
    def belongs_to(self) -> str | None:
        """The branch that its session worked on, if only the saved work is named by the session's id."""
        branch = (self.record or {}).get("branch") if self.only_saved else None
        return branch if isinstance(branch, str) and branch != self.name.removesuffix(WIP) else None

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

    """

    name: str
    tip: str
    ref: str


def read(project: Project) -> list[Branch]:
    """Return every branch below ``ralph/``, sorted by name.

    Saved work belongs to the branch with the same agent id. Without such a branch it is a separate entry.

    Raises:
        RalphError: there is no repository.

    """
    repository_of(project)
    tips = {ref.removeprefix(HEADS): oid for ref, oid in list_refs(project.git, OURS).items()}
    stems = {name.removesuffix(WIP) for name in tips if _saver(name)}
    sessions = known(project, tips, stems - {*tips})
    return [
        _branch(name, tips, sessions)
        for name in sorted(tips)
        if _saver(name) is None or name.removesuffix(WIP) not in tips
    ]


def _saver(name: str) -> str | None:
    """Return the agent id in the name of a branch with saved work, ``None`` for any other branch."""
    stem = name.removeprefix("ralph/").removesuffix(WIP)
    return stem if name.endswith(WIP) and is_agent_id(stem) else None


def _branch(name: str, tips: Mapping[str, str], sessions: Mapping[str, BranchSession]) -> Branch:
    stem = name.removeprefix("ralph/")
    saver = _saver(name)
    agent_id = saver or (stem if is_agent_id(stem) else None)
    session = sessions.get(name.removesuffix(WIP) if saver else name)
    base = session.base if session else None
    return Branch(
        name=name,
        id=agent_id,
        tip=tips[name],
        saved=tips[name] if saver else tips.get(name + WIP) if agent_id else None,
        record=session.record if session else None,
        verdict=session.verdict if session else None,
        base=base if base and is_oid(base) else None,
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
    if configured:
        wanted = [HEADS + configured, f"refs/remotes/{configured}"]
    else:
        checked_out = list_worktrees(project.git)[0].branch
        ours = checked_out is None or checked_out.startswith("ralph/")
        origin = symbolic_ref_target(project.git, "refs/remotes/origin/HEAD")
        local = [HEADS + origin.removeprefix("refs/remotes/origin/"), origin] if origin else []
        wanted = [*([] if ours else [f"{HEADS}{checked_out}"]), *local, f"{HEADS}main", f"{HEADS}master"]
    tips = list_refs(project.git, *wanted)
    for ref in wanted:
        if ref in tips:
            return MainBranch(ref.removeprefix(HEADS).removeprefix("refs/remotes/"), tips[ref], ref)
    if configured:
        raise NotFoundError(
            f"there is no branch {configured!r}", "git branch --list --all; main = in .ralph/config.toml"
        )
    raise NotFoundError(
        "there is no main branch: the project has no branch of its own checked out, and no main or master",
        'set main = "NAME" in .ralph/config.toml',
    )


def named(branches: list[Branch], wanted: str) -> Branch:
    """Return the branch with a name.

    Arguments:
        branches: as :func:`read` returns them.
        wanted: an id (``a3f2``), a name (``ralph/foo``), or a name without ``ralph/`` (``foo``).

    Raises:
        NotFoundError: there is no such branch.

    """
    for matches in (
        lambda branch: branch.id == wanted,
        lambda branch: wanted in {branch.name, branch.ref},
        lambda branch: wanted == branch.name + WIP and branch.saved is not None,
        lambda branch: f"ralph/{wanted}" == branch.name,
    ):
        if found := next(filter(matches, branches), None):
            return found
    raise NotFoundError(
        f"there is no branch ralph/{wanted.removeprefix('ralph/')}", "ralph-wrap review lists them"
    )


__all__ = [
    "HEADS",
    "OURS",
    "WIP",
    "Branch",
    "MainBranch",
    "main_branch",
    "named",
    "read",
]
