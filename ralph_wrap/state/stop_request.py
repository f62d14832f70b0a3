"""The request to end a session: a file in the session's own directory, since a pid means nothing elsewhere.

Whoever wants a session to end puts the file there, from another container or from the host; the session looks
at it whenever something comes into its directory, and at least every :data:`EVERY` seconds, where nothing is
told. A stronger request replaces a weaker one, never the other way round.

An agent can write there, too. What is no request is told once and left alone; it is never followed anywhere.
"""

from __future__ import annotations

import errno
import json
import time
from enum import Enum
from typing import TYPE_CHECKING, Self

from ralph_wrap.system import files
from ralph_wrap.system.inotify import CAME, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.system.log import Log

VERSION = 1
"""Of the file; a higher one was written by a newer ralph-wrap."""
EVERY = 30.0
"""Seconds between two looks where the file system tells nothing."""

_NAME = "stop"
_LONGEST = 4096  # bytes of a request; more is none


class How(Enum):
    """How a session is asked to end, the weakest first."""

    AFTER_ITERATION = "after-iteration"
    SOON = "soon"
    NOW = "now"

    @property
    def strength(self) -> int:
        """A number to compare with another's."""
        return list(How).index(self)


class NoRequestError(ValueError):
    """The file is there, but is no request."""


_TOLD = {
    How.AFTER_ITERATION: "the loop ends after this iteration",
    How.SOON: "the agent is asked to end, then its work is saved",
    How.NOW: "the agent is killed, then its work is saved",
}


def ask(directory: Path, how: How) -> How:
    """Ask a session to end.

    Arguments:
        directory: the session's own.
        how: the way.

    Returns:
        What it is asked by now, which may be stronger.

    Raises:
        OSError: it cannot be asked.

    """
    for place in (directory.parent, directory):
        if place.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(place))
    path = directory / _NAME
    content = json.dumps({"version": VERSION, "how": how.value}).encode() + b"\n"
    while True:
        state = files.state(path)
        try:
            there = read(directory)
        except NoRequestError:
            there = None
        if there is not None and there.strength >= how.strength:
            return there
        if files.replace(path, content, sync=False, unless_changed_since=state):
            return how


def read(directory: Path) -> How | None:
    """Return how a session is asked to end, ``None`` if it is not.

    Raises:
        NoRequestError: there is something else, for the reason that it says.

    """
    try:
        found = json.loads(files.read(directory / _NAME, _LONGEST))
        if found["version"] != VERSION:
            raise NoRequestError(f"version {found['version']!r}")
        return How(found["how"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoRequestError(error.strerror or str(error)) from None
    except (KeyError, TypeError, RecursionError) as error:
        raise NoRequestError(f"not a request of this version: {error}") from None
    except ValueError as error:
        raise NoRequestError(str(error)) from None


def is_urgent(directory: Path) -> bool:
    """Tell whether a session is to end without any grace."""
    try:
        return read(directory) is How.NOW
    except NoRequestError:
        return False


class Requests:
    """What a session is asked, as it sees that itself while its context is entered.

    Arguments:
        directory: its own.
        every: seconds between two looks where the file system tells nothing.

    Attributes:
        due: when to look again, as :func:`time.monotonic` counts, whatever is told.

    """

    def __init__(self, directory: Path, log: Log, every: float = EVERY) -> None:
        self.due = 0.0
        self._directory = directory
        self._log = log
        self._every = every
        self._watch = Watch(directory, events=CAME)
        self._how: How | None = None
        self._complained = False

    @property
    def descriptor(self) -> int:
        """Readable when there may be something new; -1 where the file system tells nothing."""
        return self._watch.descriptor

    def look(self) -> How | None:
        """Return the strongest request so far; the file is looked at only if it may have changed."""
        if self._watch.changed() or time.monotonic() >= self.due:
            self.due = time.monotonic() + self._every
            self._read()
        return self._how

    def _read(self) -> None:
        try:
            found = read(self._directory)
        except NoRequestError as error:
            if not self._complained:
                self._complained = True
                path = self._directory / _NAME
                self._log.warning("stop.not_understood", f"{path} is no request to stop: {error}")
            return
        if found is not None and (self._how is None or found.strength > self._how.strength):
            self._how = found
            self._log.event("stop.requested", f"stop: {_TOLD[found]}", how=found.value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()
