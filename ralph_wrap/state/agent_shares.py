"""What each agent of a killed session has done, by its event log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ralph_wrap.agents.output import Usage
from ralph_wrap.state.session_files import last_events

_EVENTS_READ = 1 << 24  # bytes: a long night has some thousand iterations
# An agent may have written anything into the log.
_MOST = 100  # agents
_LONGEST = 4096  # characters of a name, which may be the path of a program
_LARGEST = 1e15  # tokens or dollars


def read(directory: Path) -> tuple[dict[str, Any], ...] | None:
    """Return ``agents`` of the report of a session; ``None`` if only one has worked.

    An iteration that was begun more than once, for a usage limit, counts for the agent that had it last.

    Arguments:
        directory: the session's directory.

    """
    workers: dict[int, str] = {}
    spent: dict[str, Usage | None] = {}
    for event in last_events(directory, _EVENTS_READ):
        name, number = event.get("agent"), event.get("iteration")
        if not isinstance(name, str) or len(name) > _LONGEST:
            continue
        if event.get("event") == "iteration.started" and isinstance(number, int):
            workers[number] = name
            spent.setdefault(name, None)
        elif event.get("event") == "agent.reported":
            spent[name] = _sum(spent.get(name), event.get("tokens"), event.get("cost_usd"))
    if not 1 < len(spent) <= _MOST:
        return None
    done = [*workers.values()]
    return tuple(
        {
            "agent": name,
            "iterations": done.count(name),
            "tokens": usage.tokens if usage else None,
            "cost_usd": usage.cost if usage else None,
        }
        for name, usage in spent.items()
    )


def _sum(before: Usage | None, tokens: object, cost: object) -> Usage | None:
    if not isinstance(tokens, int) or not 0 <= tokens < _LARGEST:
        return before
    known = before or Usage(0)
    known = known._replace(tokens=known.tokens + tokens)
    if not isinstance(cost, int | float) or not 0 <= cost < _LARGEST:
        return known
    return known._replace(cost=(known.cost or 0.0) + cost)
