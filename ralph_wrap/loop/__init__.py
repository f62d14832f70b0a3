"""The loop: :mod:`policy` decides, :mod:`driver` obeys, :mod:`overseer` waits beside what runs.

What an iteration is ended by from within is in :mod:`brakes`, what it has spent in :mod:`spending`, and the
usage limit of an account, which sessions tell each other, in :mod:`account`; :mod:`hold` waits for its end.
:mod:`resumption` knows which session of its own the agent goes on with, :mod:`progress` what a person sees.
:mod:`terminal` belongs to whom a person talks to; :mod:`setup` runs once, before the first iteration.
"""

from ralph_wrap.loop.driver import Driver
from ralph_wrap.loop.listen import Listener
from ralph_wrap.loop.policy import LoopResult
from ralph_wrap.loop.stage import Stage

__all__ = ["Driver", "Listener", "LoopResult", "Stage"]
