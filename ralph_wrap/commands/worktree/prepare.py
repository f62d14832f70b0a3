"""What a tool needs of the project that it is called in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.errors import ConflictError, RalphError
from ralph_wrap.state.project import RUN, WORKTREES
from ralph_wrap.state.registry import Registry
from ralph_wrap.worktree.recover import bring_back

if TYPE_CHECKING:
    from ralph_wrap.state.project import Project


def home_of(place: Project) -> Registry:
    """Return where our own files are, ready to be used.

    Raises:
        ConflictError: something that leads elsewhere is in its place.
        RalphError: it cannot be had.

    """
    for directory in (place.root / RUN.parent, place.root / RUN, place.root / WORKTREES):
        if directory.is_symlink():
            raise ConflictError(
                f"{directory} is a symlink, which is not followed", "replace it by a directory"
            )
    home = Registry(place.root / RUN)
    try:
        home.prepare()
    except OSError as error:
        raise RalphError(
            f"{home.directory} cannot be used: {error.strerror}",
            "it must be a directory that can be written, on a disk that is not full",
        ) from error
    return home


def recover(place: Project) -> None:
    """Put back what somebody had half removed who was killed at it; nothing is made.

    Raises:
        RalphError: that cannot be done; nothing is lost.

    """
    if place.repository is None:
        return
    trash = Registry(place.root / RUN).trash
    try:
        bring_back(place.repository.common_dir, place.root / WORKTREES, trash)
    except OSError as error:
        raise RalphError(
            f"what was half removed cannot be put back from {trash}: {error.strerror}", "mv it back by hand"
        ) from error
