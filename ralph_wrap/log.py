"""Narration on stderr and the event log, from one structlog pipeline.

An event is a noun and a past verb (``worktree.removed``) with facts. All of them go to the session's
``events.jsonl``; those with a ``message`` are narrated as well: as a sentence on a terminal, else as one
JSON object a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from pathlib import Path

    from structlog.typing import WrappedLogger

_BLOCKED_READER = 1000  # milliseconds to wait for somebody who has stopped reading our stderr
_CHUNK = 4096  # bytes that fit into a pipe that poll() says has room (pipe(7): PIPE_BUF)


class Log:
    """Where a session tells what happens.

    Neither a full disk, nor a reader that went away or stands still, ever stops the teller.

    Arguments:
        descriptor: where narration goes; normally 2.
        colour: sentences may be coloured.
        terminal: narrate in sentences.

    """

    def __init__(self, descriptor: int, *, terminal: bool, colour: bool) -> None:
        self._descriptor = descriptor
        self._terminal = terminal
        self._colour = colour
        self._file = -1
        self._early: list[bytes] | None = []
        self._torn = False
        self._logger = structlog.wrap_logger(
            structlog.ReturnLogger(),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
                self._record,
                self._narrate,
            ],
        )

    def attach(self, path: Path, **identity: str) -> None:
        """Write events to a file from now on, those told already first.

        Arguments:
            path: the event log.
            identity: facts that belong to each event.

        """
        self._logger = self._logger.bind(**identity)
        with contextlib.suppress(OSError):  # as with a disk that is full later
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
        early, self._early = self._early or [], None
        for line in early:
            self._append(line)

    def event(self, event: str, message: str = "", **facts: Any) -> None:
        """Tell that something happened; with a message, also to whoever watches."""
        self._logger.info(event, **_without_empty(message=message), **facts)

    def warning(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Tell what somebody should know, and what to do about it."""
        self._logger.warning(event, message=message, **_without_empty(hint=hint), **facts)

    def error(self, event: str, message: str, hint: str = "", **facts: Any) -> None:
        """Tell why this ends."""
        self._logger.error(event, message=message, **_without_empty(hint=hint), **facts)

    def block(self, event: str, message: str, text: str, **facts: Any) -> None:
        """Tell that something happened; on a terminal by several lines instead of one.

        Arguments:
            event: its name.
            message: in one line, for narration that is no terminal.
            text: in several.
            facts: what belongs to it.

        """
        self._logger.info(event, message=message, text=text, **facts)

    def progress(self, text: str) -> None:
        """Show on one line of a terminal how far long work is; an empty text clears it."""
        if self._terminal:
            self._write(f"\r{one_line(text)}\x1b[K".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Close the event log."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _record(
        self, _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        line = _object({name: fact for name, fact in event.items() if name != "text"})
        if self._early is None:
            self._append(line)
        else:
            self._early.append(line)
        return event

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
        text = event.pop("text", None)
        if self._terminal and text is not None:
            self._write(f"{text}\n".encode(errors="backslashreplace"))
        elif "message" in event:
            self._write(_sentence(event, colour=self._colour) if self._terminal else _object(event))
        return event

    def _write(self, line: bytes) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):
            while line and poll.poll(_BLOCKED_READER):
                line = line[os.write(self._descriptor, line[:_CHUNK]) :]


def on_stderr(environ: Mapping[str, str]) -> Log:
    """Return a log that narrates on our stderr: coloured on a terminal without NO_COLOR."""
    terminal = os.isatty(2)
    return Log(2, terminal=terminal, colour=terminal and not environ.get("NO_COLOR"))


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


def _object(event: MutableMapping[str, Any]) -> bytes:
    first = {name: event[name] for name in ("at", "level", "event")}
    return json.dumps({**first, **event}, default=str).encode() + b"\n"


def one_line(words: str) -> str:
    """Return text that stays on its line and does nothing to a terminal: names of files can hold anything."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)


def _without_empty(**facts: str) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}
