"""The clone in which a worker runs its session."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ralph_wrap.errors import ConflictError, RalphError
from ralph_wrap.fleet.refs import spec_ref
from ralph_wrap.fleet.remote import FleetRemote
from ralph_wrap.fleet.spec import read_spec
from ralph_wrap.git import Git, git_environment, knows_committer, list_refs, run_git
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.state import report, stop_request
from ralph_wrap.state.project import RUN, WORKTREES
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system import privileges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ralph_wrap.fleet.order import WorkOrder
    from ralph_wrap.fleet.spec import FleetSpec
    from ralph_wrap.state.report import SessionReport

REMOTE = "origin"
"""The name of the remote in the clone."""

_PROJECT = "project"  # the directory of the clone in the workspace


class WorkClone:
    """The clone of a worker.

    Arguments:
        path: its directory.
        remote: where it came from.
        spec: the run.
        base: the commit that it is based on.

    Attributes:
        stop_is_asked: the remote has the request to stop the session.

    """

    def __init__(self, path: Path, remote: FleetRemote, spec: FleetSpec, base: str) -> None:
        self.path = path
        self.remote = remote
        self.spec = spec
        self.base = base
        self.stop_is_asked = False

    def sessions(self, agent_id: str) -> list[str]:
        """Return the session ids that an agent id has in this clone, the oldest first."""
        with contextlib.suppress(OSError):
            names = os.listdir(self._registry.sessions)  # noqa: PTH208 -- names, not paths
            return sorted(name for name in names if name.endswith(f"-{agent_id}"))
        return []

    def report(self, agent_id: str) -> SessionReport | None:
        """Return the report of the newest session; ``None`` if there is none."""
        if not (names := self.sessions(agent_id)):
            return None
        return report.read(self._registry.sessions / names[-1] / "report.json")

    def stop(self, agent_id: str) -> None:
        """Ask the session that runs in this clone to stop."""
        self.stop_is_asked = True
        if names := self.sessions(agent_id):
            with contextlib.suppress(OSError):  # the next look tries again
                stop_request.ask(self._registry.sessions / names[-1], StopMode.SOON)

    def only_here(self, agent_id: str) -> list[str]:
        """Return the worktrees and branches of a session that have work which the remote lacks.

        Errors are those of :meth:`FleetRemote.listed`.
        """
        with contextlib.suppress(FileNotFoundError):
            kept = [entry.path for entry in os.scandir(self.path / WORKTREES) if entry.is_dir()]
            if kept:  # for example with a repository inside, which no push brings
                return sorted(kept)
        heads = f"refs/heads/ralph/{agent_id}"
        here = list_refs(self.remote.git, heads, f"{heads}-wip")
        if not here:
            return []
        there = self.remote.listed(f"{heads}*", f"refs/ralph/*/{agent_id}/*")
        self.remote.fetch(there)
        return [
            ref
            for ref, commit in here.items()
            if not any(is_ancestor(self.remote.git, commit, other) for other in {*there.values()})
        ]

    @property
    def _registry(self) -> Registry:
        return Registry(self.path / RUN)


def open_clone(
    order: WorkOrder,
    environ: Mapping[str, str],
    is_over: Callable[[], bool],
    patiently: Callable[[Callable[[], None]], None],
) -> WorkClone:
    """Clone the remote into the workspace, at the base of the run.

    Arguments:
        order: names the workspace and the run.
        environ: of the worker.
        is_over: whether no time is left for the remote.
        patiently: does something with the remote, and tries again while it does not answer.

    Raises:
        ConflictError: the workspace has content.
        RalphError: the remote does not have the run, or has another one by this name.

    """
    _require_empty(order.workspace)
    path = order.workspace / _PROJECT
    path.mkdir()
    git = Git(path, git_environment(environ))
    run_git(git, "init", "--quiet", "--template=")
    run_git(git, "remote", "add", "--", REMOTE, order.remote)
    remote = FleetRemote(git, REMOTE, is_over)
    patiently(lambda: _fetch_spec(remote, order))
    spec, base = read_spec(git, order.spec)
    if spec.run != order.run or order.number >= spec.size:
        raise RalphError(f"commit {order.spec} describes run {spec.run} of {spec.size} sessions")
    _name_committer(git, spec)
    run_git(git, "checkout", "--quiet", "--detach", base, config=("-c", "advice.detachedHead=false"))
    return WorkClone(path, remote, spec, base)


def _require_empty(workspace: Path) -> None:
    workspace.mkdir(parents=True, exist_ok=True)
    if names := sorted(os.listdir(workspace)):  # noqa: PTH208 -- names, not paths
        raise ConflictError(
            f"the workspace {workspace} is not empty: {names[0]!r} is in it",
            "give the worker an empty directory",
        )


def _name_committer(git: Git, spec: FleetSpec) -> None:
    """Name the author of commits in the clone: that of the run, or a neutral one if git knows none."""
    fallback = privileges.FALLBACK_IDENTITY
    given = {"user.name": spec.author_name, "user.email": spec.author_email}
    if not all(given.values()) and not knows_committer(git):
        given = {"user.name": fallback["GIT_AUTHOR_NAME"], "user.email": fallback["GIT_AUTHOR_EMAIL"]}
    if all(given.values()):
        for key, value in given.items():
            run_git(git, "config", "--", key, value)


def _fetch_spec(remote: FleetRemote, order: WorkOrder) -> None:
    ref = spec_ref(order.run)
    found = remote.listed(ref).get(ref)
    if found != order.spec:
        what = "another run by this name" if found else "no such run"
        raise RalphError(f"the remote has {what}: {order.run}", "start the run again: ralph-wrap fleet run")
    remote.fetch([ref])
