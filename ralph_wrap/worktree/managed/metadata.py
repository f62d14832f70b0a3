"""The mark of a managed worktree: a file in its registration, which stays with it after a move."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields

_FILE = "ralph-wrap.json"
_FORMAT = DocumentFormat(version=1, indent=1)


class WorktreeMetadata(NamedTuple):
    """The facts about a worktree that belongs to no session of ours.

    Attributes:
        branch: the branch that was checked out in it.
        base: the commit from which it started.
        branch_created: the branch did not exist before.
        origin: the branch of the checkout in which it was made; ``None`` for a detached HEAD.
        configured: we gave it its own git configuration.
        session: the name of the session that has entered it; ``None`` without one.
        original_cwd: the working directory from which the session entered it.
        tmux_session: the name of its tmux session.
        file_mode: the repository's file system supports executable files.
        symlinks: the repository's file system supports symlinks.

    """

    branch: str
    base: str
    branch_created: bool
    origin: str | None = None
    configured: bool = False
    session: str | None = None
    original_cwd: str | None = None
    tmux_session: str | None = None
    file_mode: bool = True
    symlinks: bool = True


def write_mark(registration: Path, mark: WorktreeMetadata) -> None:
    """Write the mark of a worktree.

    Raises:
        OSError: it cannot be written, and is unchanged.

    """
    files.replace(registration / _FILE, _FORMAT.encode(mark._asdict()))


def read_mark(registration: Path) -> WorktreeMetadata | None:
    """Return the mark of a worktree, ``None`` without a valid one."""
    try:
        return _FORMAT.read(registration / _FILE, lambda loaded: convert_fields(loaded, WorktreeMetadata))
    except (OSError, ValueError):
        return None


def marked(common_dir: Path) -> dict[Path, WorktreeMetadata]:
    """Return the registrations of a repository that have a mark."""
    found = {path: read_mark(path) for path in sorted(common_dir.glob("worktrees/*")) if path.is_dir()}
    return {path: mark for path, mark in found.items() if mark is not None}
