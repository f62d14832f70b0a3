"""``ralph-wrap batch``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from ralph_wrap.commands.batch.plan import BatchTask, outcome, plan
from ralph_wrap.commands.batch.runner import BatchLimits, BatchRunner
from ralph_wrap.commands.batch.state import opened
from ralph_wrap.commands.review import ReviewRow, look
from ralph_wrap.config.options import BATCH_ROWS
from ralph_wrap.config.task_file import read_tasks
from ralph_wrap.errors import ProblemsError, StoppedError, UsageError
from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.batch_session import BatchLauncher
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, print_error, refuse
from ralph_wrap.interfaces.cli.options import Directory, flags, with_options
from ralph_wrap.interfaces.cli.review import colour_of, table
from ralph_wrap.session.notify import Notification
from ralph_wrap.state.project import Project
from ralph_wrap.state.report import BLOCKED, NOT_LOGGED_IN
from ralph_wrap.system.log import current, get_logger, on_stderr, one_line
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import located

log = get_logger()

_CUT_SHORT = 124  # as timeout(1)
_MAX_COST = "--batch-max-cost"
_NAMED = 10  # maximum number of sessions with saved work to name


@partial(with_options, without=("branch", "job", "name"), more=BATCH_ROWS)
def batch(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The tasks: a Markdown list with boxes, or JSON lines.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND…]", help="The agent's command, if --agent is not given."),
    ] = None,
    *,
    project: Directory = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")] = False,
    **typed: Any,
) -> None:
    """Do the tasks of a file, each in a session of its own, and at most N at once.

    A task is a line "- [ ] title" with indented detail below it. In the prompt, {task} stands for the task.
    If the batch was stopped or killed, type it again: no task is done twice or lost.
    """
    messages = on_stderr(os.environ, log_format=typed.get("log_format"))
    with boundary("batch", json=json, project=project, messages=messages), SignalHandlers() as signals:
        options, path = flags(typed), Path(file)
        limits = _limits(options)
        environ = become_owner(project)
        tasks = read_tasks(path)
        launcher = BatchLauncher(project, environ, options, tuple(command or ()), signals)
        launcher.check(tasks, limits)
        # The sessions have located the commands in their hints already.
        location, messages.location = messages.location, ""
        try:
            with opened(launcher.project, path, signals.cancel) as state:
                wanted = plan(tasks, state, launcher.project)
                log.event("batch.started", _beginning(file, len(tasks), len(wanted), limits.jobs))
                runner = BatchRunner(wanted, limits, state, partial(launcher.start, state=state), signals)
                runner.run()
                rows = outcome(tasks, state)
        except StoppedError as error:
            print_error(error)
            raise typer.Exit(128 + (signals.cancel.first or 0)) from None
        finally:
            messages.location = location
        status = _status(rows, runner.ended_by, signals.cancel.first)
        spent = state.spent if runner.ended_by == "max-cost" else 0.0
        _show(launcher.project, rows, status, _again(sys.argv[1:], limits.max_cost, spent), json=json)
        launcher.notify(_notification(file, rows, status, runner.ended_by))
    raise typer.Exit(status)


def _limits(options: dict[str, str | None]) -> BatchLimits:
    """Take the limits of the batch out of the typed options."""
    values = {}
    for row in BATCH_ROWS:
        text = options.pop(row.name)
        values[row.name.removeprefix("batch_")] = row.default if text is None else row.kind.read(text)
    if not values["jobs"]:
        raise UsageError("--jobs: at least one session must be allowed", "-j 1")
    return BatchLimits(**values)


def _beginning(file: str, count: int, wanted: int, jobs: int) -> str:
    tasks = f"{count} task{'' if count == 1 else 's'}"
    return f"{tasks} in {file}: {count - wanted} done, {wanted} to do, at most {jobs} at once"


def _status(rows: Sequence[BatchTask], ended_by: str, first_signal: int | None) -> int:
    """Return the exit status: 0 only if every task is done."""
    if ended_by == "signal":
        of_sessions = [row.exit_status or 0 for row in rows if row.ended_by == "signal"]
        return 128 + first_signal if first_signal else max(of_sessions)
    if all(row.done for row in rows):
        return 0
    if ended_by == NOT_LOGGED_IN:
        return max(row.exit_status or 0 for row in rows if row.ended_by == NOT_LOGGED_IN)
    return _CUT_SHORT if ended_by else ProblemsError.exit_code


def _notification(file: str, rows: Sequence[BatchTask], status: int, ended_by: str) -> Notification:
    """Return what a person is told of the end of a batch."""
    if not status:
        event = "done"
    elif ended_by and ended_by != NOT_LOGGED_IN:
        event = "interrupted" if ended_by == "signal" else "limit"
    else:
        event = BLOCKED if any(row.ended_by == BLOCKED for row in rows) else "failed"
    title = f"batch {one_line(file)}"
    done = sum(row.done for row in rows)
    content = dumps([row._asdict() for row in rows]).encode()
    return Notification(event, title, f"{title}: {event}, {done} of {len(rows)} tasks are done", content)


def _again(typed: Sequence[str], limit: float, spent: float) -> str:
    """Return the command that goes on with the batch.

    Arguments:
        typed: the command that was typed, without the program's name.
        limit: the limit of cost, which counts all starts of the batch.
        spent: what was spent when it was reached: as much again may be spent; 0 if it was not reached.

    """
    words = ["ralph-wrap", *typed]
    higher = f"{spent + limit:.2f}"
    for number, word in enumerate(words[: words.index("--")] if "--" in words else words):
        if spent and word == _MAX_COST:
            words[number + 1] = higher
        elif spent and word.startswith(f"{_MAX_COST}="):
            words[number] = f"{_MAX_COST}={higher}"
    return shlex.join(words)


def _show(project: Project, rows: Sequence[BatchTask], status: int, again: str, *, json: bool) -> None:
    """Print what became of the tasks: the table of ``review``, and what to type.

    Arguments:
        again: the command that goes on with the tasks that are left.

    """
    left = sum(not row.done for row in rows)
    if json and status:
        problem = ProblemsError(f"{left} of {len(rows)} tasks are not done", f"to go on: {again}")
        refuse("batch", problem, data=[row._asdict() for row in rows])
    elif json:
        answer("batch", [row._asdict() for row in rows])
    else:
        reviewed = _print_review(project, rows)
        message = f"batch ended: {len(rows) - left} of {len(rows)} tasks are done (exit status {status})"
        commands = [located(command, current().location) for command in _next(rows, reviewed)]
        commands += [again] if left else []
        labels = ("next", *("" for _ in commands))
        lines = (f"  {label:<10} {one_line(text)}" for label, text in zip(labels, commands, strict=False))
        log.block("batch.ended", message, "\n".join((f"ralph-wrap: {message}", *lines)))


def _print_review(project: Project, rows: Sequence[BatchTask]) -> list[ReviewRow]:
    """Print the table of ``review`` for the sessions of the batch, and return its rows."""
    branches = {row.branch for row in rows}
    found = [row for row in look(project).rows if row.branch in branches]
    if found:
        now, width = datetime.now(UTC), tables.of_terminal()
        typer.echo(table(found, now, width=width, colour=colour_of(project.environ)))
    return found


def _next(rows: Sequence[BatchTask], reviewed: Sequence[ReviewRow]) -> Iterator[str]:
    """Yield the commands to type for the tasks that are done."""
    done = {row.branch for row in rows if row.done}
    to_land = [row.id for row in reviewed if row.branch in done and row.id and row.ahead and not row.merged]
    saved = [row.id for row in reviewed if row.branch in done and row.id and row.saved]
    if to_land:
        yield f"ralph-wrap diff {to_land[-1]}"
        yield f"ralph-wrap merge {' '.join(reversed(to_land))}"
    yield from (f"ralph-wrap apply {agent_id}" for agent_id in saved[:_NAMED])
