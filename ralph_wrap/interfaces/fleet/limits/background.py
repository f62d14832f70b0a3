"""Talk to the remote beside a session: one git command at a time, and never wait."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from ralph_wrap.system.process import CompletedCommand, RunningCommand

    Conversation = Generator[RunningCommand, CompletedCommand, None]
    """Yields each command, and gets it back when it has ended."""

_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command


class Background:
    """Has one conversation with the remote after another.

    Arguments:
        begin: each begins a conversation, or returns ``None`` if none is due; the first one comes first.

    """

    def __init__(self, *begin: Callable[[], Conversation | None]) -> None:
        self._begin = begin
        self._conversation: Conversation | None = None
        self._running: RunningCommand | None = None

    def look(self) -> None:
        """Do what can be done now."""
        if self._conversation is None:
            self._conversation = next(filter(None, (begin() for begin in self._begin)), None)
            if self._conversation is not None:
                self._go_on(None)
        elif self._running is not None and self._running.ended(_GLANCE):
            with self._running as running:
                completed = running.wait()
            self._go_on(completed)

    def _go_on(self, completed: CompletedCommand | None) -> None:
        """Go on to the next command. If that is not possible, the conversation begins anew.

        An agent can damage the repository for a moment, and a disk can be full. Neither may end the worker,
        because its session would go on without it.
        """
        conversation, self._running = self._conversation, None
        if conversation is None:
            return
        try:
            self._running = conversation.send(completed) if completed else next(conversation)
        except (StopIteration, RalphError, OSError):
            self._conversation = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            with self._running:
                pass
        if self._conversation is not None:
            with contextlib.suppress(RuntimeError):
                self._conversation.close()


class Timer:
    """Says when something is due again, with jitter: the workers must not ask all at once.

    Arguments:
        seconds: between two times.

    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = 0.0
        self.start()

    def start(self, seconds: float | None = None) -> None:
        """Start again.

        Arguments:
            seconds: until the next time; ``None`` for the usual time.

        """
        wait = self._seconds if seconds is None else seconds
        self._due = time.monotonic() + wait * random.uniform(0.8, 1.2)  # noqa: S311

    @property
    def is_due(self) -> bool:
        """Whether the time has come."""
        return time.monotonic() >= self._due
