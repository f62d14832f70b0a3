"""The clone in which a worker runs its session."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ralph_wrap.errors import ConflictError, RalphError, UnreachableError
from ralph_wrap.git import Git, decode_lines, git_environment, knows_committer, list_refs, run_git, set_refs
from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.interfaces.fleet.grace import RemoteRetries
from ralph_wrap.interfaces.fleet.order import WorkOrder
from ralph_wrap.interfaces.fleet.refs import spec_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import FleetSpec, read_spec
from ralph_wrap.session.remote.view import RESCUE
from ralph_wrap.state import report, stop_request
from ralph_wrap.state.project import RUN, WORKTREES
from ralph_wrap.state.record import is_fetched
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.remote_refs import everything, tracking
from ralph_wrap.state.report import SessionReport
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system import privileges

REMOTE = "origin"
"""The name of the remote in the clone."""

_PROJECT = "project"  # the directory of the clone in the workspace
_ATTEMPTS = 3  # to push what the remote refuses
_STASH = "refs/stash"
_ELSEWHERE = re.compile(r"refs/(?:ralph-remotes|remotes)/|refs/ralph/snapshots/[^/]+/(?!commit-|submodule-)")


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
        """Return the ids of the sessions of an agent id that ran in this clone, the oldest first.

        A worker that waits fetches the session of the other worker. It has a record here, too.
        """
        home = self._registry.sessions
        with contextlib.suppress(OSError):
            names = os.listdir(home)  # noqa: PTH208 -- names, not paths
            found = sorted(name for name in names if name.endswith(f"-{agent_id}"))
            return [name for name in found if not is_fetched(home / name)]
        return []

    def report(self, agent_id: str) -> SessionReport | None:
        """Return the report of the newest session; ``None`` if there is none that can be read."""
        if not (names := self.sessions(agent_id)):
            return None
        found = report.read(self._registry.sessions / names[-1] / "report.json")
        return found if isinstance(found, report.SessionReport) else None  # it is only shown

    def stop(self, agent_id: str) -> None:
        """Ask the session that runs in this clone to stop."""
        self.stop_is_asked = True
        if names := self.sessions(agent_id):
            with contextlib.suppress(OSError):  # the next look tries again
                stop_request.ask(self._registry.sessions / names[-1], StopMode.SOON)

    def kept_worktrees(self) -> list[str]:
        """Return the worktrees that stayed, for example with a repository inside, which no push brings."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.path for entry in os.scandir(self.path / WORKTREES) if entry.is_dir())
        return []

    def lacking(self, agent_id: str) -> dict[str, str]:
        """Return the commits that only this clone has, by ref: also other branches, tags and stashes.

        Older snapshots do not count: newer ones, or the saved work, have replaced them. Errors are those of
        :meth:`FleetRemote.listed`.
        """
        listed = self.remote.listed(f"refs/heads/ralph/{agent_id}*", f"refs/ralph/*/{agent_id}/*")
        self.remote.fetch(listed)
        return self._beyond(listed.values())

    def unconfirmed(self) -> dict[str, str]:
        """Return what :meth:`lacking` returns, as of the last answer of the remote: it is not asked."""
        return self._beyond(list_refs(self.remote.git, everything(self.remote.name)).values())

    def _beyond(self, remote_oids: Iterable[str]) -> dict[str, str]:
        """Return the commits of this clone that are not behind those of the remote, by ref."""
        git = self.remote.git
        own = {ref: oid for ref, oid in list_refs(git, "refs/").items() if not _ELSEWHERE.match(ref)}
        if _STASH in own:
            entries = decode_lines(run_git(git, "rev-list", "--walk-reflogs", _STASH, "--").stdout)
            own |= {f"{_STASH}-{number}": oid for number, oid in enumerate(entries)}
        known = [f"^{oid}" for oid in {self.base, *remote_oids}]
        return {
            ref: oid
            for ref, oid in own.items()
            if run_git(git, "rev-list", "--max-count=1", oid, *known, "--").stdout
        }

    def rescue(self, agent_id: str, patience: RemoteRetries) -> None:
        """Push what only this clone has below ``refs/ralph/rescue/``: the clone goes with its workspace.

        What the remote refuses stays here, and :meth:`lacking` names it.

        Arguments:
            agent_id: of the session.
            patience: of the worker.

        """
        name = [agent_id, *self.sessions(agent_id)][-1]  # an agent can delete the directories of its sessions
        prefix = f"{RESCUE}{agent_id}/{name}/"
        for _ in range(_ATTEMPTS):
            if not (lacking := patience.repeat(lambda: self.lacking(agent_id))):
                return
            changes = [
                RemoteChange(prefix + ref.removeprefix("refs/"), None, oid) for ref, oid in lacking.items()
            ]
            try:
                if self.remote.change(changes):
                    confirmed = {tracking(self.remote.name, change.ref): change.after for change in changes}
                    set_refs(self.remote.git, confirmed)
            except UnreachableError:  # it has just answered: it refuses them, or went away
                patience.pause(1.0)

    @property
    def _registry(self) -> Registry:
        return Registry(self.path / RUN)


def open_clone(order: WorkOrder, environ: Mapping[str, str], patience: RemoteRetries) -> WorkClone:
    """Clone the remote into the workspace, at the base of the run.

    Arguments:
        order: names the workspace and the run.
        environ: of the worker.
        patience: of the worker.

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
    remote = FleetRemote(git, REMOTE, patience.is_over)
    patience.repeat(lambda: _fetch_spec(remote, order))
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
