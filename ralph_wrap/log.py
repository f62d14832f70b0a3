"""Narration on stderr and the event log.

An event is a noun and a past verb (``worktree.removed``) with facts. All of them go to the session's
``events.jsonl``; those with a ``message`` are narrated as well: on a terminal as a sentence, by structlog,
else as the same line of JSON, which needs no more than the event log does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from pathlib import Path

    from structlog.typing import BindableLogger, WrappedLogger

_BLOCKED_READER = 1000  # milliseconds to wait for somebody who has stopped reading our stderr
_CHUNK = 4096  # bytes that fit into a pipe that poll() says has room (pipe(7): PIPE_BUF)


class Log:
    """Where a session tells what happens.

    Neither a full disk, nor a reader that went away or stands still, ever stops the teller.

    Arguments:
        descriptor: where narration goes; normally 2.
        colour: sentences may be coloured.
        terminal: narrate in sentences.
        spared: modules that structlog loads only if they are there, and that are not for this process.
        also: names of events that are narrated without a message, too, unless on a terminal.

    """

    def __init__(
        self,
        descriptor: int,
        *,
        terminal: bool,
        colour: bool,
        spared: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
    ) -> None:
        self._descriptor = descriptor
        self._terminal = terminal
        self._colour = colour
        self._spared = spared
        self._also = () if terminal else also
        self._in_progress = False
        self._beside = -1
        self._seen = 0
        self._file = -1
        self._early: list[bytes] | None = []
        self._torn = False
        self._identity: Mapping[str, str] = {}
        self._narrator: BindableLogger | None = None

    def load(self) -> None:
        """Load what narration needs: as slow as several git commands, so do it while waiting for one."""
        if self._terminal and self._narrator is None:
            with _without(*self._spared):
                import structlog  # noqa: PLC0415 -- see above
            self._narrator = structlog.wrap_logger(structlog.ReturnLogger(), processors=[self._narrate])

    def attach(self, path: Path, **identity: str) -> None:
        """Write events to a file from now on, those told already first.

        Arguments:
            path: the event log.
            identity: facts that belong to each event.

        """
        self._identity = identity
        with contextlib.suppress(OSError):  # as with a disk that is full later
            self._file = os.open(
                path,
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                0o666,
            )
            if not stat.S_ISREG(os.fstat(self._file).st_mode):  # a FIFO, say, that somebody put there
                self.close()
        early, self._early = self._early or [], None
        for line in early:
            self._append(line)

    def share_terminal(self, output: Path) -> None:
        """Begin on a new line from now on, if what somebody else prints has not ended its last one.

        Arguments:
            output: what that is, as far as it has come; it is shown on our stdout and stderr.

        """
        if self._terminal and _is_same_terminal(1, self._descriptor):
            with contextlib.suppress(OSError):
                self._beside = os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def event(self, event: str, message: str = "", **facts: Any) -> None:
        """Tell that something happened; with a message, also to whoever watches."""
        self._tell("info", event, "", **_without_empty(message=message), **facts)

    def warning(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Tell what somebody should know, and what to do about it."""
        self._tell("warning", event, "", message=message, **_without_empty(hint=hint), **facts)

    def error(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Tell why this ends."""
        self._tell("error", event, "", message=message, **_without_empty(hint=hint), **facts)

    def block(self, event: str, message: str, text: str, **facts: Any) -> None:
        """Tell that something happened; on a terminal by several lines instead of one.

        Arguments:
            event: its name.
            message: in one line, for narration that is no terminal.
            text: in several.
            facts: what belongs to it.

        """
        self._tell("info", event, text, message=message, **facts)

    @property
    def is_terminal(self) -> bool:
        """Whether somebody sees progress."""
        return self._terminal

    def progress(self, text: str) -> None:
        """Show on one line of a terminal how far long work is; an empty text clears it."""
        if self._terminal and (text or self._in_progress):
            self._in_progress = bool(text)
            self._write(f"\r{one_line(text)}\x1b[K".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Close the event log."""
        for descriptor in (self._file, self._beside):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._beside = -1

    def _tell(self, level: str, event: str, text: str, /, **facts: Any) -> None:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        told = {"at": at, "level": level, "event": event, **self._identity, **facts}
        line = json.dumps(told, default=str).encode() + b"\n"
        if self._early is None:
            self._append(line)
        else:
            self._early.append(line)
        if "message" in facts or event in self._also:
            self.load()
            if self._narrator is None:
                self._write(line)
            else:
                getattr(self._narrator, level)(text=text, **told)

    def _append(self, line: bytes) -> None:
        if self._torn:  # the disk was full in the middle of the last one
            line = b"\n" + line
        try:
            self._torn = os.write(self._file, line) < len(line)
        except OSError:  # still full, or there is no file: the narration tells it all the same
            return

    def _narrate(
        self, _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        self.progress("")
        text = f"{event['text']}\n".encode(errors="backslashreplace")
        self._write(self._line_end() + (text if event["text"] else _sentence(event, colour=self._colour)))
        return event

    def _line_end(self) -> bytes:
        """Return what ends the line that others have begun on our terminal."""
        if self._beside < 0:
            return b""
        with contextlib.suppress(OSError):
            seen, self._seen = self._seen, os.fstat(self._beside).st_size
            if self._seen > seen and os.pread(self._beside, 1, self._seen - 1) != b"\n":
                return b"\n"
        return b""

    def _write(self, line: bytes) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):
            while line and poll.poll(_BLOCKED_READER):
                line = line[os.write(self._descriptor, line[:_CHUNK]) :]


def traceback_of(error: BaseException) -> list[str]:
    """Return where an error comes from, for an event."""
    import traceback  # noqa: PLC0415 -- slow, and most sessions need none

    return traceback.format_exception(error)


def _is_same_terminal(one: int, other: int) -> bool:
    try:
        return os.isatty(one) and os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


def on_stderr(environ: Mapping[str, str], *, spared: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Log:
    """Return a log that narrates on our stderr: coloured on a terminal without NO_COLOR.

    Arguments:
        environ: our environment.
        spared: see :class:`Log`.
        also: see :class:`Log`.

    """
    terminal = os.isatty(2)
    colour = terminal and not environ.get("NO_COLOR")
    return Log(2, terminal=terminal, colour=colour, spared=spared, also=also)


_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "hint": "\x1b[36m"}


def _sentence(event: MutableMapping[str, Any], *, colour: bool) -> bytes:
    level = event["level"]
    rows = [("" if level == "info" else level, event["message"])]
    if "hint" in event:
        rows.append(("hint", event["hint"]))
    text = ""
    for label, words in rows:
        mark = f"{_COLOURS[label]}{label}:\x1b[0m " if colour and label else f"{label}: " if label else ""
        text += f"ralph-wrap: {mark}{one_line(words)}\n"
    return text.encode(errors="backslashreplace")


def one_line(words: str) -> str:
    """Return text that stays on its line and does nothing to a terminal: names of files can hold anything."""
    if words.isprintable():
        return words
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # documented: importing it then raises
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _without_empty(**facts: str) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}
