"""A file's differences as two columns: the old lines and the new lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from ralph_wrap.git.patch import Hunk
from ralph_wrap.interfaces.web.highlight import Highlighter


class SideBySideCell(NamedTuple):
    """One cell of a row.

    Attributes:
        number: the line number, ``None`` for an empty cell.
        kind: ``same``, ``del``, ``add`` or ``none``.
        text: the line; HTML after it got its colours.
        cut: the line is the last one of the file, and has no newline.

    """

    number: int | None
    kind: str
    text: str
    cut: bool = False


class SideBySideRow(NamedTuple):
    """One row: the old and the new line, or the heading of a hunk."""

    old: SideBySideCell
    new: SideBySideCell
    heading: str = ""


class SideBySidePart(NamedTuple):
    """Some rows of a file, and the number of the next row; ``None`` if there is none."""

    rows: list[SideBySideRow]
    more: int | None


_NOTHING = SideBySideCell(None, "none", "")


def side_by_side(
    path: str, hunks: Sequence[Hunk], highlighter: Highlighter, begin: int, limit: int
) -> SideBySidePart:
    """Return some rows of a file.

    Arguments:
        begin: the first row, counted from 0.
        limit: the maximum number of rows.

    """
    rows = list(islice(_rows(hunks), begin, begin + limit + 1))
    next_row = begin + limit if len(rows) > limit else None
    return SideBySidePart(list(_painted(path, rows[:limit], highlighter)), next_row)


def _rows(hunks: Sequence[Hunk]) -> Iterator[SideBySideRow]:
    for hunk in hunks:
        yield SideBySideRow(_NOTHING, _NOTHING, f"@@ -{hunk.old} +{hunk.new} @@ {hunk.section}".rstrip())
        yield from _paired(hunk)


def _paired(hunk: Hunk) -> Iterator[SideBySideRow]:
    """Yield a hunk's rows, with deleted lines beside the added lines that replace them."""
    old, new = hunk.old, hunk.new
    deleted: list[SideBySideCell] = []
    added: list[SideBySideCell] = []
    for line in hunk.lines:
        kind, text = line[:1], line[1:]
        if kind == "-":
            deleted.append(SideBySideCell(old, "del", text))
            old += 1
        elif kind == "+":
            added.append(SideBySideCell(new, "add", text))
            new += 1
        elif kind == "\\":
            if side := added or deleted:
                side[-1] = side[-1]._replace(cut=True)
        else:
            yield from _pairs(deleted, added)
            yield SideBySideRow(SideBySideCell(old, "same", text), SideBySideCell(new, "same", text))
            old, new = old + 1, new + 1
    yield from _pairs(deleted, added)


def _pairs(deleted: list[SideBySideCell], added: list[SideBySideCell]) -> Iterator[SideBySideRow]:
    for old, new in zip_longest(deleted, added, fillvalue=_NOTHING):
        yield SideBySideRow(old, new)
    deleted.clear()
    added.clear()


def _painted(path: str, rows: Sequence[SideBySideRow], highlighter: Highlighter) -> Iterator[SideBySideRow]:
    """Yield rows with colours; the lexer gets the consecutive lines of one side as one text."""
    begin = 0
    ends = [number for number, row in enumerate(rows) if row.heading] + [len(rows)]
    for end in ends:
        block = rows[begin:end]
        olds = iter(highlighter.paint(path, [row.old.text for row in block if row.old.number is not None]))
        news = iter(highlighter.paint(path, [row.new.text for row in block if row.new.number is not None]))
        for row in block:
            old, new = row.old, row.new
            yield SideBySideRow(
                old if old.number is None else old._replace(text=next(olds)),
                new if new.number is None else new._replace(text=next(news)),
            )
        if end < len(rows):
            yield rows[end]
        begin = end + 1
