"""The workspace of an agent: its own worktree or, with a warning, the plain project root."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.config import Isolation, SubmoduleMode
from ralph_wrap.errors import (
    GitTooOldError,
    IsolationError,
    NotARepositoryError,
    PlainRootBusyError,
)
from ralph_wrap.git import environment_with_config, git_environment
from ralph_wrap.session.pool import SessionPool
from ralph_wrap.state.ports import port_for
from ralph_wrap.state.project import RUN, WORKTREES, registries
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import deferred, files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.ignore import RULE, ensure_ignored
from ralph_wrap.worktree.layout import EVERYTHING, environment_config
from ralph_wrap.worktree.leaks.monitor import LeakMonitor
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, session_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.config import Settings
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.session.worktree_end import WorktreeEnd
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.layout import WorktreeLayout
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.warm import WarmWorktree

_HOOKS_OFF = ("core.hooksPath", "/dev/null")
_HOOKS_OFF_SINCE = (2, 31)  # GIT_CONFIG_COUNT: configuration for one process tree, without writing a file


class Workspace(NamedTuple):
    """The workspace of an agent.

    Attributes:
        path: top level of the worktree, or the plain project root.
        tree: the worktree; ``None`` in the plain project root.
        lock: lock on the plain project root, so that no second session works in it.
        fallback: reason for the plain project root, if isolation was wanted.
        leak_monitor: detects changes outside the worktree.

    """

    path: Path
    tree: LinkedWorktree | None = None
    lock: files.FileLock | None = None
    fallback: str | None = None
    leak_monitor: LeakMonitor | None = None

    @property
    def branch(self) -> str | None:
        """The branch that the session checked out in the worktree."""
        return self.tree.branch if self.tree else None

    @property
    def base(self) -> str | None:
        """The commit that the worktree started from."""
        return self.tree.base if self.tree else None

    def directory(self, prefix: Path) -> Path:
        """Return a directory in it, or the nearest parent that exists: a commit may lack the directory."""
        found = self.path / prefix
        while not found.is_dir() and found != self.path:
            found = found.parent
        return found

    def look_outside(self, when: str) -> bool:
        """Log the changes outside it since the last call, and return whether there are any."""
        return self.leak_monitor is not None and self.leak_monitor.look(when)

    def git(self, git: Git) -> Git:
        """Return git for it; this git ignores linked directories."""
        return git._replace(cwd=self.path) if self.tree is None else self.tree.git(git)


def recorded(record: SessionRecord, workspace: Workspace | None) -> SessionRecord:
    """Return a session's record with its actual workspace; the plan may have been another one."""
    if workspace is None:
        return record._replace(branch=None, base=None, workspace=None)
    return record._replace(branch=workspace.branch, base=workspace.base, workspace=os.fspath(workspace.path))


class SessionContext(NamedTuple):
    """Creates and leaves the workspace of a session.

    Attributes:
        settings: of the session.
        project: the project.
        base: the commit to start from; ``None`` if there is none.
        record: of the session.
        cancel: whether the session must end.
        meanwhile: called once while git checks the files out.
        layout: the files of the repository that the worktree contains.
        hidden: git already ignores the directory of the worktrees.

    """

    settings: Settings
    project: Project
    base: str | None
    record: SessionRecord
    log: Log
    cancel: CancelToken
    meanwhile: Callable[[], object]
    layout: WorktreeLayout = EVERYTHING
    hidden: bool = False

    def open(self, obstacle: IsolationError | None) -> Workspace:
        """Create a worktree, or fall back to the plain project root if the settings allow it.

        Arguments:
            obstacle: reason why a worktree is impossible.

        Raises:
            IsolationError: isolation is required and impossible.
            PlainRootBusyError: another session works in the plain project root.
            BranchBusyError: the requested branch is checked out elsewhere.
            StoppedError: a signal arrived.

        """
        if self.settings.isolation is Isolation.OFF:
            return self._plain(None)
        try:
            if problem := self.project.obstacle or obstacle:
                raise problem
            return self._isolated()
        except (IsolationError, NotARepositoryError, GitTooOldError) as error:
            if self.settings.isolation is Isolation.REQUIRE:
                raise IsolationError(f"isolation is required: {error.message}", error.hint) from error
            self.log.warning(
                "isolation.fell_back",
                f"no isolation: {error.message}; working in {self.project.checkout} itself",
                error.hint,
            )
            return self._plain(error.message)

    def _isolated(self) -> Workspace:
        project = self.project
        repository = project.repository
        if repository is None or self.base is None:
            raise IsolationError("the repository has no commit yet", "git commit --allow-empty -m start")
        if project.root == project.checkout and not self.hidden:
            self._add_ignore_rule(repository)
        with self._leak_monitor(repository) as leak_monitor:
            tree = self._made(repository, self.base, leak_monitor.begin)
        return Workspace(tree.path, tree=tree, leak_monitor=leak_monitor)

    def _leak_monitor(self, repository: Repository) -> LeakMonitor:
        return LeakMonitor(
            self.project.git,
            root=self.project.root,
            common_dir=repository.common_dir,
            workspace=self._path,
            branch=self._branch,
            log=self.log,
            cancel=self.cancel,
        )

    def _made(self, repository: Repository, base: str, look: Callable[[], object]) -> LinkedWorktree:
        def meanwhile() -> None:
            self.meanwhile()
            look()  # after meanwhile(): until then both processor cores are busy

        def beside() -> None:
            look()  # first: it takes git longer than the check of a warm worktree
            self.meanwhile()

        one = self._pool.choose(repository, base, self._path.parent, self._branch, beside)
        try:
            tree = self._create(repository, base, one, meanwhile)
        except IsolationError as error:
            if one is None:
                raise
            self.log.warning("pool.unused", f"no warm worktree: {error.message}", "ralph-wrap pool --fill")
            tree = self._create(repository, base, None, meanwhile)
        self.log.event(
            "workspace.created",
            path=os.fspath(tree.path),
            branch=tree.branch,
            base=tree.base,
            warm=tree.warm,
        )
        if self.settings.submodules is SubmoduleMode.INIT:
            deferred.submodules.init_submodules(tree, self.project.git, log=self.log, cancel=self.cancel)
        deferred.report_copies.provide(
            tree,
            self.project.git,
            self.project.checkout,
            self.settings.copy,
            log=self.log,
            cancel=self.cancel,
        )
        return tree

    @property
    def end(self) -> WorktreeEnd:
        """How the session's worktree ends."""
        ends = deferred.worktree_end
        policy = ends.WorktreePolicy.of_settings(self.settings)
        return ends.WorktreeEnd(self.project, self.record, self.log, policy, self._pool.reuse)

    @property
    def _pool(self) -> SessionPool:
        return SessionPool(self.settings, self.project, self.layout, self.record.session)

    @property
    def _path(self) -> Path:
        return self.project.root / WORKTREES / self.record.session

    @property
    def _branch(self) -> str:
        return self.settings.branch or f"ralph/{self.record.id}"

    def _abandon(self, tree: LinkedWorktree) -> None:
        """Return a warm worktree that cannot be used; changes in it are saved."""
        ends = deferred.worktree_end
        end = ends.WorktreeEnd(self.project, self.record, self.log, ends.WorktreePolicy())
        end.leave(tree, self.project.root / RUN / "trash", unstarted=True)

    def _create(
        self, repository: Repository, base: str, warm: WarmWorktree | None, meanwhile: Callable[[], object]
    ) -> LinkedWorktree:
        return create(
            self.project.git,
            repository,
            path=self._path,
            branch=self._branch,
            base=base,
            continued=self.settings.branch is not None,
            owner=WorktreeOwner(
                session_lock(self.record.session), SessionMark(self.record.session, self._branch)
            ),
            cancel=self.cancel,
            progress=self.log.progress,
            meanwhile=meanwhile,
            layout=self.layout,
            warm=warm,
            abandon=self._abandon,
        )

    def refill(self) -> None:
        """Fill the pool in a background process.

        Raises:
            OSError: the process cannot be started.

        """
        self._pool.refill()

    def _add_ignore_rule(self, repository: Repository) -> None:
        changed = ensure_ignored(self.project.git, repository, self.settings.ignore)
        if changed is not None:
            self.log.event("ignore_rule.added", f"{RULE} added to {changed}", path=os.fspath(changed))

    def _plain(self, fallback: str | None) -> Workspace:
        root = self.project.checkout
        try:
            lock = files.try_lock(root)
        except OSError as error:
            self.log.warning(
                "plain_root.unlocked",
                f"{root} cannot be locked ({error.strerror}): a second session in it would not be noticed",
            )
            return Workspace(root, fallback=fallback)
        if lock is None:
            message = f"{self._session_in(root)} works in {root} already"
            if self.settings.isolation is not Isolation.OFF:
                raise PlainRootBusyError(
                    message, "wait for it, or share the directory on purpose with --isolation off"
                )
            self.log.warning("plain_root.shared", message, "--isolation off was given, so both work in it")
        return Workspace(root, lock=lock, fallback=fallback)

    def _session_in(self, root: Path) -> str:
        for registry in registries(self.project):
            for record in registry.unfinished():
                with contextlib.suppress(OSError):
                    if (
                        isinstance(record, SessionRecord)
                        and record.id != self.record.id
                        and record.workspace == os.fspath(root)
                        and registry.is_locked(record.id)
                    ):
                        return f"session {record.session}"
        return "another session"

    def _live_ids(self) -> set[str]:
        """Return the ids of the sessions that are not finished, including ours."""
        for registry in registries(self.project):
            if registry.has(self.record.id):
                return {path.stem for path in registry.agents.glob("*.json")}
        return set()

    def agent_environment(self, workspace: Workspace) -> dict[str, str]:
        """Return the environment of the agent, and warn if its hooks cannot be switched off."""
        repository = self.project.repository
        environ = git_environment(self.project.environ) | {
            "RALPH_AGENT_ID": self.record.id,
            "RALPH_SESSION_ID": self.record.session,
            "RALPH_BRANCH": workspace.branch or "",
            "RALPH_WORKSPACE": os.fspath(workspace.path),
            "RALPH_PROJECT": os.fspath(self.project.root),
            "RALPH_PORT": str(port_for(self.record.id, self._live_ids())),
        }
        if workspace.tree is not None:
            for key, value in environment_config(workspace.tree.registration):
                environ = environment_with_config(environ, key, value)
        if self.settings.hooks or repository is None:
            return environ
        if repository.git_version < _HOOKS_OFF_SINCE:
            self.log.warning(
                "hooks.not_disabled",
                "git before 2.31 cannot switch hooks off for one process: they run in the agent's commits",
                "install git 2.31 or newer, or --hooks on",
            )
            return environ
        return environment_with_config(environ, *_HOOKS_OFF)
