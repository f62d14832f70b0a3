"""Tell a person of the end of a session or a batch, and of what happens before: by the ``notify`` command.

It gets the report on standard input and a sentence in its environment. It has ten seconds. Whatever it does,
the session goes on, or ends, as it would have done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ralph_wrap.config import NotifySettings
from ralph_wrap.errors import GitError
from ralph_wrap.git import environment_without_repository
from ralph_wrap.state.project import Project
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.report import BLOCKED, NOT_LOGGED_IN, SessionReport, agents_in_words
from ralph_wrap.state.wording import ending_in_words
from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.log import get_logger, one_line
from ralph_wrap.system.shell_command import ShellCommand, run_shell
from ralph_wrap.system.text import readable, shortened

log = get_logger()

_TIMEOUT = 10.0  # seconds
_GRACE = 1.0  # seconds between TERM and KILL
_TITLE = 60  # columns
_QUESTION = 300  # columns
_SHOWN = 4096  # bytes of the command's output that are logged


LEAKED = "something has changed outside the worktree"
"""What a person is told of the first change outside."""


class Notification(NamedTuple):
    """What a person is told.

    Attributes:
        event: one of ``config.parsers.NOTIFIED``.
        title: of the session.
        summary: one sentence.
        content: standard input of the command.
        variables: further variables of the command.

    """

    event: str
    title: str
    summary: str
    content: bytes
    variables: Mapping[str, str] = MappingProxyType({})


_EVENTS = {
    "promise": "done",
    BLOCKED: BLOCKED,
    "max-stalls": "stuck",
    **dict.fromkeys(("max-failures", "error", "not-started", NOT_LOGGED_IN), "failed"),
    **dict.fromkeys(("max-iterations", "max-time", "max-cost", "max-tokens", "usage-limit"), "limit"),
    "leak": "leak",
    **dict.fromkeys(("signal", "stop"), "interrupted"),
    "killed": "recovered",
}


def event_of(ended_by: str) -> str:
    """Return the event that an end is."""
    return _EVENTS.get(ended_by, "failed")


def title_of(session: SessionReport | SessionRecord) -> str:
    """Return what people call a session, in one line."""
    return shortened(one_line(session.title or session.agent), _TITLE)


def summary_of(report: SessionReport) -> str:
    """Return one sentence about the end of a session."""
    parts = [ending_in_words(report.ended_by)]
    if report.iterations:
        parts.append(f"after {report.iterations} iteration{'' if report.iterations == 1 else 's'}")
    words = " ".join(parts)
    if report.branch and report.commits:
        words += f", {report.commits} commit{'' if report.commits == 1 else 's'} on {report.branch}"
    if len(report.agents or ()) > 1:
        words += f" ({agents_in_words(report)})"
    if report.question:
        words += f": {shortened(one_line(' '.join(report.question.split())), _QUESTION)}"
    if report.ended_by == NOT_LOGGED_IN and report.error:
        words += f": {shortened(one_line(report.error), _QUESTION)}"
    return f"{title_of(report)}: {words}"


def notification_of(report: SessionReport) -> Notification:
    """Return what a person is told of the end of a session."""
    return Notification(
        event_of(report.ended_by),
        title_of(report),
        summary_of(report),
        report.to_json(),
        {"RALPH_AGENT_ID": report.id, "RALPH_BRANCH": report.branch or ""},
    )


def notification_while(record: SessionRecord, event: str, words: str) -> Notification:
    """Return what a person is told while a session runs; there is no report yet, so its record is the input.

    Arguments:
        event: one of ``config.parsers.NOTIFIED``.
        words: a sentence without the title.

    """
    title = title_of(record)
    names = {"RALPH_AGENT_ID": record.id, "RALPH_BRANCH": record.branch or ""}
    return Notification(event, title, f"{title}: {words}", record.to_json(), names)


def notify(
    settings: NotifySettings,
    project: Project,
    told: Notification,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Run the command of the project, if it wants to hear of this event.

    Arguments:
        is_over: there is no time for it; it is ended.

    """
    event = told.event
    if not settings.notify or (settings.notify_on and event not in settings.notify_on):
        return
    if is_over():
        log.event("notify.skipped", reason="there was no time", notified=event)
        return
    output = files.anonymous_file()
    try:
        command = ShellCommand(
            "notify",
            settings.notify,
            project.main,
            _environment(project, told),
            _TIMEOUT,
            stdin=told.content,
            output=output,
            grace=_GRACE,
        )
        status = run_shell(command, is_over, NEVER)
        said = " ".join(readable(os.pread(output, _SHOWN, 0).decode("utf-8", "replace")).split())
    except (OSError, GitError) as error:
        log.warning("notify.failed", f"notify cannot be run: {error}", notified=event)
        return
    finally:
        os.close(output)
    log.event("notify.ended", notified=event, status=status, output=said or None)
    if status != 0:
        how = f"was not done after {_TIMEOUT:g} s" if status is None else f"ended with status {status}"
        log.warning("notify.failed", f"notify {how}{f': {said}' if said else ''}", notified=event)


def _environment(project: Project, told: Notification) -> dict[str, str]:
    environ = environment_without_repository(project.environ)
    return {
        **{name: value for name, value in environ.items() if not name.startswith("RALPH_")},
        "RALPH_EVENT": told.event,
        "RALPH_TITLE": told.title,
        "RALPH_SUMMARY": told.summary,
        "RALPH_PROJECT": os.fspath(project.main),
        **told.variables,
    }
