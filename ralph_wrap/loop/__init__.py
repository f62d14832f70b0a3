"""The loop: :mod:`policy` decides, :mod:`driver` obeys, :mod:`supervise` waits beside what runs.

:mod:`limits` ends an iteration from within, and :mod:`budget` adds up what it has spent. Sessions share the
usage limit of an account in :mod:`usage_limit`; :mod:`usage_limit_wait` waits for its end. :mod:`resume`
knows which session of its own the agent goes on with. :mod:`progress` shows a person what happens, and
:mod:`terminal` serves an agent that a person talks to. :mod:`setup` runs once, before the first iteration.
"""

from ralph_wrap.loop.driver import Driver
from ralph_wrap.loop.iteration_context import Stage
from ralph_wrap.loop.listener import Listener
from ralph_wrap.loop.policy import LoopResult

__all__ = ["Driver", "Listener", "LoopResult", "Stage"]
