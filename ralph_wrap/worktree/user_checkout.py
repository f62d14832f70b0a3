"""A checkout that the user works in: find files in the way of a change, and undo a change.

This module overwrites only files that git has stored, and files that ralph-wrap wrote.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, merge
from ralph_wrap.git.index import GITLINK
from ralph_wrap.git.merge import PathChange
from ralph_wrap.system import files
from ralph_wrap.system.text import named

NAMED = 10
"""Maximum number of files that a message names; it counts the others."""

_LARGEST = 1 << 30  # bytes read of a file


class UserCheckout(NamedTuple):
    """A checkout that the user works in.

    Attributes:
        path: its top level.
        git_dir: the directory of its index and its HEAD.
        git: git in it, even if its ``.git`` file names another repository now.

    """

    path: Path
    git_dir: Path
    git: Git


def names(paths: Sequence[str]) -> str:
    """Return the first few of some paths, and the number of the others."""
    return named(paths, NAMED)


def in_the_way(top: Path, changes: Sequence[PathChange]) -> Iterator[str]:
    """Yield the paths in a checkout that git does not track, and that changes would replace.

    A repository inside counts as a whole. Git would delete a submodule with all its work to write a file at
    its path. Git would also write into another worktree below this one.

    Arguments:
        top: the top level of a checkout whose tracked files are unchanged.
        changes: the changes to make in it.

    """
    going = {change.path for change in changes if change.before is not None and not _is_full(top, change)}
    for change in changes:
        if change.path in going or change.after is None:
            continue
        obstacle = next(_obstacles(top, Path(change.path), going), None)
        if obstacle is not None:
            yield obstacle


def _obstacles(top: Path, path: Path, going: set[str]) -> Iterator[str]:
    for parent in reversed(path.parents[:-1]):
        if os.fspath(parent) in going:
            return
        if _is_no_directory(top / parent) or os.path.lexists(top / parent / ".git"):
            yield os.fspath(parent)
            return
    target = top / path
    if target.is_dir() and not target.is_symlink():
        yield from (name for name in _within(top, target) if name not in going)
    elif os.path.lexists(target):
        yield os.fspath(path)


def _is_full(top: Path, change: PathChange) -> bool:
    """Return whether a change removes a submodule whose directory is not empty."""
    directory = top / change.path
    is_leaving = change.old_mode == GITLINK != change.new_mode
    return is_leaving and not directory.is_symlink() and directory.is_dir() and any(directory.iterdir())


def _within(top: Path, directory: Path) -> Iterator[str]:
    """Yield the files below a directory, as paths from the top level; a link to a directory is a file."""
    for parent, directories, names in files.walk(directory):
        for name in (*names, *directories):
            path = Path(parent, name)
            if name in names or path.is_symlink():
                yield os.fspath(path.relative_to(top))


def restore_files(
    checkout: UserCheckout,
    index: Path,
    old: str,
    new: str,
    *,
    partly: bool,
    but: Collection[str] = (),
) -> list[str]:
    """Undo a change from one commit to another: restore the files that have their new content.

    A half-written file counts as changed. The index of the checkout is not touched.

    Arguments:
        index: path for a separate index.
        old: commit or tree with the content to restore.
        new: commit or tree with the content that the change wrote.
        partly: restore the other files even if some paths have a third content; these paths stay.
        but: paths to leave out.

    Returns:
        The paths with a third content.

    Raises:
        GitError: git cannot read or write a file.
        OSError: a file cannot be read or written.

    """
    hidden = merge.left_out(checkout.git).union(but)
    changes = [change for change in merge.moved(checkout.git, old, new) if change.path not in hidden]
    scratch = git_with_index(checkout, index)
    current = on_disk(checkout, scratch, old, changes)
    to_restore = [change for change in changes if current[change.path] != change.before]
    foreign = [change.path for change in to_restore if not _has_come(checkout, current[change.path], change)]
    clear = {change.path for change in changes if change.before is None and change.path not in foreign}
    foreign += [
        change.path
        for change in to_restore
        if change.before and _is_blocked(checkout.path, change.path, clear)
    ]
    if foreign and not partly:
        return foreign
    to_restore = [change for change in to_restore if change.path not in foreign]
    merge.read_into(scratch, old)
    for change in to_restore:
        if change.before is None:
            _delete(checkout.path, change.path)
    merge.write_out(scratch, [change.path for change in to_restore if change.before is not None])
    return foreign


def git_with_index(checkout: UserCheckout, index: Path) -> Git:
    """Return git in a checkout with a separate index, and without sparse checkout."""
    return checkout.git._replace(
        index_file=index, config=(*checkout.git.config, "-c", "core.sparseCheckout=false")
    )


def on_disk(
    checkout: UserCheckout, scratch: Git, commit: str, changes: Sequence[PathChange]
) -> dict[str, tuple[str, str] | None]:
    """Return mode and object id of the file at each changed path; ``None`` for no file, or a directory.

    Arguments:
        scratch: git in it with a separate index, which this function replaces.
        commit: a commit; its attributes decide how git stores the files.

    Raises:
        GitError: git cannot read a file.

    """
    if scratch.index_file is not None:
        scratch.index_file.unlink(missing_ok=True)
    merge.read_into(scratch, commit)
    present = [change.path for change in changes if _is_file(checkout.path, change.path)]
    merge.store(scratch, present)
    staged = merge.staged(scratch)
    found: dict[str, tuple[str, str] | None] = {path: staged.get(path) for path in present}
    for change in changes:
        if GITLINK in {change.old_mode, change.new_mode}:
            found[change.path] = change.before  # another repository, which we never move
    return {change.path: found.get(change.path) for change in changes}


def _is_file(top: Path, path: str) -> bool:
    target = top / path
    if any((top / parent).is_symlink() for parent in Path(path).parents[:-1]):
        return False
    return target.is_symlink() or target.is_file()


def _has_come(checkout: UserCheckout, current: tuple[str, str] | None, change: PathChange) -> bool:
    """Return whether a file has the new content of a change, or the beginning that a killed git wrote.

    Arguments:
        current: mode and object id of the file, ``None`` for no file.
        change: the change of the path.

    """
    if current is None:
        return True
    if change.after is None:
        return False
    if (
        current[1] == change.new and current[0][:3] == change.new_mode[:3]
    ):  # some disks have no executable files
        return True
    with contextlib.suppress(OSError, GitError):
        content = files.read(checkout.path / change.path, _LARGEST)
        return merge.content(checkout.git, change.new).startswith(content)
    return False


def _is_blocked(top: Path, path: str, clear: Collection[str]) -> bool:
    """Return whether a file that we must not delete is in the way of another file.

    Arguments:
        top: the top level of the checkout.
        path: the path of the file to write.
        clear: files that will be deleted first.

    """
    for parent in Path(path).parents[:-1]:
        if _is_no_directory(top / parent) and os.fspath(parent) not in clear:
            return True
    return (top / path).is_dir() and not all(name in clear for name in _within(top, top / path))


def _is_no_directory(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def _delete(top: Path, path: str) -> None:
    """Delete a file, and the directories that are empty without it."""
    target = top / path
    if not _is_file(top, path):
        return
    target.unlink()
    for directory in target.parents:
        if directory == top:
            return
        try:
            directory.rmdir()
        except OSError:
            return
