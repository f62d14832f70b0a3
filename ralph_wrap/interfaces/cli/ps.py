"""``ralph-wrap ps``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ralph_wrap import branches
from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, open_project
from ralph_wrap.interfaces.cli.fetch import fetch_first
from ralph_wrap.interfaces.cli.options import Directory, FetchedFrom, Json
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import SessionEntry
from ralph_wrap.state.remote_claim import RUNNING
from ralph_wrap.state.wording import state_of
from ralph_wrap.system.polling import reader_stays

_CLEAR = "\x1b[H\x1b[2J"  # ECMA-48: CUP, ED
_EVERY = 2.0  # seconds
_UNSTEADY: dict[str, Any] = dict.fromkeys(("age", "cpu_seconds", "cpu_percent", "memory_bytes", "processes"))
"""Fields that always change; a change of them alone prints nothing."""
_NONE = "No session is running. To see finished ones: ralph-wrap ps --all"
_NONE_AT_ALL = "This project has no sessions yet. To start one: ralph-wrap run"


def ps(
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="List finished sessions, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat the list until Ctrl-C.")] = False,
    remote: FetchedFrom = None,
    json: Json = False,
) -> None:
    """List the sessions of a project that run, and those that have kept their worktree.

    With --remote, it also lists those that run on other machines.

    AHEAD counts the commits of the branch that the main branch lacks, as in the list of review.

    PORT is the first of ten ports for the servers that the agent starts: RALPH_PORT in its environment.

    CPU and MEM are the use of all processes of a live session together. CPU is the average since the session
    began, or with --watch the use since the last update; 100% is one processor. MEM counts memory that
    processes share once. Both are unknown for a session of another container or user.
    """
    with boundary("ps", json=json, project=project):
        environ = become_owner(project)
        fetched = fetch_first(open_project(project, environ), remote) if remote else []
        elsewhere = [entry.session for entry in fetched if entry.state == RUNNING]

        def read() -> list[SessionEntry]:
            now = datetime.now(UTC)
            found = open_project(project, environ)
            return inventory.sessions(
                found, now, finished=every, elsewhere=elsewhere, main=branches.tip_of_main(found)
            )

        if watch:
            _watch(read, json=json, ended=every)
        else:
            _show(read(), json=json, ended=every)


def _show(entries: list[SessionEntry], *, json: bool, ended: bool, before: str = "") -> None:
    if json:
        answer("ps", [entry._asdict() for entry in entries])
    elif entries:
        typer.echo(before + table(entries, width=tables.of_terminal(), ended=ended))
    else:
        typer.echo(before + (_NONE_AT_ALL if ended else _NONE))


def _watch(read: Callable[[], list[SessionEntry]], *, json: bool, ended: bool) -> None:
    """Print the sessions repeatedly: on a terminal in place, elsewhere after each change.

    Ctrl-C ends it (Typer makes the exit status 130), and so does the end of the reader of stdout.
    """
    in_place, shown = sys.stdout.isatty() and not json, None
    spent: dict[str | None, tuple[float, float]] = {}
    while True:
        entries = read()
        steady = [entry._replace(**_UNSTEADY) for entry in entries]
        if in_place or steady != shown:
            shown = steady
            current = [_since(spent.get(entry.session), entry) for entry in entries]
            _show(current, json=json, ended=ended, before=_CLEAR if in_place else "")
            sys.stdout.flush()
        now = time.monotonic()
        spent = {entry.session: (now, entry.cpu_seconds) for entry in entries if entry.cpu_seconds}
        if not reader_stays(sys.stdout.fileno(), _EVERY):
            return


def _since(last: tuple[float, float] | None, entry: SessionEntry) -> SessionEntry:
    """Return a session with its use of the processor since the last update, not on average.

    Arguments:
        last: time and processor seconds of the last update; ``None`` for a new session.
        entry: the session.

    """
    if last is None or entry.cpu_seconds is None:
        return entry
    time_before, seconds = last
    # The sum shrinks when a process ends that its parent did not wait for.
    used = max(0.0, entry.cpu_seconds - seconds) / (time.monotonic() - time_before)
    return entry._replace(cpu_percent=round(100 * used, 1))


def table(entries: list[SessionEntry], *, width: int | None = None, ended: bool = False) -> str:
    """Return the sessions as aligned columns.

    Arguments:
        entries: the sessions.
        width: columns of the terminal; long cells are cut, and columns left out; ``None`` shows all.
        ended: the user has asked for finished sessions, too.

    """
    names = [name for name, cell in _CELLS.items() if name not in _SELDOM or any(map(cell, entries))]
    rows = [[tables.shown(_CELLS[name](entry)) for name in names] for entry in entries]
    wider = f"ralph-wrap ps{' --all' if ended else ''} | less -S"
    return "\n".join(tables.aligned(names, rows, width, _GIVING_WAY, _HIDDEN_FIRST, wider))


def _size(amount: int) -> str:
    """Return an amount of memory in powers of 1,024, as top(1) shows it."""
    for unit, size in (("T", 1 << 40), ("G", 1 << 30)):
        if amount >= size:
            return f"{amount / size:.1f}{unit}"
    return f"{amount >> 20}M"


_CELLS: dict[str, Callable[[SessionEntry], object]] = {
    "TITLE": lambda entry: entry.title or entry.note,
    "ID": lambda entry: entry.id,
    "STATE": lambda entry: state_of(
        entry.verdict, entry.ended_by, entry.state, entry.waits_until, entry.waits_for_room
    ),
    "AGENT": lambda entry: f"{entry.agent_now} for {entry.agent}" if entry.agent_now else entry.agent,
    "ITERATION": lambda entry: entry.iteration,
    "AGE": lambda entry: None if entry.age is None else tables.age(entry.age),
    "CPU": lambda entry: None if entry.cpu_percent is None else f"{entry.cpu_percent:.0f}%",
    "MEM": lambda entry: None if entry.memory_bytes is None else _size(entry.memory_bytes),
    "BRANCH": lambda entry: entry.branch and entry.branch + " (not here)" * entry.branch_gone,
    "AHEAD": lambda entry: entry.ahead,
    "PORT": lambda entry: entry.port,
    "STATUS": lambda entry: None if entry.exit_status is None else str(entry.exit_status),
    "SAVED": lambda entry: entry.saved,
    "WORKSPACE": lambda entry: entry.workspace,
    "MESSAGES": lambda entry: entry.messages or None,
    "QUESTION": lambda entry: entry.question and " ".join(entry.question.split()),
    "KEPT": lambda entry: entry.kept,
    "NOTE": lambda entry: entry.note if entry.title else None,  # without a title, it stands in its place
}
_SELDOM = ("CPU", "MEM", "PORT", "STATUS", "SAVED", "MESSAGES", "QUESTION", "KEPT", "NOTE")
_GIVING_WAY = (("AGENT", 8), ("TITLE", 16), ("QUESTION", 24), ("KEPT", 16), ("NOTE", 24), ("STATE", 39))
_HIDDEN_FIRST = (
    "WORKSPACE",
    "MESSAGES",
    "STATUS",
    "PORT",
    "AHEAD",
    "AGENT",
    "BRANCH",
    "KEPT",
    "SAVED",
    "AGE",
    "ITERATION",
)
