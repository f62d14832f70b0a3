"""Names of branches: what they are to be called after a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slugify import slugify

from ralph_wrap import git
from ralph_wrap.errors import UsageError

if TYPE_CHECKING:
    from ralph_wrap.git import Git

LONGEST = 50
"""Characters of a slug."""

_STOP_WORDS = (
    "a",
    "an",
    "the",
    "in",
    "on",
    "at",
    "to",
    "of",
    "for",
    "and",
    "or",
    "with",
    "from",
    "by",
    "into",
)
_LONGEST_PREFIX = 100  # bytes: with slug, number and git's ".lock" it is one name in a directory, of 255


def slug(task: str) -> str:
    """Return the words of a task that say something, joined by hyphens.

    The table for letters that are not ASCII is loaded when one is met.

    Arguments:
        task: what somebody wants done, in any language.

    Raises:
        UsageError: nothing is left.

    """
    made = slugify(task, max_length=LONGEST, word_boundary=True, save_order=True, stopwords=_STOP_WORDS)
    if not made:
        raise UsageError(
            f"task {task!r} has no word that a branch could be named after", "say what is to be done"
        )
    return made


def branch_name(where: Git, prefix: str, words: str) -> str:
    """Return what a branch is to be called, unless that is taken.

    Arguments:
        where: git, which has the last word on names.
        prefix: what it begins with.
        words: a :func:`slug`.

    Raises:
        UsageError: the prefix cannot be part of a name.

    """
    name = f"{prefix}-{words}"
    plain = (
        0 < len(prefix.encode(errors="surrogateescape")) <= _LONGEST_PREFIX
        and "/" not in prefix
        and prefix.isprintable()
        and not prefix.startswith((".", "-"))
        and not prefix.endswith((".", ".lock"))
    )
    if not plain or not git.is_branch_name(where, name):
        raise UsageError(
            f"--prefix {prefix!r} cannot begin the name of a branch and of a directory",
            f"letters, digits, '-', '_' and single '.', no '/', at most {_LONGEST_PREFIX}",
        )
    return name
