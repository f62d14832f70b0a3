"""Print a session's output or its event log, and follow it to its end."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ralph_wrap import inventory
from ralph_wrap.errors import RalphError
from ralph_wrap.files import write_all
from ralph_wrap.inventory import Verdict
from ralph_wrap.liveness import is_running, pid_namespace
from ralph_wrap.watch import CAME, MODIFIED, Growing, Watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.inventory import Found
    from ralph_wrap.project import Project

_LOOK = 1.0  # seconds between two looks where the file system tells nothing
_LAST_LOOKS = 60  # for the last event; a session gives whoever reads its output as long
_RELEASED = b'"event": "session.released"'


def logs(
    place: Project, environ: Mapping[str, str], name: str, *, events: bool, follow: bool, to: int
) -> None:
    """Write a log as it is.

    Arguments:
        place: the project.
        environ: our environment.
        name: an agent id or a session id.
        events: the event log; otherwise the agent's output.
        follow: go on until the session has ended.
        to: the descriptor to write to.

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
            copy = _Copy(log, to)
            copy.all()
            if follow:
                _follow(found, copy, watch, events=events)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RalphError(f"{path} cannot be printed: {error.strerror}") from error


class _Copy:
    """Copies what has come into a log.

    Arguments:
        log: the log.
        to: the descriptor to write to.

    Attributes:
        released: the last event of a session was among it.

    """

    def __init__(self, log: Growing, to: int) -> None:
        self._log = log
        self.to = to
        self._tail = b""
        self.released = False

    def all(self) -> None:
        """Copy everything that there is by now."""
        while piece := self._log.read():
            write_all(self.to, piece)
            window = self._tail + piece
            self.released = self.released or _RELEASED in window
            self._tail = window[1 - len(_RELEASED) :]


def _refuse_links(directory: Path) -> None:
    for place in (directory.parent, directory):
        if place.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(place))


def _follow(found: Found, copy: _Copy, watch: Watch, *, events: bool) -> None:
    """Copy what comes, until the session has ended and everything was copied."""
    looks = _LAST_LOOKS
    while found.verdict in {Verdict.LIVE, Verdict.FOREIGN} or (events and looks and _may_tell(found, copy)):
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
