"""The request to end a session: a file in the session's directory. A pid is valid in one pid namespace only.

``ralph-wrap stop`` writes the file, also from another container or from the host. The session checks the file
when inotify reports a change of its directory. It also checks at least every :data:`EVERY` seconds, because
some file systems send no events. A stronger request replaces a weaker one, never the other way round.
Where the file cannot be written, because the disk is full for example, ``stop`` signals the process.

An agent can write there too. The session logs an invalid file once, leaves it alone, and follows no symlink.
"""

from __future__ import annotations

import contextlib
import errno
import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import LockedError
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, MisshapenError
from ralph_wrap.system.inotify import CAME, LEFT, DirectoryWatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log

EVERY = 30.0
"""Maximum number of seconds between two checks; some file systems send no inotify events."""

_CHANGES = CAME | LEFT  # the kernel says that a directory is gone once nobody has a file of it open
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
    """The requests to a session, as the session itself sees them until the context ends.

    Arguments:
        directory: the directory of the session.
        every: maximum number of seconds between two checks; some file systems send no inotify events.
        restore: called if somebody has deleted the directory; returns whether it is there again.
        signalled: returns whether a signal asked for an end after the iteration.

    Attributes:
        due: time of the next check, as :func:`time.monotonic` counts; an event may cause an earlier one.

    """

    def __init__(
        self,
        directory: Path,
        log: Log,
        every: float = EVERY,
        restore: Callable[[], bool] = lambda: False,
        signalled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.due = 0.0
        self._directory = directory
        self._log = log
        self._every = every
        self._restore = restore
        self._signalled = signalled
        self._missing = False
        self._watch = DirectoryWatch(directory, events=_CHANGES)
        self._mode: StopMode | None = None
        self._complained = False

    @property
    def descriptor(self) -> int:
        """Readable when the file may have changed; -1 if the file system sends no inotify events."""
        return self._watch.descriptor

    def look(self) -> StopMode | None:
        """Return the strongest request so far; read the file only if it may have changed."""
        if self._signalled():
            self._take(StopMode.AFTER_ITERATION)
        changed = self._watch.changed()
        if changed or time.monotonic() >= self.due:
            # After a change again soon: it may be the first file that goes, and the directory comes last.
            self.due = time.monotonic() + (min(_DELETION, self._every) if changed else self._every)
            self._look_for_directory()
            self._read()
        return self._mode

    def _look_for_directory(self) -> None:
        """Have a deleted directory made anew, once whoever deletes it had time to finish."""
        if self._directory.is_dir():
            self._missing = False
        elif not self._missing:
            self._missing = True
            self.due = time.monotonic() + _DELETION
        elif self._restore():
            self._missing = False
            self._watch.watch(self._directory, events=_CHANGES)

    def _read(self) -> None:
        try:
            found = read(self._directory)
        except NoRequestError as error:
            if not self._complained:
                self._complained = True
                path = self._directory / _NAME
                self._log.warning("stop.not_understood", f"{path} is no request to stop: {error}")
            return
        if found is not None:
            self._take(found)

    def _take(self, found: StopMode) -> None:
        if self._mode is None or found.strength > self._mode.strength:
            self._mode = found
            self._log.event("stop.requested", f"stop: {_MESSAGES[found]}", how=found.value)

    def end(self) -> None:
        """See no further requests; a :meth:`close` some time later then takes no time."""
        self._watch.end()

    def close(self) -> None:
        """See no further requests."""
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
