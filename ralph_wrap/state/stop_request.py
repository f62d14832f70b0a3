"""The request to end a session: a file in the session's directory. A pid is valid in one pid namespace only.

``ralph-wrap stop`` writes the file, also from another container or from the host. The session looks at it
each half second (``polling``), and between two iterations. A stronger request replaces a weaker one, never
the other way round. Where the file cannot be written, because the disk is full for example, ``stop`` signals
the process.

An agent can write there too. The session logs an invalid file once, leaves it alone, and follows no symlink.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import LockedError
from ralph_wrap.system import files
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.document import DocumentFormat, MisshapenError
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.polling import POLL_INTERVAL

log = get_logger()

_DELETION = 1.0  # seconds for a deletion of our directories, for example by git clean
_LOCK_PATIENCE = 2.5  # seconds; a request is written at once
_NAME = "stop"
_FORMAT = DocumentFormat(version=1, largest=4096)


class StopMode(Enum):
    """The kinds of request, the weakest first."""

    AFTER_ITERATION = "after-iteration"
    SOON = "soon"
    NOW = "now"

    @property
    def strength(self) -> int:
        """A number for comparison."""
        return list(StopMode).index(self)


class NoRequestError(ValueError):
    """The file exists, but is not a valid request."""


_MESSAGES = {
    StopMode.AFTER_ITERATION: "the loop ends after this iteration",
    StopMode.SOON: "the agent is asked to end, then its work is saved",
    StopMode.NOW: "the agent is killed, then its work is saved",
}


def ask(directory: Path, mode: StopMode) -> StopMode:
    """Ask a session to end.

    Arguments:
        directory: the directory of the session.
        mode: the kind of request.

    Returns:
        The request in the file now; it may be stronger.

    Raises:
        OSError: the request cannot be written.

    """
    for ancestor in (directory.parent, directory):
        if ancestor.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(ancestor))
    with contextlib.ExitStack() as stack:
        # Another request must not come between the look and the rename. Without a lock, for example on NFS or
        # while an agent holds it, that is improbable enough.
        with contextlib.suppress(OSError, LockedError):
            stack.enter_context(files.locked_directory(directory, _LOCK_PATIENCE))
        try:
            earlier = read(directory)
        except NoRequestError:
            earlier = None
        if earlier is not None and earlier.strength >= mode.strength:
            return earlier
        files.replace(directory / _NAME, _FORMAT.encode({"how": mode.value}), sync=False)
        return mode


def read(directory: Path) -> StopMode | None:
    """Return the request to a session, ``None`` if there is none.

    Raises:
        NoRequestError: the file is not a valid request; the message has the reason.

    """
    try:
        return _FORMAT.read(directory / _NAME, lambda found: StopMode(found["how"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoRequestError(error.strerror or str(error)) from None
    except MisshapenError as error:
        raise NoRequestError(f"not a request of this version: {error}") from None
    except ValueError as error:
        raise NoRequestError(str(error)) from None


def is_urgent(directory: Path) -> bool:
    """Return whether a session must end without grace."""
    try:
        return read(directory) is StopMode.NOW
    except NoRequestError:
        return False


class SessionHurry(NamedTuple):
    """The hurry of a session: a second signal, or a request to stop now.

    Attributes:
        cancel: the signals so far.
        directory: the directory of the session.

    """

    cancel: CancelToken
    directory: Path

    @property
    def hurried(self) -> bool:
        """Whether the session must end without grace."""
        return self.cancel.hurried or is_urgent(self.directory)


class StopRequests:
    """The requests to a session, as the session itself sees them.

    Arguments:
        directory: the directory of the session.
        restore: called if somebody has deleted the directory; returns whether it is there again.
        signalled: returns whether a signal asked for an end after the iteration.

    Attributes:
        due: time of the next look at the file, as :func:`time.monotonic` counts.

    """

    def __init__(
        self,
        directory: Path,
        restore: Callable[[], bool] = lambda: False,
        signalled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.due = 0.0
        self._directory = directory
        self._restore = restore
        self._signalled = signalled
        self._missing_since: float | None = None
        self._mode: StopMode | None = None
        self._complained = False

    def look(self) -> StopMode | None:
        """Return the strongest request so far; read the file if the last time was long enough ago."""
        if time.monotonic() >= self.due:
            self._look_for_directory()
            self._read()
            self.due = time.monotonic() + POLL_INTERVAL
        if self._signalled():
            self._take(StopMode.AFTER_ITERATION)
        return self._mode

    def look_now(self) -> StopMode | None:
        """Read the file, and return the strongest request so far."""
        self.due = 0.0
        return self.look()

    def _look_for_directory(self) -> None:
        """Have a deleted directory made anew, once whoever deletes it had time to finish."""
        if self._directory.is_dir():
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() >= self._missing_since + _DELETION and self._restore():
            self._missing_since = None

    def _read(self) -> None:
        try:
            found = read(self._directory)
        except NoRequestError as error:
            if not self._complained:
                self._complained = True
                path = self._directory / _NAME
                log.warning("stop.not_understood", f"{path} is no request to stop: {error}")
            return
        if found is not None:
            self._take(found)

    def _take(self, found: StopMode) -> None:
        if self._mode is None or found.strength > self._mode.strength:
            self._mode = found
            log.event("stop.requested", f"stop: {_MESSAGES[found]}", how=found.value)
