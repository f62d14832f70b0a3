"""``ralph-wrap ps``."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, remark
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.system.log import on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.state.inventory import Entry

_CLEAR = "\x1b[H\x1b[2J"  # ECMA-48: CUP, ED
_EVERY = 2.0  # seconds
_ENDED = ("ENDED BY", "STATUS", "SAVED", "KEPT")


def ps(
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Finished sessions too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sessions of a project.

    AHEAD counts the commits on the branch since the session began.
    """
    from ralph_wrap.state import inventory  # noqa: PLC0415 -- loads psutil
    from ralph_wrap.state.project import find  # noqa: PLC0415

    with boundary("ps", json=json):
        environ = become_owner(project, on_stderr(os.environ))

        def look() -> list[Entry]:
            return inventory.sessions(find(project, environ), environ, datetime.now(UTC), finished=every)

        if watch:
            _watch(look, json=json, ended=every)
        else:
            _show(found := look(), json=json, ended=every)
            if not found and not json:
                remark(
                    "no sessions" if every else "no sessions that are not finished: --all lists the others"
                )


def _show(entries: list[Entry], *, json: bool, ended: bool, before: str = "") -> None:
    if json:
        answer("ps", [entry._asdict() for entry in entries])
    else:
        typer.echo(before + table(entries, ended=ended, width=tables.of_terminal()))


def _watch(look: Callable[[], list[Entry]], *, json: bool, ended: bool) -> None:
    """Show the sessions again and again: a table on a terminal in place, else when something has changed.

    Ctrl-C ends it, which Typer makes 130, and so does the end of whoever reads.
    """
    from ralph_wrap.system.inotify import Watch  # noqa: PLC0415 -- not for one look

    in_place, shown = sys.stdout.isatty() and not json, None
    with Watch(events=0) as clock:
        while True:
            entries = look()
            ageless = [entry._replace(age=None) for entry in entries]
            if in_place or ageless != shown:
                shown = ageless
                _show(entries, json=json, ended=ended, before=_CLEAR if in_place else "")
                sys.stdout.flush()
            if not clock.wait(_EVERY, reader=sys.stdout.fileno()):
                return


def table(entries: list[Entry], *, ended: bool = False, width: int | None = None) -> str:
    """Return the sessions as aligned columns.

    Arguments:
        entries: the sessions.
        ended: with how they have ended.
        width: columns of the terminal, in which commands and what comes last give way; ``None`` for no limit.

    """
    names = [name for name in _CELLS if ended or name not in _ENDED]
    rows = [[_shown(_CELLS[name](entry)) for name in names] for entry in entries]
    return "\n".join(tables.aligned(names, rows, width, _GIVING_WAY))


def _shown(cell: object) -> str:
    return "-" if cell is None else "".join(c if c.isprintable() else "?" for c in str(cell))


def _age(seconds: int) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


_CELLS: dict[str, Callable[[Entry], object]] = {
    "ID": lambda entry: entry.id,
    "VERDICT": lambda entry: entry.verdict,
    "AGENT": lambda entry: entry.agent,
    "ITERATION": lambda entry: entry.iteration,
    "AGE": lambda entry: None if entry.age is None else _age(entry.age),
    "BRANCH": lambda entry: entry.branch,
    "AHEAD": lambda entry: entry.ahead,
    "ENDED BY": lambda entry: entry.ended_by,
    "STATUS": lambda entry: entry.exit_status,
    "SAVED": lambda entry: entry.saved,
    "WORKSPACE": lambda entry: entry.note or entry.workspace,
    "KEPT": lambda entry: entry.kept,
}
_GIVING_WAY = (("AGENT", 12),)
