"""A session of a batch that runs: its process, what it reports, and what that means for its task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ralph_wrap.commands.batch.plan import OpenTask
from ralph_wrap.commands.batch.state import TaskState, is_done
from ralph_wrap.state.session_files import parsed
from ralph_wrap.state.wording import ending_in_words
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import shortened

log = get_logger()

_CHUNK = 1 << 16
_WIDTH = 59  # columns: the line, with "ralph-wrap: warning: ", fits into a terminal of 80
_LEAST = 16  # columns of a title
_FACTS = ("branch", "iterations", "commits", "cost_usd")
_SAID_OTHERWISE = {"session.released", "log.chosen"}


class Line(NamedTuple):
    """A line for people.

    Attributes:
        level: ``info``, ``warning`` or ``error``.
        event: its name.
        message: its text.
        hint: what the user can do; empty for nothing.
        facts: for JSON.

    """

    level: str
    event: str
    message: str
    hint: str = ""
    facts: tuple[tuple[str, Any], ...] = ()

    def print_on(self) -> None:
        """Print the line."""
        if self.level == "info":
            log.event(self.event, self.message, **dict(self.facts))
        else:
            (log.error if self.level == "error" else log.warning)(
                self.event, self.message, self.hint, **dict(self.facts)
            )


class BatchSession:
    """A session of a batch.

    Arguments:
        wanted: its task.
        pid: its process, our child.
        events: the pipe with its events.
        state: of its task.

    Attributes:
        id: its agent id; empty before it has one.
        state: of its task, as it is now.
        is_open: more events may come.
        limited_until: end of the usage limit that it has found, in seconds since the epoch; 0 for none.

    """

    def __init__(self, wanted: OpenTask, pid: int, events: int, state: TaskState) -> None:
        self.id = ""
        self.pid = pid
        self.events = events
        self.state = state._replace(ended_by="", exit_status=None)
        self.is_open = True
        self.limited_until = 0.0
        self._wanted = wanted
        self._rest = b""
        self._report: dict[str, Any] = {}
        self._status: int | None = None
        self._cost = 0.0

    @property
    def key(self) -> str:
        """The key of its task."""
        return self._wanted.task.key

    def look(self) -> bool:
        """Return whether its process has ended; after that, no event comes."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status is not None

    def wait(self) -> None:
        """Wait for the end of its process."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the events that have come."""
        while True:
            try:
                content = os.read(self.events, _CHUNK)
            except BlockingIOError:
                return
            if not content:
                self.is_open = False
                return
            lines, _, self._rest = (self._rest + content).rpartition(b"\n")
            yield from parsed(lines)

    def hear(self, event: dict[str, Any]) -> Line | None:
        """Take in an event, and return the line for people; ``None`` if they need none."""
        name, level = event.get("event"), event.get("level", "info")
        if name == "session.started":
            return self._started(event)
        if name == "session.released":
            self._report = event
        elif name == "agent.reported":
            self._cost += event.get("cost_usd") or 0.0
            self.state = self.state._replace(cost_usd=self.state.cost_usd + (event.get("cost_usd") or 0.0))
        elif name == "limit.waiting" or (name == "agent.limited" and not event.get("fallback")):
            self.limited_until = max(self.limited_until, event.get("until") or 0.0)
        message = event.get("message")
        if not isinstance(message, str) or name in _SAID_OTHERWISE:
            return None
        return Line(level, f"task.{name}", f"{self._name}: {message}", _hint(event), self._facts())

    def finished(self) -> Line:
        """Return the line about its end, and complete the state of its task."""
        report, status = self._report, self._status or 0
        ended_by = str(report.get("ended_by") or ("killed" if status < 0 else "not-started"))
        status = status if status >= 0 else 128 - status
        done = is_done(ended_by, status, report.get("iterations") or 0)
        self.state = self.state._replace(ended_by=ended_by, exit_status=status, done=done)
        how = "done" if done else ending_in_words(ended_by)
        count = report.get("iterations")
        after = f" after {count} iteration{'' if count == 1 else 's'}" if count else ""
        parts = [f"{self.id} {how}{after}".lstrip()]
        if self._cost:
            parts.append(f"${self._cost:.2f}")
        if not done:
            parts.append(f"exit status {status}")
        facts = {"ended_by": ended_by, "exit_status": status, "done": done}
        return Line(
            "info" if done else "warning",
            "task.ended",
            self._with_title(", ".join(parts)),
            facts=(*self._facts(), *facts.items(), *_of_report(report)),
        )

    def _with_title(self, words: str) -> str:
        return f"{words}: {shortened(self._wanted.task.title, max(_LEAST, _WIDTH - len(words) - 2))}"

    @property
    def _name(self) -> str:
        return self.id or shortened(self._wanted.task.title, _LEAST)

    def _started(self, event: dict[str, Any]) -> Line:
        self.id, session = str(event["agent_id"]), str(event["session_id"])
        self.state = self.state._replace(session=session, branch=event.get("branch") or "")
        verb = "goes on" if self._wanted.session else "started"
        return Line("info", "task.started", self._with_title(f"{self.id} {verb}"), facts=self._facts())

    def _facts(self) -> tuple[tuple[str, Any], ...]:
        return (("task", self.key), ("id", self.id or None), ("session", self.state.session or None))


def _hint(event: dict[str, Any]) -> str:
    hint = event.get("hint")
    return Commands(hint) if isinstance(hint, str) else ""


def _of_report(report: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, report.get(name)) for name in _FACTS)
