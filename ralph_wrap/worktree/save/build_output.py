"""Recognise the output of a build that git does not ignore: each snapshot and the saved work hold it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, decode, run_git
from ralph_wrap.git.status import STRICT

MOST_FILES = 5000
"""New files of one iteration that are not too many."""

MOST_BYTES = 200 * 10**6
"""Bytes in new files of one iteration that are not too many."""

_SHARE = 0.1  # the part of all that a directory has if it is named
_SPECIAL = re.compile(r"[*?\[\\]|^[!#]| $")  # gitignore(5): characters that mean something else


class BuildOutput(NamedTuple):
    """Many new files.

    Attributes:
        files: how many there are.
        size: of all of them, in bytes.
        places: the directories that have most of them and no tracked file, or the largest single files; the
            largest first. The path of a directory ends with a slash.

    """

    files: int
    size: int
    places: tuple[str, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """The lines of ``.gitignore`` at the top level that leave these places out."""
        return tuple(f"/{_SPECIAL.sub(_escaped, place)}" for place in self.places)


def find_build_output(git: Git, new: Sequence[str]) -> BuildOutput | None:
    """Return what the new files in a worktree are, if they are very many or very large.

    Arguments:
        git: git in the worktree, with an index that lacks these files.
        new: the paths of files that git neither tracks nor ignores.

    Returns:
        The files; ``None`` if they are few and small, or if git cannot list them.

    """
    sizes = {path: _size(git.cwd / path) for path in new}
    total = sum(sizes.values())
    if len(new) <= MOST_FILES and total <= MOST_BYTES:
        return None
    # Many files count by their number, a few large ones by their size.
    weights = dict.fromkeys(new, 1) if len(new) > MOST_FILES else sizes
    # A directory without tracked files is one path here: what a line of .gitignore can name.
    try:
        listed = run_git(
            git, "ls-files", "--others", "--directory", "--exclude-standard", "-z", config=STRICT
        )
    except GitError:  # it only informs, and no snapshot fails for it
        return None
    return BuildOutput(len(new), total, _largest(decode(listed.stdout).split("\0")[:-1], weights))


def _largest(places: Sequence[str], weights: Mapping[str, int]) -> tuple[str, ...]:
    known, found = {*places}, Counter[str]()
    for path, weight in weights.items():
        place, end = path, path.rfind("/")
        while place not in known and end >= 0:
            place, end = path[: end + 1], path.rfind("/", 0, end)
        found[place] += weight
    least = _SHARE * sum(weights.values())
    return tuple(place for place, weight in found.most_common() if weight >= least and place in known)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"
