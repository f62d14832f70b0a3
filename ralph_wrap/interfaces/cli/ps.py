"""``ralph-wrap ps``."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, remark
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.system.log import on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.state.inventory import SessionEntry

_CLEAR = "\x1b[H\x1b[2J"  # ECMA-48: CUP, ED
_EVERY = 2.0  # seconds
_UNSTEADY: dict[str, Any] = dict.fromkeys(("age", "cpu_seconds", "cpu_percent", "memory_bytes", "processes"))
"""What always changes, so that a change of it is none."""
_LATER = ("psutil", "ralph_wrap.system.inotify")
"""Modules that are loaded once sessions are looked at."""
_ENDED = ("ENDED BY", "STATUS", "SAVED", "KEPT")


def ps(
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Finished sessions too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sessions of a project.

    AHEAD counts the commits on the branch since the session began.

    CPU and MEM are what the processes of a live session use together. CPU is the average since the session
    began, with --watch the use since the last look; 100% is one processor. MEM counts memory that processes
    share once on Linux. Both are unknown for a session of another container or user.
    """
    from ralph_wrap.state import inventory  # noqa: PLC0415 -- not for --help
    from ralph_wrap.state.project import find_project  # noqa: PLC0415

    with boundary("ps", json=json):
        environ = become_owner(project, on_stderr(os.environ), *_LATER)

        def look() -> list[SessionEntry]:
            return inventory.sessions(find_project(project, environ), datetime.now(UTC), finished=every)

        if watch:
            _watch(look, json=json, ended=every)
        else:
            _show(found := look(), json=json, ended=every)
            if not found and not json:
                remark(
                    "no sessions" if every else "no sessions that are not finished: --all lists the others"
                )


def _show(entries: list[SessionEntry], *, json: bool, ended: bool, before: str = "") -> None:
    if json:
        answer("ps", [entry._asdict() for entry in entries])
    else:
        typer.echo(before + table(entries, ended=ended, width=tables.of_terminal()))


def _watch(look: Callable[[], list[SessionEntry]], *, json: bool, ended: bool) -> None:
    """Show the sessions again and again: a table on a terminal in place, else when something has changed.

    Ctrl-C ends it, which Typer makes 130, and so does the end of whoever reads.
    """
    from ralph_wrap.system.inotify import DirectoryWatch  # noqa: PLC0415 -- not for one look

    in_place, shown = sys.stdout.isatty() and not json, None
    spent: dict[str | None, tuple[float, float]] = {}
    with DirectoryWatch(events=0) as clock:
        while True:
            entries = look()
            steady = [entry._replace(**_UNSTEADY) for entry in entries]
            if in_place or steady != shown:
                shown = steady
                current = [_since(spent.get(entry.session), entry) for entry in entries]
                _show(current, json=json, ended=ended, before=_CLEAR if in_place else "")
                sys.stdout.flush()
            now = time.monotonic()
            spent = {entry.session: (now, entry.cpu_seconds) for entry in entries if entry.cpu_seconds}
            if not clock.wait(_EVERY, reader=sys.stdout.fileno()):
                return


def _since(before: tuple[float, float] | None, entry: SessionEntry) -> SessionEntry:
    """Return a session with the processor time that it has used since the last look, not on average.

    Arguments:
        before: the time of that look, and the processor seconds of then; ``None`` if it was not seen.
        entry: of the session.

    """
    if before is None or entry.cpu_seconds is None:
        return entry
    at, seconds = before
    # Less than before is what an ended process has used that nobody waited for.
    used = max(0.0, entry.cpu_seconds - seconds) / (time.monotonic() - at)
    return entry._replace(cpu_percent=round(100 * used, 1))


def table(entries: list[SessionEntry], *, ended: bool = False, width: int | None = None) -> str:
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


def _size(amount: int) -> str:
    """Return an amount of memory in powers of 1,024, as top(1) shows it."""
    for unit, size in (("T", 1 << 40), ("G", 1 << 30)):
        if amount >= size:
            return f"{amount / size:.1f}{unit}"
    return f"{amount >> 20}M"


_CELLS: dict[str, Callable[[SessionEntry], object]] = {
    "ID": lambda entry: entry.id,
    "VERDICT": lambda entry: entry.verdict,
    "AGENT": lambda entry: entry.agent,
    "ITERATION": lambda entry: entry.iteration,
    "AGE": lambda entry: None if entry.age is None else _age(entry.age),
    "CPU": lambda entry: None if entry.cpu_percent is None else f"{entry.cpu_percent:.0f}%",
    "MEM": lambda entry: None if entry.memory_bytes is None else _size(entry.memory_bytes),
    "BRANCH": lambda entry: entry.branch,
    "AHEAD": lambda entry: entry.ahead,
    "ENDED BY": lambda entry: entry.ended_by,
    "STATUS": lambda entry: entry.exit_status,
    "SAVED": lambda entry: entry.saved,
    "WORKSPACE": lambda entry: entry.note or entry.workspace,
    "KEPT": lambda entry: entry.kept,
}
_GIVING_WAY = (("AGENT", 12),)
