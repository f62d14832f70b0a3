"""``ralph-wrap audit``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import audit as use_case
from ralph_wrap.commands.audit import AuditRow, UndoneFinding
from ralph_wrap.errors import ProblemsError, RefusedError, UntrustedError, UsageError
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, print_lines
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.audit import look
from ralph_wrap.state.audit.look import Audit
from ralph_wrap.state.audit.warnings import log_problem
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import lines_of, one_line
from ralph_wrap.system.signals import SignalHandlers


def audit(
    directory: Directory = Path(),
    undo: Annotated[
        bool, typer.Option("--undo", help="Put back what this machine remembers from before.")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Accept what is there now.")] = False,
    json: Json = False,
) -> None:
    """Show what in this repository makes plain git run a program, read elsewhere or show something else.

    The exit status is 1 if you have not accepted all of it. What was there before the first session counts as
    accepted. An undo keeps the agent's version in .git/ralph-wrap-aside.
    """
    with boundary("audit", json=json, project=directory):
        if undo and accept:
            raise UsageError("--undo and --accept exclude each other", "give one of them")
        environ = become_owner(directory)
        project = use_case.project_of(directory, environ)
        if undo:
            log_problem(look.audit(project).problem)
            _show_undone(use_case.undo(project), json=json)
            return
        result = look.audit(project)
        log_problem(result.problem)
        if accept:
            _accept(project, result, use_case.rows(result))
            result = look.audit(project)
        _show(result, use_case.rows(result), json=json)


def _accept(project: Project, result: Audit, rows: Sequence[AuditRow]) -> None:
    """Accept all findings: on a terminal after the user's answer, elsewhere by the call alone.

    Raises:
        UntrustedError: the user answered no, or the caller is inside a session.

    """
    if not result.findings:
        return
    if can_ask():
        with SignalHandlers() as signals:
            if not confirm([*_lines(rows)], "accept all of this as it is now?", signals):
                raise UntrustedError("nothing was accepted", lines_of(result.way_out)[0])
    elif session := project.environ.get("RALPH_SESSION_ID"):
        raise UntrustedError(
            f"findings cannot be accepted inside session {session}, without a terminal",
            f"outside the session: ralph-wrap audit --accept -C {shlex.quote(os.fspath(project.root))}",
        )
    look.accept(project, result.findings)


def _show(result: Audit, rows: Sequence[AuditRow], *, json: bool) -> None:
    data = [row._asdict() for row in rows]
    error = None
    if result.findings:
        count = len(result.findings)
        error = ProblemsError(
            f"you have not accepted {count} of these findings",
            result.way_out,
        )
    if not json:
        print_lines([*_lines(rows)], "nothing found")
    conclude("audit", data, error, json=json)


def _lines(rows: Sequence[AuditRow]) -> Iterator[str]:
    for row in rows:
        yield one_line(f"{row.title}{' (accepted)' if row.accepted else ''}")
        yield f"  effect  {row.effect}"
        if row.since:
            yield one_line(f"  since   {row.since}")
        yield one_line(f"  remove  {row.remove}")


def _undone(entry: UndoneFinding) -> str:
    kept = f"  the other version is at {entry.aside}" if entry.aside else ""
    return one_line(f"{entry.title}  {entry.action}{kept}")


def _show_undone(undone: Sequence[UndoneFinding], *, json: bool) -> None:
    data = [entry._asdict() for entry in undone]
    left = [entry for entry in undone if entry.action == "left"]
    error = None
    if left:
        reasons = "; ".join(f"{entry.title}: {entry.reason}" for entry in left)
        error = RefusedError(f"not undone: {reasons}", "to see what is still there: ralph-wrap audit")
    if not json:
        print_lines([*map(_undone, undone)], "nothing to undo")
    conclude("audit", data, error, json=json)
