"""What the steps of a session share: its settings, its project, its record, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config import Isolation, Settings
from ralph_wrap.session.clone_end import CloneEnd
from ralph_wrap.session.pool import SessionPool
from ralph_wrap.session.sandbox.backend import SandboxBackend
from ralph_wrap.session.worktree_end import WorktreeEnd, WorktreePolicy
from ralph_wrap.state.project import CLONES, WORKTREES, Project, with_replica
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.layout import EVERYTHING, WorktreeLayout


class SessionContext(NamedTuple):
    """What the steps of a session share.

    Attributes:
        settings: of the session.
        base: the commit to start from; ``None`` if there is none.
        record: of the session.
        cancel: whether the session must end.
        layout: the files of the repository that the worktree contains.
        hidden: git already ignores the directory of the worktrees.
        sandbox: what makes the agent's sandbox; ``None`` without a sandbox.
        home: the registry with its record.
        agrees: shows lines and a question to a person, and returns whether the answer is yes; ``None`` if
            there is nobody to ask.

    """

    settings: Settings
    project: Project
    base: str | None
    record: SessionRecord
    cancel: CancelToken
    layout: WorktreeLayout = EVERYTHING
    hidden: bool = False
    sandbox: SandboxBackend | None = None
    home: Registry | None = None
    agrees: Callable[[Sequence[str], str], bool] | None = None

    @property
    def replica(self) -> Path | None:
        """The replica of its clone; ``None`` if it gets a worktree."""
        if self.settings.isolation is not Isolation.CLONE or self.home is None:
            return None
        return self.home.replicas / self.record.session

    @property
    def keeping(self) -> Project:
        """The project, with git in the repository that keeps the session's work: the replica of a clone."""
        return self.project if self.replica is None else with_replica(self.project, self.replica)

    @property
    def end(self) -> WorktreeEnd:
        """How the session's worktree ends."""
        policy = WorktreePolicy.of_settings(self.settings)
        return WorktreeEnd(self.keeping, self.record, policy, self.pool.reuse)

    @property
    def clone_end(self) -> CloneEnd | None:
        """How the work of the session's clone comes out; ``None`` if it has none."""
        if self.replica is None or self.home is None:
            return None
        return CloneEnd(self.project, self.home, self.record, self.replica, self.branch)

    @property
    def pool(self) -> SessionPool:
        """The pool of warm worktrees, as the session uses it."""
        settings = self.settings if self.replica is None else self.settings._replace(pool=0)
        return SessionPool(settings, self.project, self.layout, self.record.session)

    @property
    def path(self) -> Path:
        """Where the worktree of the session is, if it gets one."""
        parent = WORKTREES if self.replica is None else CLONES
        return self.project.root / parent / self.record.worktree_name

    @property
    def branch(self) -> str:
        """The branch of the session, if it gets a worktree."""
        return self.settings.branch or f"ralph/{self.record.id}"

    @property
    def continues_branch(self) -> bool:
        """Whether the user named the branch, so that it may exist already."""
        return self.settings.branch is not None
