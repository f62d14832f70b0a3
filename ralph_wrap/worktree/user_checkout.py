"""A checkout that somebody works in: what stands in it where files are to come, and how those go back.

Nothing here overwrites a file that is neither what git knows it to be nor what came from us.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import merge as merging
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.text import named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.git.merge import PathChange

NAMED = 10
"""Files that a message names; the others are counted."""

_LARGEST = 1 << 30  # bytes of a file that is looked at


class UserCheckout(NamedTuple):
    """A checkout that somebody works in.

    Attributes:
        path: its top level.
        git_dir: where its index and its HEAD are.
        git: git in it, whatever its ``.git`` says by now.

    """

    path: Path
    git_dir: Path
    git: Git


def names(paths: Sequence[str]) -> str:
    """Return the first few of some paths, and how many more there are."""
    return named(paths, NAMED)


def in_the_way(top: Path, changes: Sequence[PathChange]) -> Iterator[str]:
    """Yield what git does not know in a checkout, and what comes would replace.

    A repository inside counts as a whole: git would delete a submodule, whatever it holds, to put a file in
    its place, and write into another worktree that stands below this one.

    Arguments:
        top: of a checkout in which nothing that git knows has changed.
        changes: what is to happen to it.

    """
    going = {change.path for change in changes if change.before is not None and not _is_full(top, change)}
    for change in changes:
        if change.path in going or change.after is None:
            continue
        obstacle = next(_obstacles(top, Path(change.path), going), None)
        if obstacle is not None:
            yield obstacle


def _obstacles(top: Path, path: Path, going: set[str]) -> Iterator[str]:
    for above in reversed(path.parents[:-1]):
        if os.fspath(above) in going:
            return
        if _is_no_directory(top / above) or os.path.lexists(top / above / ".git"):
            yield os.fspath(above)
            return
    place = top / path
    if place.is_dir() and not place.is_symlink():
        yield from (name for name in _within(top, place) if name not in going)
    elif os.path.lexists(place):
        yield os.fspath(path)


def _is_full(top: Path, change: PathChange) -> bool:
    """Tell whether a submodule that is no longer to be one holds anything."""
    place = top / change.path
    is_leaving = change.old_mode == merging.GITLINK != change.new_mode
    return is_leaving and not place.is_symlink() and place.is_dir() and any(place.iterdir())


def _within(top: Path, place: Path) -> Iterator[str]:
    """Yield what a directory holds that is none itself; links to one are none."""
    for directory, inner, held in os.walk(place):
        for name in (*held, *inner):
            path = Path(directory, name)
            if name in held or path.is_symlink():
                yield os.fspath(path.relative_to(top))


def put_back(
    checkout: UserCheckout,
    index: Path,
    old: str,
    new: str,
    *,
    partly: bool,
    but: Collection[str] = (),
) -> list[str]:
    """Have the files be what they were in one commit, wherever they have come to what they are in another.

    A file that is half-written counts as having come. The index of the checkout is not touched.

    Arguments:
        checkout: which one.
        index: where an index can be made for this.
        old: commit or tree that it goes back to.
        new: what was to come.
        partly: do so as well if at some of the paths there is something else, which stays.
        but: paths that do not count.

    Returns:
        Paths at which there is something else.

    Raises:
        GitError: something cannot be read or written.
        OSError: the same.

    """
    hidden = merging.left_out(checkout.git).union(but)
    changes = [change for change in merging.moved(checkout.git, old, new) if change.path not in hidden]
    known = apart(checkout, index)
    there = on_disk(checkout, known, old, changes)
    back = [change for change in changes if there[change.path] != change.before]
    foreign = [one.path for one in back if not _has_come(checkout, there[one.path], one)]
    clear = {change.path for change in changes if change.before is None and change.path not in foreign}
    foreign += [one.path for one in back if one.before and _is_blocked(checkout.path, one.path, clear)]
    if foreign and not partly:
        return foreign
    back = [change for change in back if change.path not in foreign]
    merging.read_into(known, old)
    for change in back:
        if change.before is None:
            _delete(checkout.path, change.path)
    merging.write_out(known, [change.path for change in back if change.before is not None])
    return foreign


def apart(checkout: UserCheckout, index: Path) -> Git:
    """Return git in a checkout with another index, for which nothing of it is left out."""
    return checkout.git._replace(
        index_file=index, config=(*checkout.git.config, "-c", "core.sparseCheckout=false")
    )


def on_disk(
    checkout: UserCheckout, known: Git, commit: str, changes: Sequence[PathChange]
) -> dict[str, tuple[str, str] | None]:
    """Return mode and object id of what stands where something changes; ``None`` for none, or a directory.

    Arguments:
        checkout: where.
        known: git in it with an index of its own, which is made anew.
        commit: by which it is told how files are stored.
        changes: paths that count.

    Raises:
        GitError: it cannot be told.

    """
    if known.index_file is not None:
        known.index_file.unlink(missing_ok=True)
    merging.read_into(known, commit)
    there = [change.path for change in changes if _is_file(checkout.path, change.path)]
    merging.store(known, there)
    staged = merging.staged(known)
    found: dict[str, tuple[str, str] | None] = {path: staged.get(path) for path in there}
    for change in changes:
        if merging.GITLINK in {change.old_mode, change.new_mode}:
            found[change.path] = change.before  # a repository of its own: not for us to move
    return {change.path: found.get(change.path) for change in changes}


def _is_file(top: Path, path: str) -> bool:
    place = top / path
    if any((top / above).is_symlink() for above in Path(path).parents[:-1]):
        return False
    return place.is_symlink() or place.is_file()


def _has_come(checkout: UserCheckout, there: tuple[str, str] | None, change: PathChange) -> bool:
    """Tell whether what is there was to come, or is what git had in hand when it was killed.

    Arguments:
        checkout: where.
        there: mode and object id, ``None`` for no file.
        change: what was to happen.

    """
    if there is None:
        return True
    if change.after is None:
        return False
    if there[1] == change.new and there[0][:3] == change.new_mode[:3]:  # some disks know nothing executable
        return True
    with contextlib.suppress(OSError, GitError):
        half = files.read(checkout.path / change.path, _LARGEST)
        return merging.content(checkout.git, change.new).startswith(half)
    return False


def _is_blocked(top: Path, path: str, clear: Collection[str]) -> bool:
    """Tell whether a file cannot be written without deleting another one that is not ours to delete.

    Arguments:
        top: of the checkout.
        path: of the file.
        clear: files that will be deleted before.

    """
    for above in Path(path).parents[:-1]:
        if _is_no_directory(top / above) and os.fspath(above) not in clear:
            return True
    return (top / path).is_dir() and not all(name in clear for name in _within(top, top / path))


def _is_no_directory(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def _delete(top: Path, path: str) -> None:
    """Delete a file, and the directories that are empty without it."""
    place = top / path
    if not _is_file(top, path):
        return
    place.unlink()
    for above in place.parents:
        if above == top:
            return
        try:
            above.rmdir()
        except OSError:
            return
