"""Print a session's output or its event log, and follow it to its end.

``output.log`` holds what an agent has printed as it came. Of one with a machine-readable stream, what is
printed is what a person saw while it worked. Which format that is, the event log tells (``agent.started``),
before the first byte of it is in ``output.log``; where the event log does not tell, the bytes are printed.
"""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING

from ralph_wrap.agents.output import FORMATS, Reader
from ralph_wrap.agents.output.transcript import Readable
from ralph_wrap.errors import RalphError
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.files import write_all
from ralph_wrap.system.inotify import CAME, MODIFIED, Growing, Watch
from ralph_wrap.system.liveness import is_running, pid_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.state.inventory import Found
    from ralph_wrap.state.project import Project

_LOOK = 1.0  # seconds between two looks where the file system tells nothing
_LAST_LOOKS = 60  # for the last event; a session gives whoever reads its output as long
_RELEASED = b'"event": "session.released"'
_STARTED = b'"event": "agent.started"'
_BEGINNING = 1 << 20  # bytes of an event log in which the agent's first start is looked for
_ALIVE = {Verdict.LIVE, Verdict.FOREIGN}


def logs(
    place: Project,
    environ: Mapping[str, str],
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
        events: the event log as it is; otherwise the agent's output.
        follow: go on until the session has ended.
        to: the descriptor to write to.
        raw: write the output as it came, too.

    Raises:
        UsageError: the name is no id.
        NotFoundError: there is no such session.
        RalphError: the log cannot be read.
        BrokenPipeError: whoever read it has gone away.

    """
    found = inventory.find(place, environ, name)
    if found.directory is None:
        raise RalphError(f"nothing is known of session {found.name}: {found.note}", "ralph-wrap ps shows it")
    path = found.directory / ("events.jsonl" if events else "output.log")
    try:
        _refuse_links(found.directory)
        with Growing(path) as log, Watch(found.directory, events=CAME | MODIFIED) as watch:
            copy = _Copy(log, to, None if events or raw else _AsSeen(found.directory))
            copy.all()
            if follow:
                _follow(found, copy, watch, events=events)
            if follow or found.verdict not in _ALIVE:
                copy.finish()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RalphError(f"{path} cannot be printed: {error.strerror}") from error


class _AsSeen:
    """Turns a session's output into what a person saw of it.

    Arguments:
        directory: the session's own.

    """

    def __init__(self, directory: Path) -> None:
        self._events = directory / "events.jsonl"
        self._output: str | None = None
        self._reader: Reader | None = None
        self._readable = Readable()

    def feed(self, piece: bytes) -> bytes:
        """Return what is shown of the next piece."""
        if self._output is None:
            self._output = _format(self._events)
            self._reader = Reader(self._output) if self._output in FORMATS else None
        if self._reader is None:
            return piece
        return b"".join(map(self._readable.show, self._reader.feed(piece)))

    def finish(self) -> bytes:
        """Return what is shown of a last line without an end."""
        events = self._reader.finish() if self._reader else []
        return b"".join(map(self._readable.show, events)) + self._readable.finish()


def _format(events: Path) -> str | None:
    """Return the format of what a session's agent prints; ``None`` if none was started yet."""
    begun = b""
    try:
        with Growing(events) as log:
            while len(begun) < _BEGINNING and (piece := log.read()):
                begun += piece
    except OSError:  # somebody has put something else there
        return ""
    for line in begun.split(b"\n")[:-1]:
        if _STARTED in line:
            try:
                told = json.loads(line)
                return str(told["output"]) if told["event"] == "agent.started" else ""
            except (ValueError, TypeError, KeyError, RecursionError):  # of an earlier version, or not ours
                return ""
    return None


class _Copy:
    """Copies what has come into a log.

    Arguments:
        to: the descriptor to write to.
        shown: what is written instead of it; ``None`` for all of it.

    Attributes:
        released: the last event of a session was among it.

    """

    def __init__(self, log: Growing, to: int, shown: _AsSeen | None) -> None:
        self._log = log
        self._shown = shown
        self.to = to
        self._tail = b""
        self.released = False

    def all(self) -> None:
        """Copy everything that there is by now."""
        while piece := self._log.read():
            write_all(self.to, self._shown.feed(piece) if self._shown else piece)
            window = self._tail + piece
            self.released = self.released or _RELEASED in window
            self._tail = window[1 - len(_RELEASED) :]

    def finish(self) -> None:
        """Copy what was held back until a line would end."""
        if self._shown:
            write_all(self.to, self._shown.finish())


def _refuse_links(directory: Path) -> None:
    for place in (directory.parent, directory):
        if place.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(place))


def _follow(found: Found, copy: _Copy, watch: Watch, *, events: bool) -> None:
    """Copy what comes, until the session has ended and everything was copied."""
    looks = _LAST_LOOKS
    while found.verdict in _ALIVE or (events and looks and _may_tell(found, copy)):
        looks -= found.verdict is Verdict.FINISHED
        if not watch.wait(_LOOK, reader=copy.to):
            raise BrokenPipeError
        found = found.again()
        copy.all()  # after that look: whatever came before the end is in it


def _may_tell(found: Found, copy: _Copy) -> bool:
    """Tell whether the last event is still to come: a session frees its id before it tells that it has."""
    if copy.released or found.record is None or found.verdict is not Verdict.FINISHED:
        return False
    return found.record.pid_namespace != pid_namespace() or is_running(found.record.owner)
