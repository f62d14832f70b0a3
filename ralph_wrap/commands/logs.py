"""Print a session's output or its event log, and follow it to its end.

``output.log`` holds the unchanged output of the agent. A machine-readable stream is printed in the readable
form that the user saw while the agent worked. The event ``agent.started`` names the format of the stream, and
is in the event log before the first byte is in ``output.log``. Without this event the bytes are printed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ralph_wrap.agents.output import FORMATS, OutputReader
from ralph_wrap.agents.output.colours import ColoursOnly
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from ralph_wrap.errors import RalphError
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.system import document
from ralph_wrap.system.files import write_all
from ralph_wrap.system.liveness import is_running, pid_namespace
from ralph_wrap.system.output_log import ends_line, place_in_successor
from ralph_wrap.system.polling import POLL_INTERVAL, reader_stays

_LAST_LOOKS = int(60 / POLL_INTERVAL)  # for the last event; a session waits a minute for who reads its output
_PIECE = 1 << 16  # bytes of a log at once
_RELEASED = b'"event": "session.released"'
_STARTED = b'"event": "agent.started"'
_BEGINNING = 1 << 20  # bytes of an event log that are searched for the agent's first start
_ALIVE = {Verdict.LIVE, Verdict.FOREIGN}


def logs(
    project: Project,
    name: str,
    *,
    events: bool,
    follow: bool,
    descriptor: int,
    raw: bool = False,
) -> FoundSession:
    """Write a log, and return the session as it is then.

    Arguments:
        name: an id, a branch or a title.
        events: write the event log; otherwise the agent's output.
        follow: continue until the session has ended.
        descriptor: the descriptor to write to.
        raw: write the output unchanged, not in its readable form.

    Raises:
        UsageError: the title of several sessions fits.
        NotFoundError: the session does not exist.
        RalphError: the log cannot be read.
        BrokenPipeError: the reader has closed its end of the pipe.

    """
    session = inventory.find(project, name)
    if session.directory is None:
        raise RalphError(f"session {session.name} is unknown: {session.note}", "to see it: ralph-wrap ps")
    path = session.directory / ("events.jsonl" if events else "output.log")
    try:
        _refuse_links(session.directory)
        with GrowingFile(path) as log:
            shown = None if events or raw else _TerminalView(session.directory)
            copy = _LogCopy(log, descriptor, shown, ColoursOnly() if _is_seen(descriptor, raw=raw) else None)
            copy.all()
            if follow:
                session = _follow(session, copy, events=events)
            if follow or session.verdict not in _ALIVE:
                copy.finish()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RalphError(f"cannot print {path}: {error.strerror}") from error
    return session


def _is_seen(descriptor: int, *, raw: bool) -> bool:
    return os.isatty(descriptor) and not raw


class GrowingFile:
    """A regular file to which another process appends; it may not exist yet, and must not be a symlink."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> bytes:
        """Return the next piece of the file since the last call; empty if there is nothing new.

        Raises:
            OSError: the file cannot be read, or is not a regular file.

        """
        if self._descriptor < 0:
            self._descriptor = self._open()
        if self._descriptor < 0:
            return b""
        return os.read(self._descriptor, _PIECE) or self._read_successor()

    def _open(self) -> int:
        """Return a descriptor of what is at the path; -1 if there is nothing.

        Raises:
            OSError: it cannot be opened, or is not a regular file.

        """
        try:
            # O_NONBLOCK: if an agent put a FIFO there, opening it must not hang.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", str(self._path))
        return descriptor

    def _read_successor(self) -> bytes:
        """Go on in the file that has replaced this one, if there is one.

        A session shortens a long log, or writes anew what was deleted. Nobody writes to the old file then:
        what is in it comes first.
        """
        try:
            new = self._open()
        except OSError:  # an agent may have put anything there
            return b""
        if new < 0:
            return b""
        if os.path.sameopenfile(new, self._descriptor):
            os.close(new)
            return b""
        last = os.read(self._descriptor, _PIECE)
        place = None if last else place_in_successor(self._descriptor, new)
        if place is None:
            os.close(new)
            return last
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        newline = b"\n" if ends_line(new, place) and not ends_line(self._descriptor, size) else b""
        os.close(self._descriptor)
        self._descriptor = new
        os.lseek(new, place, os.SEEK_SET)
        return newline + os.read(new, _PIECE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class _TerminalView:
    """Turns a session's output into the readable form that the user saw.

    Arguments:
        directory: the session's directory.

    """

    def __init__(self, directory: Path) -> None:
        self._events = directory / "events.jsonl"
        self._output: str | None = None
        self._reader: OutputReader | None = None
        self._readable = TranscriptFormatter()

    def feed(self, piece: bytes) -> bytes:
        """Return the readable form of the next piece."""
        if self._output is None:
            self._output = _format(self._events)
            self._reader = OutputReader(self._output) if self._output in FORMATS else None
        if self._reader is None:
            return piece
        return b"".join(map(self._readable.show, self._reader.feed(piece)))

    def finish(self) -> bytes:
        """Return the readable form of a last line without a newline."""
        events = self._reader.finish() if self._reader else []
        return b"".join(map(self._readable.show, events)) + self._readable.finish()


def _format(events: Path) -> str | None:
    """Return the format of the agent's output; ``None`` if no agent has started yet."""
    beginning = b""
    try:
        with GrowingFile(events) as log:
            while len(beginning) < _BEGINNING and (piece := log.read()):
                beginning += piece
    except OSError:  # an agent may have replaced the file
        return ""
    for line in beginning.split(b"\n")[:-1]:
        if _STARTED in line:
            try:
                return document.parse(line, _format_in)
            except ValueError:  # an agent may have written it
                return ""
    return None


def _format_in(event: Mapping[str, Any]) -> str:
    return str(event["output"]) if event["event"] == "agent.started" else ""


class _LogCopy:
    """Copies a growing log.

    Arguments:
        descriptor: the descriptor to write to.
        shown: turns the output into its readable form; ``None`` copies it unchanged.
        colours: protects the terminal of the user; ``None`` if it is no terminal.

    Attributes:
        released: the copied part has the last event of a session.

    """

    def __init__(
        self, log: GrowingFile, descriptor: int, shown: _TerminalView | None, colours: ColoursOnly | None
    ) -> None:
        self._log = log
        self._shown = shown
        self._colours = colours
        self.descriptor = descriptor
        self._tail = b""
        self.released = False

    def all(self) -> None:
        """Copy everything that is in the log by now."""
        while piece := self._log.read():
            self._write(self._shown.feed(piece) if self._shown else piece)
            window = self._tail + piece
            self.released = self.released or _RELEASED in window
            self._tail = window[1 - len(_RELEASED) :]

    def finish(self) -> None:
        """Copy the last line, even if it has no newline yet."""
        if self._shown:
            self._write(self._shown.finish())
        if self._colours:
            write_all(self.descriptor, self._colours.finish())

    def _write(self, piece: bytes) -> None:
        write_all(self.descriptor, self._colours.feed(piece) if self._colours else piece)


def _refuse_links(directory: Path) -> None:
    for path in (directory.parent, directory):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(path))


def _follow(session: FoundSession, copy: _LogCopy, *, events: bool) -> FoundSession:
    """Copy new output until the session has ended and everything is copied; return the ended session."""
    looks = _LAST_LOOKS
    while session.verdict in _ALIVE or (events and looks and _last_event_may_come(session, copy)):
        looks -= session.verdict is Verdict.FINISHED
        if not reader_stays(copy.descriptor, POLL_INTERVAL):
            raise BrokenPipeError
        session = session.again()
        copy.all()  # after the look, so that it has everything from before the session's end
    return session


def _last_event_may_come(session: FoundSession, copy: _LogCopy) -> bool:
    """Return whether the last event may still come: a session frees its id before it logs this event."""
    if copy.released or session.record is None or session.verdict is not Verdict.FINISHED:
        return False
    return session.record.pid_namespace != pid_namespace() or is_running(session.record.owner)
