"""The end of an agent's output, and of a session's event log."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from ralph_wrap.agents.output import FORMATS, OutputReader
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from ralph_wrap.interfaces.web.escaping import plain
from ralph_wrap.system import files
from ralph_wrap.system.document import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUTPUT = 1 << 16  # bytes
_EVENTS = 1 << 21
_BEGINNING = 1 << 16
_WIDEST = 500  # characters of a line


def output(directory: Path, most: int) -> str:
    """Return the last lines of an agent's output, in readable form if its format is known.

    Arguments:
        directory: the session's directory.
        most: the maximum number of lines.

    """
    content = _end(directory / "output.log", _OUTPUT)
    form = _format(directory / "events.jsonl")
    if form in FORMATS:
        reader, readable = OutputReader(form), TranscriptFormatter()
        events = [*reader.feed(content), *reader.finish()]
        content = b"".join(readable.show(event) for event in events) + readable.finish()
    lines = plain(content).rstrip("\n").split("\n")[-most:]
    return "\n".join(line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…" for line in lines)


def events(directory: Path) -> list[dict[str, Any]]:
    """Return the last events of a session; an agent may have changed the file, so any content is accepted."""
    return list(_parsed(_end(directory / "events.jsonl", _EVENTS)))


def _format(path: Path) -> str:
    """Return the format of an agent's output from the beginning of the event log; empty for none."""
    try:
        beginning = files.read(path, _BEGINNING)
    except OSError:
        return ""
    formats = (event.get("output") for event in _parsed(beginning) if event.get("event") == "agent.started")
    return str(next(formats, ""))


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        try:
            event = from_json(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _end(path: Path, most: int) -> bytes:
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
