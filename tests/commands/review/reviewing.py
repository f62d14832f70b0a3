"""Reviews, and their rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.commands import review
from ralph_wrap.state import project
from tests.support.repo import Repo

if TYPE_CHECKING:
    from ralph_wrap.commands.review import Review, ReviewRow


TEXT = "".join(f"line {number}\n" for number in range(30))


def look_at(repo: Repo) -> Review:
    """Review the branches."""
    return review.look(project.find_project(repo.path, os.environ))


def rows_of(repo: Repo) -> dict[str, ReviewRow]:
    """Return the rows of a review, by id."""
    return {row.id or row.branch: row for row in look_at(repo).rows}


def changed(number: int, words: str = "changed") -> str:
    """Return the text with one line changed."""
    return TEXT.replace(f"line {number}\n", f"{words} {number}\n")


def unmerged(repo: Repo) -> list[str]:
    """Return the branches that a review takes for not merged."""
    return [row.branch for row in review.limited(look_at(repo).rows, "unmerged")]


ROW = review.ReviewRow(
    id="a3f2",
    branch="ralph/a3f2",
    agent="claude",
    ended_by="promise",
    ended="2026-01-02T03:04:05+00:00",
    base="1" * 40,
    ahead=2,
    behind=1,
    files=3,
    insertions=30,
    deletions=4,
    saved=None,
    merged=False,
    conflicts_main=False,
    conflicts=(),
    overlaps=("09be",),
    recorded=True,
)
