"""The loop: :mod:`policy` decides, :mod:`driver` obeys, :mod:`terminal` belongs to whom a person talks to."""

from ralph_wrap.loop.driver import Driver, Stage
from ralph_wrap.loop.policy import LoopResult

__all__ = ["Driver", "LoopResult", "Stage"]
