"""The difference between two trees as the pages show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ralph_wrap.branches.touches import ChangedFile, touches_of
from ralph_wrap.git import Git, patch
from ralph_wrap.git.patch import FileChange
from ralph_wrap.interfaces.web.highlight import Highlighter
from ralph_wrap.interfaces.web.side_by_side import SideBySidePart, side_by_side

_FILES = 300  # files of which a page shows at least the names
_OPENED = 30  # files that a page shows with their lines at first
_LINES = 1000  # changed lines in all these files together
_ROWS = 600  # rows of one file, until the user loads more
_BIGGEST = 8 << 20  # bytes of a file that is compared line by line
_NAMES = 100_000  # characters of all their names, which must fit on one command line
_CONTEXT = 3

_WORDS = {"A": "added", "D": "deleted", "M": "changed", "R": "renamed", "T": "changed its kind"}


class FileView(NamedTuple):
    """One file.

    Attributes:
        change: the change of the file.
        word: the kind of change in a word for people, and the kind of program that runs the file, if any.
        note: the reason why there are no lines.
        part: its first rows, ``None`` if there are none, or the page loads them later.
        old: object id of the tree or commit before.
        new: object id of the tree or commit after.

    """

    change: FileChange
    word: str
    note: str
    part: SideBySidePart | None
    old: str
    new: str


class DiffView(NamedTuple):
    """The differences between two trees.

    Attributes:
        files: the first changed files.
        omitted: the number of further changed files.
        added: the number of added lines in all files.
        deleted: the number of deleted lines in all files.
        old: object id.
        new: object id.

    """

    files: list[FileView]
    omitted: int
    added: int
    deleted: int
    old: str
    new: str


def diff(objects: Git, old: str, new: str, *, lines: int = _LINES, whole: bool = False) -> DiffView:
    """Return the differences between two trees or commits.

    Arguments:
        old: object id.
        new: object id.
        lines: the maximum number of changed lines to show at first.
        whole: the page cannot load more later, so only *lines* limits the number of files with lines.

    Raises:
        GitError: the repository lacks one of them.

    """
    changes = patch.changes(objects, old, new)
    kinds = _kinds(objects, changes, new)
    changes.sort(key=lambda change: change.path not in kinds)  # what other programs run comes first
    listed = changes[:_FILES]
    notes = _notes(objects, listed)
    opened = _opened(listed, notes, lines, len(listed) if whole else _OPENED)
    paths = [name for change in opened for name in (change.path, change.before) if name]
    hunks = patch.patches(objects, old, new, paths, _CONTEXT)
    highlighter = Highlighter()
    views = []
    for change in listed:
        part = None
        if change in opened:
            limit = lines * 2 if whole else _ROWS
            part = side_by_side(change.path, hunks.get(change.path, ()), highlighter, 0, limit)
        word = ", ".join(filter(None, (_WORDS.get(change.status, "changed"), kinds.get(change.path))))
        views.append(FileView(change, word, notes[change], part, old, new))
    added, deleted = (sum(getattr(change, name) or 0 for change in changes) for name in ("added", "deleted"))
    return DiffView(views, len(changes) - len(listed), added, deleted, old, new)


def _kinds(objects: Git, changes: Sequence[FileChange], new: str) -> dict[str, str]:
    """Return the kind of each file that other programs run, by path."""
    files = [ChangedFile(change.path, *change.modes, change.objects[1]) for change in changes]
    return {touch.path: touch.kind for touch in touches_of(objects, {"": files}, {"": new})[""]}


def one_file(objects: Git, old: str, new: str, paths: Sequence[str], begin: int) -> FileView | None:
    """Return the rows of one file from *begin* on; ``None`` if the file does not differ.

    Arguments:
        old: object id of a tree or commit.
        new: object id of a tree or commit.
        paths: its name, and its old name if it was renamed.
        begin: the first row.

    Raises:
        GitError: the repository lacks one of the trees.

    """
    changes = [change for change in patch.changes(objects, old, new, paths) if change.path == paths[0]]
    if not changes:
        return None
    change = changes[0]
    [note] = _notes(objects, [change]).values()
    part = None
    if not note:
        hunks = patch.patches(objects, old, new, paths, _CONTEXT)[change.path]
        part = side_by_side(change.path, hunks, Highlighter(), begin, _ROWS)
    return FileView(change, _WORDS.get(change.status, "changed"), note, part, old, new)


def _opened(
    changes: Sequence[FileChange], notes: dict[FileChange, str], lines: int, most: int
) -> frozenset[FileChange]:
    """Return the files that the page shows with lines at first: the first ones, within all limits."""
    opened: list[FileChange] = []
    names = _NAMES
    for change in changes:
        names -= len(change.path) + len(change.before or "")
        if not notes[change] and len(opened) < most and change.lines <= lines and names > 0:
            lines -= change.lines
            opened.append(change)
    return frozenset(opened)


def _notes(objects: Git, changes: Sequence[FileChange]) -> dict[FileChange, str]:
    """Return for each file why the page does not show its lines; empty if it does."""
    sizes = patch.sizes(objects, {oid for change in changes for oid in change.objects})
    return {change: _note(change, [sizes.get(oid) for oid in change.objects]) for change in changes}


def _note(change: FileChange, sizes: Sequence[int | None]) -> str:
    bytes_each = [size or 0 for size in sizes]
    if change.added is None:
        return f"binary, {_bytes(bytes_each[0])} before, {_bytes(bytes_each[1])} after"
    if max(bytes_each) > _BIGGEST:
        return f"too big to show here: {_bytes(max(bytes_each))}"
    if not change.lines and change.modes[0] != change.modes[1] and change.status not in "AD":
        return f"mode {change.modes[0]} → {change.modes[1]}"
    if not change.lines:
        return "no lines differ" if change.before else "empty"
    return ""


def _bytes(number: int) -> str:
    for unit, size in (("MB", 1_000_000), ("kB", 1000)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
