"""Streams of real agents, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.agents.output import (
    OutputReader,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.agents.output import Event


def read(path: Path) -> list[Event]:
    """Return the events of lines."""
    reader = OutputReader(path.parent.name)
    return [*reader.feed(path.read_bytes()), *reader.finish()]
