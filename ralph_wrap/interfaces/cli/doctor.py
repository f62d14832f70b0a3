"""``ralph-wrap doctor``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from ralph_wrap.commands.doctor import DoctorCheck, examine
from ralph_wrap.interfaces.cli.boundary import answer, boundary, refuse
from ralph_wrap.interfaces.cli.options import Directory, Json

_COLOURS = {"FAIL": "\x1b[31m", "note": "\x1b[33m", "ok": "\x1b[32m"}
"""The verdicts in the order in which they are shown, each with its colour."""


def doctor(
    project: Directory = Path(),
    json: Json = False,
) -> None:
    """Check what would go wrong for a session here, and how to correct it.

    The exit status is 0 if a session here would be isolated, and docker stop would not lose its work. It is 1
    if a check fails.
    """
    with boundary("doctor", json=json, project=project):
        checks, problem = examine(project, os.environ)
        data = [check._asdict() for check in checks]
        if not json:
            colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
            order = sorted(checks, key=lambda check: [*_COLOURS].index(check.verdict))
            typer.echo("\n".join(shown(check, colour=colour) for check in order))
            typer.echo(counted(checks))
        elif problem is None:
            answer("doctor", data)
        else:
            refuse("doctor", problem, data=data)
        if problem is not None:
            raise SystemExit(problem.exit_code)


def shown(check: DoctorCheck, *, colour: bool) -> str:
    """Return the lines of a check."""
    lines = [f"{check.check}: {check.found}"]
    if not check.ok:
        lines += [f"      why: {check.why}", f"      fix: {check.fix}"]
    text = "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)
    word = f"{check.verdict:4}"
    return f"{_COLOURS[check.verdict]}{word}\x1b[0m  {text}" if colour else f"{word}  {text}"


def counted(checks: Sequence[DoctorCheck]) -> str:
    """Return the last line, with the number of checks of each kind."""
    count = Counter(check.verdict for check in checks)
    problems, notes = count["FAIL"], count["note"]
    return (
        f"{problems} problem{'' if problems == 1 else 's'}, {notes} note{'' if notes == 1 else 's'}, "
        f"{count['ok']} fine"
    )
