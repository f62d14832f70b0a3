"""The ends of files of a session. An agent may have changed them, so any content is accepted."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ralph_wrap.system import files
from ralph_wrap.system.document import from_json

EVENTS = "events.jsonl"
"""The name of the event log in a session's directory."""

_LAST_EVENT = 1 << 13  # bytes
_ATTEMPTS, _PAUSE = 20, 0.01  # seconds: a look at the lock holds it for a moment


def last_events(directory: Path, most: int) -> list[dict[str, Any]]:
    """Return the last events of a session.

    Arguments:
        directory: the session's directory.
        most: maximum number of bytes to read.

    """
    return list(parsed(end_of(directory / EVENTS, most)))


def waits_until(directory: Path, now: datetime) -> str | None:
    """Return the end of the usage limit for which a live session waits: then this is its last event.

    Arguments:
        directory: the session's directory.

    """
    [*_, last] = [{}, *last_events(directory, _LAST_EVENT)]
    until = last.get("until") if last.get("event") == "limit.waiting" else None
    if not isinstance(until, int | float):
        return None
    try:
        moment = datetime.fromtimestamp(until, UTC)
    except (ValueError, OverflowError, OSError):  # an agent may have changed the file
        return None
    return moment.isoformat(timespec="seconds") if moment > now else None


@contextmanager
def waiting_for_room(directory: Path) -> Iterator[None]:
    """Show other processes that a session waits for room on a full disk: nothing can be written there.

    So it is a lock on the event log, which exists. It ends with the process.

    Arguments:
        directory: the session's directory.

    """
    lock = None
    with suppress(OSError):
        for _ in range(_ATTEMPTS):
            if (lock := files.try_lock(directory / EVENTS)) is not None:
                break
            time.sleep(_PAUSE)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def waits_for_room(directory: Path) -> bool:
    """Return whether a live session waits for room on a full disk.

    Arguments:
        directory: the session's directory.

    """
    try:
        return files.is_locked(directory / EVENTS)
    except OSError:
        return False


def parsed(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events in some lines of an event log."""
    for line in content.split(b"\n"):
        try:
            event = from_json(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def end_of(path: Path, most: int) -> bytes:
    """Return the last bytes of a regular file, from the start of a line; nothing if a symlink leads to it."""
    try:
        if path.parent.parent.is_symlink() or path.parent.is_symlink():
            return b""
        # O_NONBLOCK: an agent may have put a FIFO there, and open(2) must not block on it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return b""
        content = os.pread(descriptor, most, max(0, state.st_size - most))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return content if state.st_size <= most else content.partition(b"\n")[2]
