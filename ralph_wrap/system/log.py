"""Messages on stderr, and the event log.

An event is a noun and a past verb (``worktree.removed``) with facts. The session writes each event to its
``events.jsonl``. An event with a ``message`` is printed, too: as a sentence, or as the same line of JSON if
the user has chosen that.

Each module logs with ``log = get_logger()``, a logger of structlog. Its events go to the :class:`Log` in use:
the one of the command, or of the session that is open. That is a context variable, so a new thread has to run
in a copy of the context (``contextvars.copy_context``). ``structlog.configure`` is not called: it belongs to
the program that imports us.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import stat
import time
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, cast

import structlog
from structlog.typing import WrappedLogger

from ralph_wrap.system.long_lists import with_counts
from ralph_wrap.system.reopen import write_again
from ralph_wrap.system.status_line import StatusLine
from ralph_wrap.system.text import located

_Event = MutableMapping[str, Any]

_READER_TIMEOUT = 1000  # milliseconds to wait for a reader of our stderr that has stopped reading
_BLOCK = "_block"  # the key of a text in several lines for people; no line of JSON has it
FORMAT_VARIABLE = "RALPH_WRAP_LOG_FORMAT"
"""The variable of the option --log-format, which counts for each command."""

_ITERATION = re.compile(r"\biteration [0-9]+\b")
_MAX_EARLY_EVENTS = 1000  # events that wait for a file
_CHUNK = 4096  # bytes that fit into a pipe that poll() says has room (pipe(7): PIPE_BUF)


class EventLogger(structlog.BoundLoggerBase):
    """Logs events; what :func:`get_logger` returns."""

    def event(self, event: str, message: str = "", **facts: Any) -> None:
        """Log that something happened; print the message, if there is one."""
        self._proxy_to_logger("info", event, **_without_empty(message=message), **facts)

    def warning(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Log and print a warning, and what the user can do; one that comes again is only logged."""
        self._proxy_to_logger("warning", event, message=message, **_without_empty(hint=hint), **facts)

    def error(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Log and print the reason of an end."""
        self._proxy_to_logger("error", event, message=message, **_without_empty(hint=hint), **facts)

    def block(self, event: str, message: str, text: str, **facts: Any) -> None:
        """Log that something happened; people read several lines instead of one.

        Arguments:
            event: its name.
            message: in one line, for JSON.
            text: in several.
            facts: what belongs to it.

        """
        self._proxy_to_logger("info", event, message=message, **{_BLOCK: text}, **facts)


class Log:
    """The log of a session: its event log, and its messages.

    Neither a full disk, nor a reader that went away or stands still, ever stops the session.

    Arguments:
        descriptor: the messages go there; normally 2.
        colour: sentences may be coloured.
        terminal: people may see progress and colours.
        dumb: the terminal cannot remove a line.
        also: names of events that are printed as JSON even without a message.
        as_json: see below.

    Attributes:
        as_json: print lines of JSON instead of sentences.
        location: the words that commands in hints need, such as ``-C ../project``.
        last_line: the last line of the terminal; other code may write there, too.

    """

    def __init__(
        self,
        descriptor: int,
        *,
        terminal: bool,
        colour: bool,
        dumb: bool = False,
        also: tuple[str, ...] = (),
        as_json: bool = False,
    ) -> None:
        self.as_json = as_json
        self.location = ""
        self.last_line = StatusLine(descriptor, drawn=terminal and not dumb)
        self._descriptor = descriptor
        self._terminal = terminal
        self._colour = colour
        self._also = also
        self._is_dumb = dumb
        self._file = -1
        self._early: list[bytes] | None = []
        self._warned: dict[tuple[str, str], int] = {}  # how often each warning came
        self._identity: dict[str, str] = {}

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Have all events go to this log within the ``with`` block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    @contextlib.contextmanager
    def for_other_session(self, path: Path, **identity: str) -> Iterator[None]:
        """Have all events go to the event log of another session; their messages are printed as here.

        Arguments:
            path: its event log.
            identity: facts that belong to each event.

        """
        log = Log(
            self._descriptor,
            terminal=self._terminal,
            colour=self._colour,
            dumb=self._is_dumb,
            as_json=self.as_json,
        )
        log.location = self.location
        log.attach(path, **identity)
        try:
            with log.in_use():
                yield
        finally:
            log.close()

    def attach(self, path: Path, **identity: str) -> None:
        """Write events to a file from now on; the earlier events come first.

        Arguments:
            path: the event log.
            identity: facts that belong to each event.

        """
        self._identity = identity
        with contextlib.suppress(OSError):  # as with a disk that is full later
            self._file = os.open(
                path,
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                0o666,
            )
            if not stat.S_ISREG(os.fstat(self._file).st_mode):  # for example a FIFO, which an agent made
                self.close()
        early, self._early = self._early or [], None
        for line in early:
            self._append(line)

    def write_again(self, path: Path) -> None:
        """Write the event log anew if it was deleted, with all that it held.

        Raises:
            OSError: it cannot be written.

        """
        if self._file >= 0:
            write_again(self._file, path)

    def tell_repeated(self) -> None:
        """Print how often warnings came that were printed only once."""
        for (name, message), count in self._warned.items():
            if count > 1:
                facts = {"message": f"{count} times in all: {message}", "of": name, "count": count}
                self.take(_stamp_event(None, "info", {"event": "warning.repeated", **facts}))
        self._warned.clear()

    def rule(self, text: str) -> None:
        """Print a line that separates what stands above it from what follows; it is no event."""
        if not self.as_json:
            line = f"── {text} ──"
            words = f"\x1b[2m{line}\x1b[0m\n" if self._colour else f"{line}\n"
            self._print_words(words.encode(errors="backslashreplace"))

    @property
    def shows_progress(self) -> bool:
        """Whether a terminal shows progress."""
        return self._terminal and not self._is_dumb and not self.as_json

    def progress(self, text: str) -> None:
        """Show on the last line of a terminal how far long work is; an empty text clears it."""
        if self._terminal and not self.as_json:
            self.last_line.show(one_line(text))

    def window_title(self, text: str) -> None:
        """Set the title of the terminal's window; an empty text clears it."""
        if self.shows_progress:
            self.last_line.set_window_title(one_line(text))

    def notify(self, text: str, environ: Mapping[str, str]) -> None:
        """Have the terminal call a person, as far as it can: by its bell and by a notification.

        Arguments:
            text: what the notification says.
            environ: tells whether tmux is in between.

        """
        if self.shows_progress:
            self.last_line.notify(one_line(text), in_tmux=bool(environ.get("TMUX")))

    def close(self) -> None:
        """Close the event log."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def take(self, event: Mapping[str, Any]) -> None:
        """Write an event to the event log, and print its message."""
        first = {name: event[name] for name in ("at", "level", "event")}
        event = {**first, **self._identity, **event}
        if "hint" in event:
            event["hint"] = Commands.of(*(located(line, self.location) for line in lines_of(event["hint"])))
        line = _json(event)
        if self._early is None:
            self._append(line)
        elif len(self._early) < _MAX_EARLY_EVENTS:  # a server never has a file for them
            self._early.append(line)
        if self._is_printed(event) and not self._came_before(event):
            self._print(event)

    def _is_printed(self, event: Mapping[str, Any]) -> bool:
        return "message" in event or (self.as_json and event["event"] in self._also)

    def _append(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk, or there is no file: stderr gets the message
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                # The disk was full in the middle of a line, which another process may have written: a sweep
                # goes on with the event log of a dead session.
                line = b"\n" + line
            os.write(self._file, line)

    def _print(self, event: Mapping[str, Any]) -> None:
        if self.as_json:
            self._write(_json(event))
        elif text := event.get(_BLOCK):
            self._print_words(f"{text}\n".encode(errors="backslashreplace"))
        else:
            self._print_words(_sentence(event, colour=self._colour))

    def _came_before(self, event: Mapping[str, Any]) -> bool:
        """Count a warning, and return whether it was printed already, for another iteration perhaps."""
        if event["level"] != "warning":
            return False
        key = event["event"], _ITERATION.sub("an iteration", event["message"])
        self._warned[key] = self._warned.get(key, 0) + 1
        return self._warned[key] > 1

    def _print_words(self, words: bytes) -> None:
        words = self.last_line.begun() + words
        self._write(words)
        self.last_line.wrote(words)

    def _write(self, line: bytes) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):
            while line and poll.poll(_READER_TIMEOUT):
                line = line[os.write(self._descriptor, line[:_CHUNK]) :]


_current: ContextVar[Log | None] = ContextVar("_current", default=None)


def current(environ: Mapping[str, str] = os.environ) -> Log:
    """Return the log in use, or a new one on our stderr if there is none: a program imports us.

    Arguments:
        environ: may choose the format of a new one.

    """
    return _current.get() or on_stderr(environ)


def get_logger() -> EventLogger:
    """Return a logger, for a module. Its events go to the log that is in use when they happen."""
    return cast(
        "EventLogger",
        structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=(_stamp_event, _deliver_event),
            wrapper_class=EventLogger,
            context_class=dict,
            cache_logger_on_first_use=True,
        ),
    )


def traceback_of(error: BaseException) -> list[str]:
    """Return the traceback of an error, for an event."""
    return traceback.format_exception(error)


def on_stderr(
    environ: Mapping[str, str],
    *,
    also: tuple[str, ...] = (),
    log_format: str | None = None,
) -> Log:
    """Return a log that prints on our stderr, in colour on a terminal without NO_COLOR.

    Arguments:
        environ: our environment; it may choose the format.
        also: see :class:`Log`.
        log_format: the format that the user typed.

    """
    as_json = (log_format or environ.get(FORMAT_VARIABLE)) == "json"
    terminal = os.isatty(2)
    colour = terminal and not environ.get("NO_COLOR")
    dumb = environ.get("TERM", "dumb") == "dumb"  # as git(1) takes it
    return Log(2, terminal=terminal, colour=colour, dumb=dumb, also=also, as_json=as_json)


def _stamp_event(_logger: WrappedLogger, method: str, event: _Event) -> _Event:
    """Put time, level and name first."""
    seconds, microseconds = divmod(time.time_ns() // 1000, 10**6)
    at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{microseconds:06}Z"
    return {"at": at, "level": method, "event": event.pop("event"), **event}


def _deliver_event(_logger: WrappedLogger, _method: str, event: _Event) -> _Event:
    """Hand the event to the log in use."""
    current().take(event)
    return event


def _json(event: Mapping[str, Any]) -> bytes:
    facts = {name: fact for name, fact in event.items() if name != _BLOCK}
    return json.dumps(with_counts(facts), default=str).encode() + b"\n"


_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "hint": "\x1b[36m"}


def _sentence(event: Mapping[str, Any], *, colour: bool) -> bytes:
    level = event["level"]
    rows = [("" if level == "info" else level, event["message"])]
    if "hint" in event:
        rows += [("hint", line) for line in event["hint"].split("\n")]
    text = ""
    for label, words in rows:
        mark = f"{_COLOURS[label]}{label}:\x1b[0m " if colour and label else f"{label}: " if label else ""
        text += f"ralph-wrap: {mark}{one_line(words)}\n"
    return text.encode(errors="backslashreplace")


class Commands(str):
    """A hint of several lines, each with a command. In any other hint a newline is part of a file's name."""

    __slots__ = ()

    @classmethod
    def of(cls, *lines: str) -> Self:
        """Return the hint of these lines."""
        return cls("\n".join(map(one_line, lines)))


def lines_of(hint: str) -> list[str]:
    """Return the lines of a hint."""
    return hint.split("\n") if isinstance(hint, Commands) else [hint]


def one_line(words: str) -> str:
    """Return text without line ends and control characters: the name of a file can contain any."""
    if words.isprintable():
        return words
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)


def _without_empty(**facts: str) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}
