"""The rows of the table of branches: selected, sorted and divided into pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ralph_wrap.commands.review import ReviewRow

_ROWS = 200  # rows of a page: browsers are noticeably slower with more

SORTS: dict[str, Callable[[ReviewRow], Any]] = {
    "title": lambda row: row.title.casefold(),
    "branch": lambda row: row.branch,
    "agent": lambda row: row.agent or "",
    "ended": lambda row: row.ended or row.committed or "",
    "ahead": lambda row: -1 if row.ahead is None else row.ahead,
    "behind": lambda row: -1 if row.behind is None else row.behind,
    "lines": lambda row: (row.insertions or 0) + (row.deletions or 0),
    "conflicts": lambda row: (bool(row.conflicts_main), len(row.conflicts or ())),
    "overlaps": lambda row: len(row.overlaps or ()),
}
"""The sort keys of the table, by name; ``-`` before a name reverses the order."""

FILTERS: dict[str, Callable[[ReviewRow], bool]] = {
    "all": lambda _: True,
    "live": lambda row: row.verdict == "live",
    "unmerged": lambda row: not row.merged or row.saved_open,
    "conflicting": lambda row: bool(row.conflicts_main or row.conflicts),
    "saved": lambda row: bool(row.saved),
}
"""The filters of the table, by name."""


class BranchList(NamedTuple):
    """The content of a table.

    Attributes:
        rows: the rows on this page.
        matching: the number of rows on all pages.
        total: the number of branches.
        page: the number of this page, from 0.
        pages: the number of pages.
        sort: the name of the sort key.
        only: the name of the filter.
        words: the search words for titles and names.

    """

    rows: list[ReviewRow]
    matching: int
    total: int
    page: int
    pages: int
    sort: str
    only: str
    words: str


def listing(rows: Sequence[ReviewRow], query: Mapping[str, str]) -> BranchList:
    """Return the rows for the parameters of an address; an invalid parameter counts as missing."""
    sort, only, words = query.get("sort", ""), query.get("only", ""), query.get("find", "").strip()
    if sort.removeprefix("-") not in SORTS:
        sort = "-ended"
    if only not in FILTERS:
        only = "all"
    fitting = [row for row in rows if FILTERS[only](row)]
    if words:
        folded = words.casefold()
        fitting = [
            row for row in fitting if folded in f"{row.title} {row.branch} {row.agent or ''}".casefold()
        ]
    fitting.sort(key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    pages = max(1, -(-len(fitting) // _ROWS))
    wanted = query.get("page", "0")
    page = min(int(wanted), pages - 1) if wanted.isdecimal() and wanted.isascii() and len(wanted) < 6 else 0  # noqa: PLR2004
    shown = fitting[page * _ROWS : (page + 1) * _ROWS]
    return BranchList(shown, len(fitting), len(rows), page, pages, sort, only, words)
