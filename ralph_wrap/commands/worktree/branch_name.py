"""Branch names that are made from tasks."""

from __future__ import annotations

from slugify import slugify

from ralph_wrap.errors import UsageError
from ralph_wrap.git import Git, is_branch_name

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
_LONGEST_PREFIX = 100  # bytes: prefix, slug, number and git's ".lock" are one file name, at most 255


def slug(task: str) -> str:
    """Return the words of a task without stop words, joined by hyphens.

    Arguments:
        task: the description of a task, in any language.

    Raises:
        UsageError: no word is left.

    """
    words = slugify(task, max_length=LONGEST, word_boundary=True, save_order=True, stopwords=_STOP_WORDS)
    if not words:
        raise UsageError(f"task {task!r} has no word for a branch name", "describe the task in words")
    return words


def branch_name(git: Git, prefix: str, words: str) -> str:
    """Return the wanted name of a branch, which may already exist.

    Arguments:
        git: git, which decides whether a name is valid.
        prefix: the start of the name.
        words: a :func:`slug`.

    Raises:
        UsageError: the prefix is invalid in a name.

    """
    name = f"{prefix}-{words}"
    plain = (
        0 < len(prefix.encode(errors="surrogateescape")) <= _LONGEST_PREFIX
        and "/" not in prefix
        and prefix.isprintable()
        and not prefix.startswith((".", "-"))
        and not prefix.endswith((".", ".lock"))
    )
    if not plain or not is_branch_name(git, name):
        raise UsageError(
            f"--prefix {prefix!r} is not valid in the name of a branch and of a directory",
            f"letters, digits, '-', '_' and single '.', no '/', at most {_LONGEST_PREFIX} bytes",
        )
    return name
