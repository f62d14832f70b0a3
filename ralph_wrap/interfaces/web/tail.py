"""The end of an agent's output, and of a session's event log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph_wrap.agents.output import FORMATS, OutputReader
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from ralph_wrap.interfaces.web.escaping import plain
from ralph_wrap.state.session_files import end_of, last_events, parsed
from ralph_wrap.system import files

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
    content = end_of(directory / "output.log", _OUTPUT)
    form = _format(directory / "events.jsonl")
    if form in FORMATS:
        reader, readable = OutputReader(form), TranscriptFormatter()
        events = [*reader.feed(content), *reader.finish()]
        content = b"".join(readable.show(event) for event in events) + readable.finish()
    lines = plain(content).rstrip("\n").split("\n")[-most:]
    return "\n".join(line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…" for line in lines)


def events(directory: Path) -> list[dict[str, Any]]:
    """Return the last events of a session; an agent may have changed the file, so any content is accepted."""
    return last_events(directory, _EVENTS)


def _format(path: Path) -> str:
    """Return the format of an agent's output from the beginning of the event log; empty for none."""
    try:
        beginning = files.read_beginning(path, _BEGINNING)
    except OSError:
        return ""
    formats = (event.get("output") for event in parsed(beginning) if event.get("event") == "agent.started")
    return str(next(formats, ""))
