"""Print a session's output or its event log, and follow it to its end.

``output.log`` holds the unchanged output of the agent. A machine-readable stream is printed in the readable
form that the user saw while the agent worked. The event ``agent.started`` names the format of the stream, and
is in the event log before the first byte is in ``output.log``. Without this event the bytes are printed.
"""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING

from ralph_wrap.agents.output import FORMATS, OutputReader
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from ralph_wrap.errors import RalphError
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.files import write_all
from ralph_wrap.system.inotify import CAME, MODIFIED, DirectoryWatch, GrowingFile
from ralph_wrap.system.liveness import is_running, pid_namespace

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.state.inventory import FoundSession
    from ralph_wrap.state.project import Project

_LOOK = 1.0  # seconds between two looks, where the file system reports no events
_LAST_LOOKS = 60  # looks for the last event; a session waits just as long for the reader of its output
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
    to: int,
    raw: bool = False,
) -> None:
    """Write a log.

    Arguments:
        name: an agent id or a session id.
        events: write the event log; otherwise the agent's output.
        follow: continue until the session has ended.
        to: the descriptor to write to.
        raw: write the output unchanged, not in its readable form.

    Raises:
        UsageError: the name is not an id.
        NotFoundError: the session does not exist.
        RalphError: the log cannot be read.
        BrokenPipeError: the reader has closed its end of the pipe.

    """
    found = inventory.find(project, name)
    if found.directory is None:
        raise RalphError(f"session {found.name} is unknown: {found.note}", "to see it: ralph-wrap ps")
    path = found.directory / ("events.jsonl" if events else "output.log")
    try:
        _refuse_links(found.directory)
        with GrowingFile(path) as log, DirectoryWatch(found.directory, events=CAME | MODIFIED) as watch:
            copy = _LogCopy(log, to, None if events or raw else _TerminalView(found.directory))
            copy.all()
            if follow:
                _follow(found, copy, watch, events=events)
            if follow or found.verdict not in _ALIVE:
                copy.finish()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RalphError(f"cannot print {path}: {error.strerror}") from error


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
    begun = b""
    try:
        with GrowingFile(events) as log:
            while len(begun) < _BEGINNING and (piece := log.read()):
                begun += piece
    except OSError:  # an agent may have replaced the file
        return ""
    for line in begun.split(b"\n")[:-1]:
        if _STARTED in line:
            try:
                told = json.loads(line)
                return str(told["output"]) if told["event"] == "agent.started" else ""
            except (
                ValueError,
                TypeError,
                KeyError,
                RecursionError,
            ):  # an earlier version wrote it, or an agent
                return ""
    return None


class _LogCopy:
    """Copies a growing log.

    Arguments:
        to: the descriptor to write to.
        shown: turns the output into its readable form; ``None`` copies it unchanged.

    Attributes:
        released: the copied part has the last event of a session.

    """

    def __init__(self, log: GrowingFile, to: int, shown: _TerminalView | None) -> None:
        self._log = log
        self._shown = shown
        self.to = to
        self._tail = b""
        self.released = False

    def all(self) -> None:
        """Copy everything that is in the log by now."""
        while piece := self._log.read():
            write_all(self.to, self._shown.feed(piece) if self._shown else piece)
            window = self._tail + piece
            self.released = self.released or _RELEASED in window
            self._tail = window[1 - len(_RELEASED) :]

    def finish(self) -> None:
        """Copy the last line, even if it has no newline yet."""
        if self._shown:
            write_all(self.to, self._shown.finish())


def _refuse_links(directory: Path) -> None:
    for place in (directory.parent, directory):
        if place.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(place))


def _follow(found: FoundSession, copy: _LogCopy, watch: DirectoryWatch, *, events: bool) -> None:
    """Copy new output until the session has ended and everything is copied."""
    looks = _LAST_LOOKS
    while found.verdict in _ALIVE or (events and looks and _may_tell(found, copy)):
        looks -= found.verdict is Verdict.FINISHED
        if not watch.wait(_LOOK, reader=copy.to):
            raise BrokenPipeError
        found = found.again()
        copy.all()  # after the look, so that it has everything from before the session's end


def _may_tell(found: FoundSession, copy: _LogCopy) -> bool:
    """Return whether the last event may still come: a session frees its id before it logs this event."""
    if copy.released or found.record is None or found.verdict is not Verdict.FINISHED:
        return False
    return found.record.pid_namespace != pid_namespace() or is_running(found.record.owner)
