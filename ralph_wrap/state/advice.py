"""What the user can do about a session that is not finished."""

from __future__ import annotations

from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command


def advice_for(verdict: Verdict, agent_id: str) -> str:
    """Return the hint for a session that is not finished and is in the way; empty for a finished one."""
    stop = command("ralph-wrap", "stop", agent_id)
    return {
        Verdict.LIVE: stop,
        Verdict.ORPHAN: "to save its work: ralph-wrap sweep",
        Verdict.FOREIGN: Commands.of(
            f"on its machine: {stop}",
            f"if you know that it is dead: {command('ralph-wrap', 'sweep', '--adopt', agent_id)}",
        ),
        Verdict.UNKNOWN: "to see the reason: ralph-wrap ps",
        Verdict.FINISHED: "",
    }[verdict]
