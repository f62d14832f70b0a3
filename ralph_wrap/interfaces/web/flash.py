"""What became of what was asked for: kept until the page that is shown next."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import NamedTuple

_MOST = 50


class Again(NamedTuple):
    """What may be asked for after a refusal: where it is sent, what with, and the words on the button."""

    action: str
    fields: tuple[tuple[str, str], ...]
    label: str


class Note(NamedTuple):
    """What to tell: ``done`` or ``failed``, one or more lines, what to do about it."""

    kind: str
    lines: tuple[str, ...]
    hint: str = ""
    again: Again | None = None


class Notes:
    """The latest ones, each under a name that stands in an address."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, Note] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, note: Note) -> str:
        """Keep a note, and return its name."""
        name = secrets.token_urlsafe(8)
        with self._lock:
            self._notes[name] = note
            while len(self._notes) > _MOST:
                self._notes.popitem(last=False)
        return name

    def get(self, name: str) -> Note | None:
        """Return a note, ``None`` if there is none of that name."""
        with self._lock:
            return self._notes.get(name)
