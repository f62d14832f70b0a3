"""``ralph-wrap ps``."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.cli.boundary import answer, become_owner, boundary
from ralph_wrap.cli.run import Directory
from ralph_wrap.log import on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.inventory import Entry

_CLEAR = "\x1b[H\x1b[2J"  # ECMA-48: CUP, ED
_EVERY = 2.0  # seconds
_COLUMNS = ("ID", "VERDICT", "AGENT", "ITERATION", "AGE", "BRANCH", "AHEAD", "WORKSPACE")


def ps(
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Finished sessions too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sessions of a project."""
    from ralph_wrap import inventory  # noqa: PLC0415 -- loads psutil
    from ralph_wrap.project import find  # noqa: PLC0415

    with boundary("ps", json=json):
        environ = become_owner(project, on_stderr(os.environ))

        def look() -> list[Entry]:
            return inventory.sessions(find(project, environ), environ, datetime.now(UTC), finished=every)

        show = _show_json if json else _show_table
        if watch:
            _watch(look, show)
        else:
            show(look())


def _watch(look: Callable[[], list[Entry]], show: Callable[[list[Entry]], None]) -> None:
    """Show the sessions again and again: on a terminal in place, elsewhere when something has changed.

    Ctrl-C ends it, which Typer makes 130, and so does the end of whoever reads.
    """
    from ralph_wrap.watch import Watch  # noqa: PLC0415 -- loads ctypes

    terminal, shown = sys.stdout.isatty(), None
    with Watch(events=0) as clock:
        while True:
            entries = look()
            ageless = [entry._replace(age=None) for entry in entries]
            if terminal or ageless != shown:
                shown = ageless
                typer.echo(_CLEAR if terminal else "", nl=False)
                show(entries)
                sys.stdout.flush()
            if not clock.wait(_EVERY, reader=sys.stdout.fileno()):
                return


def _show_json(entries: list[Entry]) -> None:
    answer("ps", [entry._asdict() for entry in entries])


def _show_table(entries: list[Entry]) -> None:
    typer.echo(table(entries))


def table(entries: list[Entry]) -> str:
    """Return the sessions as aligned columns."""
    rows = [_COLUMNS, *(_row(entry) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(entry: Entry) -> tuple[str, ...]:
    cells = (
        entry.id,
        entry.verdict,
        entry.agent,
        entry.iteration,
        None if entry.age is None else _age(entry.age),
        entry.branch,
        entry.ahead,
        entry.note or entry.workspace,
    )
    return tuple(
        "-" if cell is None else "".join(c if c.isprintable() else "?" for c in str(cell)) for cell in cells
    )


def _age(seconds: int) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
