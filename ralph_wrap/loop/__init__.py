"""The loop: :mod:`policy` decides, :mod:`driver` executes, :mod:`supervise` waits for the agent.

:mod:`answer` reads what the agent answers, and :mod:`promise` searches it. :mod:`limits` computes when an
iteration must end, and :mod:`budget` adds up its tokens and cost. Sessions share the usage limit of an
account in :mod:`usage_limit`; :mod:`usage_limit_wait` waits for its end, unless another agent of the session
can go on (:mod:`turns`). :mod:`login_watch` notices that an agent is not logged in.
:mod:`conversation` remembers the agent's own session for the next iteration. :mod:`progress` shows a
status line. :mod:`terminal` lends the terminal to an interactive agent. :mod:`setup` runs once, before
iteration 1. :mod:`gate` proves a promise. Both run by :mod:`project_command`.
"""

from ralph_wrap.loop.driver import Driver
from ralph_wrap.loop.gate import Gate
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.listener import OutputListener
from ralph_wrap.loop.policy import LoopResult
from ralph_wrap.loop.turns import Turns

__all__ = ["Driver", "Gate", "IterationContext", "LoopResult", "OutputListener", "Turns"]
