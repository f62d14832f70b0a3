"""What the user can do about a session that is not finished."""

from __future__ import annotations

from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.log import Commands


def advice_for(verdict: Verdict, agent_id: str) -> str:
    """Return the hint for a session that is not finished and is in the way; empty for a finished one."""
    return {
        Verdict.LIVE: f"ralph-wrap stop {agent_id}",
        Verdict.ORPHAN: "to save its work: ralph-wrap sweep",
        Verdict.FOREIGN: Commands.of(
            f"on its machine: ralph-wrap stop {agent_id}",
            f"if you know that it is dead: ralph-wrap sweep --adopt {agent_id}",
        ),
        Verdict.UNKNOWN: "to see the reason: ralph-wrap ps",
        Verdict.FINISHED: "",
    }[verdict]
