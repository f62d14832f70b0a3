"""Keep the ``.git`` file of a worktree, by which git finds its repository.

An agent may delete or replace it. Git then finds no repository, because the agent's environment forbids it to
look above the worktree. Without that, or with another repository in the file, what the agent commits next
lands elsewhere: in the project's own checkout it lands on the user's branch, with what the user has staged.
So a session writes the file back, before the next iteration and before the last save. It does that only in
the directory in which its agent began to work, which it knows by its inode and its birth time: another
directory at the path is somebody else's, and may have the same inode. A file system without birth times
proves nothing, and there nothing is written. What was in the place of the file is moved aside.

A directory in the place of the file is a repository of the agent's own, and may hold commits. It stays as it
is. The files beside it are saved all the same, because our git is told the repository by name.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import decode, pointer
from ralph_wrap.system import files
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import (
    describe,
    names_registration,
    read_mark,
    write_anchor,
)
from ralph_wrap.worktree.register import pointer_to


class GitFileChange(NamedTuple):
    """What was found in the place of a worktree's ``.git`` file.

    Attributes:
        found: what, in words.
        mended: the file is as it was before.

    """

    found: str
    mended: bool


def identity_of(path: Path) -> tuple[int, int]:
    """Return inode and birth time of a worktree's directory, by which it is known again; 0 if unknown."""
    try:
        return path.lstat().st_ino, files.birth_time(path)
    except OSError:
        return 0, 0


def is_same_directory(path: Path, inode: int, born: int) -> bool:
    """Return whether a directory is the one with this inode and birth time, and nothing is mounted there.

    Arguments:
        path: the directory.
        inode: of the worktree; 0 if it is unknown. A directory that is made later may get the same one.
        born: when the worktree's directory was made; 0 if that is unknown.

    """
    try:
        on_disk = path.lstat().st_dev == path.parent.stat().st_dev
    except OSError:
        return False
    return on_disk and inode != 0 and born != 0 and identity_of(path) == (inode, born)


def leads_elsewhere(path: Path, registration: Path) -> bool:
    """Return whether the ``.git`` file of a directory leads to another repository, and that exists."""
    found = pointer.real(path / ".git")
    if found.is_dir():
        return (path / ".git").is_symlink()
    try:
        content = decode(files.read(found, pointer.LONGEST))
    except OSError:
        return False
    named = pointer.git_dir_in(content, path)
    return pointer.target(content) is not None and named != registration and os.path.lexists(named)


def mend_git_file(worktree: LinkedWorktree) -> GitFileChange | None:
    """Write the ``.git`` file of a worktree back if it was deleted or replaced.

    Returns:
        What was found; ``None`` if the file is as it was made.

    Raises:
        OSError: the file cannot be written.

    """
    path, registration = worktree.path, worktree.registration
    git_file = path / ".git"
    if not path.is_symlink() and names_registration(path, registration):
        return None
    if not _is_at_its_place(worktree):
        return GitFileChange(describe(path), mended=False)
    if _is_directory(git_file):
        return GitFileChange(f"{git_file} is a repository of its own now", mended=False)
    found = f"{git_file} was replaced" if os.path.lexists(git_file) else f"{git_file} was deleted"
    found += _named_by(git_file)
    if os.path.lexists(git_file):
        aside = free_place(path)
        git_file.rename(aside)
        found += f" (that is {aside} now)"
    files.create(git_file, pointer_to(registration, path), sync=False)
    write_anchor(registration, path)
    return GitFileChange(found, mended=True)


def own_repository(worktree: LinkedWorktree) -> str | None:
    """Return why a worktree stays in which the agent has made a repository; ``None`` if it has made none."""
    git_file = worktree.path / ".git"
    if not _is_directory(git_file) or not _is_at_its_place(worktree):
        return None
    return f"{git_file} is a repository of its own now, which may hold commits"


def way_out(worktree: LinkedWorktree, agent_id: str) -> str | None:
    """Return the command after which such a worktree, or a moved one, can go; ``None`` for any other."""
    if moved := _moved_to(worktree):
        repair = command("git", "--git-dir", worktree.common_dir, "worktree", "repair", worktree.path)
        return f"{command('mv', '-T', moved, worktree.path)} && {repair} && ralph-wrap rm {agent_id}"
    if own_repository(worktree) is None:
        return None
    git_file, aside = worktree.path / ".git", free_place(worktree.path)
    return f"{shlex.join(('mv', os.fspath(git_file), os.fspath(aside)))} && ralph-wrap rm {agent_id}"


def _moved_to(worktree: LinkedWorktree) -> Path | None:
    """Return where ``git worktree move`` has moved a worktree; ``None`` if nothing says so."""
    try:
        moved = _named_directory(worktree.registration)
    except OSError:
        return None
    is_elsewhere = moved != worktree.path and not os.path.lexists(worktree.path)
    return moved if is_elsewhere and moved.is_dir() else None


def free_place(path: Path, suffix: str = ".git") -> Path:
    """Return a free path beside a worktree, for what is in its place or in that of its ``.git`` file."""
    aside, number = path.with_name(f"{path.name}{suffix}"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}-{number}{suffix}")
    return aside


def _is_at_its_place(worktree: LinkedWorktree) -> bool:
    """Return whether a directory is that of the worktree, although its ``.git`` file does not say so."""
    path, registration = worktree.path, worktree.registration
    try:
        return (
            not worktree.clone
            and is_same_directory(path, worktree.inode, worktree.born)
            and worktree.owner is not None
            and read_mark(registration) == worktree.owner.mark
            and _named_directory(registration) == path
        )
    except OSError:
        return False


def _named_directory(registration: Path) -> Path:
    """Return the directory that a registration names, even if its ``.git`` is a symlink now."""
    return pointer.real(pointer.git_file_of(registration).parent)


def _is_directory(git_file: Path) -> bool:
    return git_file.is_dir() and not git_file.is_symlink()


def _named_by(git_file: Path) -> str:
    """Return the repository that another ``.git`` file names, as a part of a sentence."""
    try:
        named = pointer.target(decode(files.read(git_file, pointer.LONGEST)))
    except OSError:
        return ""
    return f" (it named {named})" if named else ""
