"""Text in aligned columns; some of them are cut on a narrow terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap

from ralph_wrap.system.text import cells, shortened

_GAP = "  "


def of_terminal() -> int | None:
    """Return the width of the terminal in columns; ``None`` without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def shown(cell: object) -> str:
    """Return the text of a cell: printable letters in one line, a dash for what is not known."""
    if cell in (None, "", ()):
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, tuple):
        return ",".join(map(shown, cell))
    return "".join(letter if letter.isprintable() else "?" for letter in str(cell))


def age(seconds: float) -> str:
    """Return a time in its largest unit: days, hours, minutes or seconds."""
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def aligned(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    giving_way: Sequence[tuple[str, int]] = (),
    hidden_first: Sequence[str] = (),
    command: str = "",
) -> list[str]:
    """Return the lines of a table; the first one names its columns.

    Arguments:
        names: of the columns.
        rows: their cells, printable.
        width: of the terminal; ``None`` cuts nothing.
        giving_way: the columns to cut, in this order, if a line is too long, each with its least width.
        hidden_first: the columns to leave out, in this order, if that is not enough.
        command: the command that shows all columns; the last line names it and the missing columns.

    """
    widths = dict(
        zip(names, (max(map(cells, column)) for column in zip(names, *rows, strict=True)), strict=True)
    )
    known = giving_way if width is not None else ()
    least = {name: min(widths[name], narrow) for name, narrow in known if name in widths}
    hidden: list[str] = []
    for name in hidden_first if width is not None else ():
        if _excess(widths | {name: least[name] for name in least.keys() & widths.keys()}, width) > 0:
            hidden += [name] if widths.pop(name, None) is not None else []
    for name, narrow in least.items():
        if name in widths:
            widths[name] = max(narrow, widths[name] - max(0, _excess(widths, width)))
    lines = [
        _GAP.join(
            _fitted(cell, widths[name]) for name, cell in zip(names, row, strict=True) if name in widths
        ).rstrip()
        for row in (names, *rows)
    ]
    if width is None:
        return lines
    note = wrap(f"{command} also shows {', '.join(hidden)}", width) if hidden else []
    return [_fitted(line, width).rstrip() for line in (*lines, *note)]


def _excess(widths: Mapping[str, int], width: int | None) -> int:
    """Return the number of columns by which a line is too long."""
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - (width or 0)


def _fitted(cell: str, width: int) -> str:
    cell = shortened(cell, width)
    return cell + " " * (width - cells(cell))
