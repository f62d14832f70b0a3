"""``ralph-wrap doctor``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.interfaces.cli.boundary import answer, boundary, refuse
from ralph_wrap.interfaces.cli.options import Directory

if TYPE_CHECKING:
    from ralph_wrap.commands.doctor import DoctorCheck


def doctor(
    project: Directory = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check what would go wrong for a session here, and how to correct it.

    The exit status is 0 if a session here would be isolated, and docker stop would not lose its work.
    """
    from ralph_wrap.commands.doctor import examine  # noqa: PLC0415 -- --help does not need it

    with boundary("doctor", json=json):
        checks, problem = examine(project, os.environ)
        data = [check._asdict() for check in checks]
        if not json:
            typer.echo("\n".join(map(_shown, checks)))
        elif problem is None:
            answer("doctor", data)
        else:
            refuse("doctor", problem, data=data)
        if problem is not None:
            raise SystemExit(problem.exit_code)


def _shown(check: DoctorCheck) -> str:
    lines = [f"{check.verdict:4}  {check.check}: {check.found}"]
    if not check.ok:
        lines += [f"      why: {check.why}", f"      fix: {check.fix}"]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)
