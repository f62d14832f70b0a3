"""What the steps of a session share: its settings, its project, its record, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.session.pool import SessionPool
from ralph_wrap.state.project import WORKTREES
from ralph_wrap.system import deferred
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.layout import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.config import Settings
    from ralph_wrap.session.sandbox.backend import SandboxBackend
    from ralph_wrap.session.worktree_end import WorktreeEnd
    from ralph_wrap.state.project import Project
    from ralph_wrap.state.registry import SessionRecord
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.layout import WorktreeLayout


class SessionContext(NamedTuple):
    """What the steps of a session share.

    Attributes:
        settings: of the session.
        project: the project.
        base: the commit to start from; ``None`` if there is none.
        record: of the session.
        cancel: whether the session must end.
        meanwhile: called once while git checks the files out.
        layout: the files of the repository that the worktree contains.
        hidden: git already ignores the directory of the worktrees.
        sandbox: what makes the agent's sandbox; ``None`` without a sandbox.

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
    sandbox: SandboxBackend | None = None

    @property
    def end(self) -> WorktreeEnd:
        """How the session's worktree ends."""
        ends = deferred.worktree_end
        policy = ends.WorktreePolicy.of_settings(self.settings)
        return ends.WorktreeEnd(self.project, self.record, self.log, policy, self.pool.reuse)

    @property
    def pool(self) -> SessionPool:
        """The pool of warm worktrees, as the session uses it."""
        return SessionPool(self.settings, self.project, self.layout, self.record.session)

    @property
    def path(self) -> Path:
        """Where the worktree of the session is, if it gets one."""
        return self.project.root / WORKTREES / self.record.worktree_name

    @property
    def branch(self) -> str:
        """The branch of the session, if it gets a worktree."""
        return self.settings.branch or f"ralph/{self.record.id}"

    @property
    def continues_branch(self) -> bool:
        """Whether the user named the branch, so that it may exist already."""
        return self.settings.branch is not None
