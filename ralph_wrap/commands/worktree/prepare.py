"""The preparation of a project for the ``worktree`` commands."""

from __future__ import annotations

from ralph_wrap.errors import ConflictError, RalphError
from ralph_wrap.state.project import RUN, WORKTREES, Project, prepare_root
from ralph_wrap.state.registry import Registry
from ralph_wrap.worktree.recover import bring_back


def home_of(project: Project) -> Registry:
    """Return the project's registry with its directories.

    Raises:
        ConflictError: a symlink is in the place of one of our directories.
        RalphError: our directories cannot be used.

    """
    for directory in (project.root / RUN.parent, project.root / RUN, project.root / WORKTREES):
        if directory.is_symlink():
            raise ConflictError(
                f"{directory} is a symlink, which is not followed", "replace it by a directory"
            )
    prepare_root(project)
    home = Registry(project.root / RUN)
    try:
        home.prepare()
    except OSError as error:
        raise RalphError(
            f"cannot use {home.directory}: {error.strerror}",
            "it must be a writable directory, on a disk with free space",
        ) from error
    return home


def recover(project: Project) -> None:
    """Put back worktrees whose removal was killed half-way.

    Raises:
        RalphError: a worktree cannot be put back; nothing is lost.

    """
    if project.repository is None:
        return
    trash = Registry(project.root / RUN).trash
    try:
        bring_back(project.repository.common_dir, project.root / WORKTREES, trash)
    except OSError as error:
        raise RalphError(
            f"cannot put a half removed worktree back from {trash}: {error.strerror}", f"see it: ls {trash}"
        ) from error
