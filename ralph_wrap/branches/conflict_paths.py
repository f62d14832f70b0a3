"""In which paths and directories two changes can conflict: as files, or as renames into a directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


class ChangedPaths(NamedTuple):
    """The paths and directories in which a change can conflict with another one.

    Attributes:
        paths: the changed paths.
        grown: directories, at any depth, to which the change adds a file.
        left: directories, at any depth, from which the change deletes a file: this may be a rename.

    """

    paths: frozenset[str]
    grown: frozenset[str]
    left: frozenset[str]


class NumbersByPath(NamedTuple):
    """The numbers of many changes, by what they change.

    Attributes:
        paths: by path, the numbers of the changes that change it.
        grown: by directory, at any depth, the numbers of the changes that add a file to it.
        left: by directory, at any depth, the numbers of the changes that delete a file from it.

    """

    paths: Mapping[str, Sequence[int]]
    grown: Mapping[str, Sequence[int]]
    left: Mapping[str, Sequence[int]]


def conflict_paths(files: Mapping[str, str]) -> ChangedPaths:
    """Return the paths and directories in which a change can conflict with another one.

    Arguments:
        files: the change of each path, as git lists it without renames.

    """
    letters = {path: change.rpartition(" ")[2] for path, change in files.items()}
    return ChangedPaths(
        frozenset(files),
        frozenset(
            directory for path, letter in letters.items() if "A" in letter for directory in _above(path)
        ),
        frozenset(
            directory for path, letter in letters.items() if "D" in letter for directory in _above(path)
        ),
    )


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, without the top level: git never treats it as renamed."""
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        yield path


def meeting(
    first: tuple[First, First, First], second: tuple[Second, Second, Second]
) -> tuple[tuple[First, Second], ...]:
    """Return which parts of two sides to compare: a path in both parts of a pair can be a conflict.

    Arguments:
        first: ``paths``, ``grown`` and ``left``, as a class above has them.
        second: the same of the other side.

    """
    paths, grown, left = first
    other_paths, other_grown, other_left = second
    return (
        (paths, other_paths),
        (paths, other_grown),
        (grown, other_paths),
        (grown, other_left),
        (left, other_grown),
    )
