"""Text in aligned columns; some of them are cut on a narrow terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from ralph_wrap.system.text import cells

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "


def of_terminal() -> int | None:
    """Return the width of the terminal in columns; ``None`` without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    giving_way: Sequence[tuple[str, int]] = (),
) -> list[str]:
    """Return the lines of a table; the first one names its columns.

    Arguments:
        names: of the columns.
        rows: their cells, printable.
        width: of the terminal; ``None`` cuts nothing.
        giving_way: the columns to cut, in this order, if a line is too long, each with its least width. If
            that is not enough, lines are cut.

    """
    widths = [max(map(cells, column)) for column in zip(names, *rows, strict=True)]
    for name, least in giving_way if width is not None else ():
        number = names.index(name)
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - (width or 0)
        widths[number] = max(min(widths[number], least), widths[number] - max(0, excess))
    lines = [
        _GAP.join(_fitted(cell, room) for cell, room in zip(row, widths, strict=True)).rstrip()
        for row in (names, *rows)
    ]
    return lines if width is None else [_fitted(line, width).rstrip() for line in lines]


def _fitted(cell: str, width: int) -> str:
    if cells(cell) > width:
        cell = cell[:width]
        while cells(cell) >= width:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - cells(cell))
