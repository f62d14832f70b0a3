"""Run the session that a command line describes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ralph_wrap import config
from ralph_wrap.agents import with_agent
from ralph_wrap.commands.sweep import kept, resume_deletions, sweep
from ralph_wrap.config import Isolation, LogFormat, OnOrphans, Settings
from ralph_wrap.config.authority import any_approved, in_force
from ralph_wrap.errors import RalphError, StoppedError
from ralph_wrap.interfaces.cli.approval_prompt import can_ask, confirm, require, warn_of_programs
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary
from ralph_wrap.interfaces.cli.merge_on_complete import land
from ralph_wrap.session.session import Session
from ralph_wrap.state.project import Project, find_project, has_ownerless, has_trash
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.files import anonymous_file, write_all
from ralph_wrap.system.log import Commands, current, get_logger, on_stderr
from ralph_wrap.system.signals import SignalHandlers

log = get_logger()

_BEGUN = ("agent.started", "iteration.ended", "limit.waiting")
"""Events that show whether the agent could start.

The second one serves a session without a prompt, the last one a start that waits for hours.
"""

_SPENT = "agent.reported"
"""The event with the cost of an iteration, which a batch adds up."""

_CHOSEN = "log.chosen"
"""The event by which a background session reports the user's choice; its own log is always JSON."""

_ASKED = "consent.asked"
"""The event by which a background session has its caller ask a person; one byte is the answer."""

_YES, _NO = b"y", b"n"


def sweep_first(project: Project, settings: Settings, signals: SignalHandlers | None) -> None:
    """Finish dead sessions, if there are any. A session that cannot be finished does not stop the new one."""
    if not has_ownerless(project) and not has_trash(project):
        return
    swept = sweep(
        project,
        dry_run=settings.orphans is OnOrphans.REPORT,
        cancel=signals.cancel if signals is not None else NEVER,
    )
    if settings.orphans is OnOrphans.REPORT:
        resume_deletions(project)
    for entry in swept:
        if entry.action == "would finish":
            log.warning(
                "session.left", f"session {entry.session} is dead and was not finished", "ralph-wrap sweep"
            )
        if entry.verdict in {"foreign", "unknown"} and entry.action == "left":
            log.warning(
                "session.left",
                f"session {entry.session or entry.id} is {entry.verdict} and was not touched",
                entry.hint or "",
            )
    if error := kept(swept):
        log.warning("sweep.incomplete", error.message, error.hint)


def _warn(
    project: Project,
    settings: Settings,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
) -> None:
    """Warn about variables, options and a configuration of git without effect."""
    if project.git.safe and project.git.safe.off:
        warn_of_programs(project)
    for name, near in config.unknown_variables(environ).items():
        nearest = f"the nearest known name is {near}" if near else "ralph-wrap run --help lists the options"
        log.warning("variable.ignored", f"{name} is unknown and has no effect; {nearest}")
    if settings.preamble and settings.prompt is None and settings.prompt_file is None:
        log.warning("option.ignored", "--preamble: no effect without a prompt")
    if settings.isolation is Isolation.OFF:
        typed = [
            row.word for row in Settings.options if row.needs_worktree and flags.get(row.name) is not None
        ]
        if typed:
            names = ", ".join(typed)
            log.warning(
                "option.ignored", f"{names}: no effect with isolation off, where there is no worktree"
            )


def start(
    signals: SignalHandlers | None,
    directory: Path,
    flags: Mapping[str, str | None],
    command: tuple[str, ...],
    *,
    background: bool = False,
    detached: bool = False,
    answers: int | None = None,
    change: Callable[[Settings], Settings] = lambda settings: settings,
) -> int:
    """Run a session and return the exit status.

    Arguments:
        signals: entered handlers.
        directory: the project that the user names.
        flags: options as the user typed them; ``None`` for the others.
        command: the words after the options.
        background: the worktree of the session stays until ``ralph-wrap rm``.
        detached: the session has no terminal.
        answers: a descriptor with the answers of a person whom the caller asks for a detached session.
        change: adds to the settings what no option says.

    """
    messages = on_stderr(
        os.environ,
        also=(*_BEGUN, _CHOSEN, _SPENT, _ASKED) if detached else (),
        log_format="json" if detached else flags.get("log_format"),
    )
    with boundary("run", json=False, messages=messages):
        environ = become_owner(directory)
        project = find_project(directory, environ)
        typed = "ralph-wrap spawn" if background else "ralph-wrap run"
        loaded = config.load(directory, project.main, Path.cwd(), flags, environ, command)
        settings = change(with_agent(loaded, typed))
        if detached:
            log.event(_CHOSEN, format=settings.log_format.value)
        else:
            messages.as_json = settings.log_format is LogFormat.JSON
        if settings.stated or any_approved(environ):
            require(project, settings, in_force(settings), signals)
        sweep_first(project, settings, signals)
        _warn(project, settings, flags, environ)

        session = Session(
            settings._replace(background=background),
            environ=environ,
            project=project,
            signals=signals,
            whole_process=True,
            agrees=lambda lines, question: _agrees(lines, question, signals, answers),
        )
        with suppress(StoppedError), session:
            session.run()
        if settings.merge_on_complete and session.report and session.report.ended_by == "promise":
            land(project, settings, session.report, signals)
        return session.report.exit_status if session.report else RalphError.exit_code


def _agrees(lines: Sequence[str], question: str, signals: SignalHandlers | None, answers: int | None) -> bool:
    """Ask the user, if there is a terminal to ask on; a script goes on with the warning alone."""
    if answers is not None:
        log.event(_ASKED, lines=lines, question=question)
        return os.read(answers, 1) == _YES
    return not can_ask() or confirm(lines, question, signals)


def spawn(
    directory: Path,
    flags: Mapping[str, str | None],
    command: tuple[str, ...],
    *,
    background: bool = True,
    change: Callable[[Settings], Settings] = lambda settings: settings,
) -> int:
    """Run a session in the background, print its id once its agent runs, and return the exit status.

    If the session ends before that, this command has the session's errors and exit status.

    Arguments:
        directory: the project that the user names.
        flags: options as the user typed them; ``None`` for the others.
        command: the words after the options.
        background: see :func:`start`, like the next one.
        change: see there.

    """
    stdin = _job_typed_in() if "-" in {flags.get("job"), os.environ.get("RALPH_WRAP_JOB")} else None
    reading, writing = os.pipe()
    answers, answering = os.pipe() if can_ask() else (None, None)
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        if answering is not None:  # so that the end of our caller is the end of its answers
            os.close(answering)
        be_in_background(
            stdin,
            writing,
            lambda signals: start(
                *(signals, directory, flags, command),
                background=background,
                detached=True,
                answers=answers,
                change=change,
            ),
        )
    try:
        os.close(writing)
        if answers is not None:
            os.close(answers)
        messages = on_stderr(os.environ, log_format=flags.get("log_format"))
        with messages.in_use():
            agent_id, begun = _relay_until_begun(reading, answering)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    status = 0
    if not begun:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if agent_id and status == 0:
        print(agent_id)  # noqa: T201 -- the answer
    return status if status >= 0 else 128 - status


def _job_typed_in() -> int:
    """Return a descriptor with a copy of standard input, which ends before the background session starts."""
    descriptor = anonymous_file()
    write_all(descriptor, sys.stdin.buffer.read())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def be_in_background(stdin: int | None, stderr: int, run: Callable[[SignalHandlers], int]) -> NoReturn:
    """Run the session in a kernel session of its own: the end of a terminal does not reach it (setsid(2))."""
    status: Any = RalphError.exit_code
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, source in enumerate((nothing if stdin is None else stdin, nothing, stderr)):
            os.dup2(source, descriptor)
        os.close(nothing)
        os.close(stderr)
        with SignalHandlers() as signals:
            status = run(signals)
    except SystemExit as ended:
        status = ended.code
    finally:
        os._exit(status)  # the rest of the stack belongs to the parent


def _relay_until_begun(reading: int, answering: int | None) -> tuple[str | None, bool]:
    """Log the events of a session again; return its id, and whether its agent started before its end.

    Arguments:
        reading: a descriptor with its events.
        answering: a descriptor for the answers to its questions; ``None`` if nobody can be asked.

    """
    agent_id = None
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            try:
                event = json.loads(line)
                if event["event"] == _CHOSEN:
                    current().as_json = event["format"] == LogFormat.JSON.value
                    continue
                if event["event"] == _ASKED and answering is not None:
                    os.write(answering, _YES if confirm(event["lines"], event["question"], None) else _NO)
                    continue
                if event["event"] in _BEGUN[:2] and agent_id:
                    return agent_id, True
                log_event = {"warning": log.warning, "error": log.error}.get(event["level"], log.event)
                hint = {"hint": Commands(event["hint"])} if "hint" in event else {}
                log_event(event["event"], event["message"], **hint)
                if event["event"] in _BEGUN and agent_id:
                    return agent_id, True
                if event["event"] == "session.started":
                    agent_id = str(event["agent_id"])
            except (ValueError, TypeError, KeyError):
                os.write(2, line)  # a traceback
    return agent_id, False
