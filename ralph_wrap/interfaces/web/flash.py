"""The results of buttons, kept for the next page."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import NamedTuple

_MOST = 50


class RetryForm(NamedTuple):
    """A further button below a result: its action, its form fields, and its label."""

    action: str
    fields: tuple[tuple[str, str], ...]
    label: str


class FlashMessage(NamedTuple):
    """A result: ``done`` or ``failed``, one or more lines, and what the user can do next."""

    kind: str
    lines: tuple[str, ...]
    hint: str = ""
    again: RetryForm | None = None


class FlashMessages:
    """The latest notes, each by a name that is part of an address."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, FlashMessage] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, note: FlashMessage) -> str:
        """Keep a note, and return its name."""
        name = secrets.token_urlsafe(8)
        with self._lock:
            self._notes[name] = note
            while len(self._notes) > _MOST:
                self._notes.popitem(last=False)
        return name

    def get(self, name: str) -> FlashMessage | None:
        """Return a note, ``None`` if none has this name."""
        with self._lock:
            return self._notes.get(name)
