"""The worktree of a session, seen from outside; nothing is adopted, locked or changed."""

from __future__ import annotations

from ralph_wrap.git.repository import file_system_config
from ralph_wrap.state.project import WORKTREES, Project, repository_of
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, read_mark


def worktree_of(project: Project, record: SessionRecord) -> LinkedWorktree | None:
    """Return the worktree of a session, to read it; ``None`` if it works in a clone, or elsewhere."""
    if record.branch is None:
        return None
    common_dir = repository_of(project).common_dir
    path = project.root / WORKTREES / record.worktree_name
    registration = common_dir / "worktrees" / path.name
    if not path.is_dir() or read_mark(registration) != SessionMark(record.session, record.branch):
        return None
    return LinkedWorktree(
        path=path,
        registration=registration,
        common_dir=common_dir,
        branch=record.branch,
        base=record.base or "",
        branch_created=False,
        config=file_system_config(file_mode=record.file_mode, symlinks=record.symlinks),
    )
