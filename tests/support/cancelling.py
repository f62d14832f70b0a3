"""Tokens that are cancelled already, or as soon as something has happened."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from ralph_wrap.system.cancel import CancelToken

if TYPE_CHECKING:
    from collections.abc import Callable


def cancelled(*signals: int) -> CancelToken:
    """Return a token that has seen signals, by default one SIGINT."""
    token = CancelToken()
    for number in signals or (signal.SIGINT,):
        token.record(number)
    return token


class CancelledWhen(CancelToken):
    """A token that is cancelled while a condition holds."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    @property
    def requested(self) -> bool:
        """Whether the condition holds."""
        return self._condition()
