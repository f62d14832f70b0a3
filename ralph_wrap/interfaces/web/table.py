"""The table of branches: which rows, in which order, on which page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralph_wrap.commands.review import Row

_ROWS = 200  # on a page: a browser lays out more of them noticeably slower

SORTS: dict[str, Callable[[Row], Any]] = {
    "branch": lambda row: row.branch,
    "agent": lambda row: row.agent or "",
    "ended": lambda row: row.ended or row.committed or "",
    "ahead": lambda row: -1 if row.ahead is None else row.ahead,
    "behind": lambda row: -1 if row.behind is None else row.behind,
    "lines": lambda row: (row.insertions or 0) + (row.deletions or 0),
    "conflicts": lambda row: (bool(row.conflicts_main), len(row.conflicts or ())),
    "overlaps": lambda row: len(row.overlaps or ()),
}
"""What a table can be sorted by, and how; behind ``-`` it is downwards."""

FILTERS: dict[str, Callable[[Row], bool]] = {
    "all": lambda _: True,
    "live": lambda row: row.verdict == "live",
    "unmerged": lambda row: not row.merged or row.saved_open,
    "conflicting": lambda row: bool(row.conflicts_main or row.conflicts),
    "saved": lambda row: bool(row.saved),
}
"""Which rows a table can be limited to."""


class Listing(NamedTuple):
    """What a table shows.

    Attributes:
        rows: on this page.
        found: how many there are on all pages.
        total: how many branches there are.
        page: the number of this one, from 0.
        pages: how many there are.
        sort: what the rows are sorted by.
        only: which rows they are.
        words: that are looked for in names.

    """

    rows: list[Row]
    found: int
    total: int
    page: int
    pages: int
    sort: str
    only: str
    words: str


def listing(rows: Sequence[Row], query: Mapping[str, str]) -> Listing:
    """Return what an address asks for; what it asks for by mistake is as if it had not."""
    sort, only, words = query.get("sort", ""), query.get("only", ""), query.get("find", "").strip()
    if sort.removeprefix("-") not in SORTS:
        sort = "-ended"
    if only not in FILTERS:
        only = "all"
    fitting = [row for row in rows if FILTERS[only](row)]
    if words:
        folded = words.casefold()
        fitting = [row for row in fitting if folded in f"{row.branch} {row.agent or ''}".casefold()]
    fitting.sort(key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    pages = max(1, -(-len(fitting) // _ROWS))
    wanted = query.get("page", "0")
    page = min(int(wanted), pages - 1) if wanted.isdecimal() and wanted.isascii() and len(wanted) < 6 else 0  # noqa: PLR2004
    shown = fitting[page * _ROWS : (page + 1) * _ROWS]
    return Listing(shown, len(fitting), len(rows), page, pages, sort, only, words)
