"""``ralph-wrap ps``."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap import liveness, user
from ralph_wrap.cli.boundary import answer, boundary
from ralph_wrap.cli.run import Directory

if TYPE_CHECKING:
    from ralph_wrap.inventory import Entry

_COLUMNS = ("ID", "VERDICT", "AGENT", "ITERATION", "AGE", "BRANCH", "AHEAD", "WORKSPACE")


def ps(
    project: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Finished sessions too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sessions of a project."""
    from ralph_wrap import inventory  # noqa: PLC0415 -- loads psutil
    from ralph_wrap.project import find  # noqa: PLC0415

    with boundary("ps", json=json):
        environ = (
            user.become_owner(project, os.environ, before=liveness.start_time)
            if project.is_dir()
            else os.environ
        )
        found = inventory.sessions(find(project, environ), environ, datetime.now(UTC), finished=every)
        if json:
            answer("ps", [dataclasses.asdict(entry) for entry in found])
        else:
            typer.echo(table(found))


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
