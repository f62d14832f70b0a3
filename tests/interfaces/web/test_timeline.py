"""The story of a session, from its events and commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ralph_wrap.git.patch import LogEntry
from ralph_wrap.interfaces.web.timeline import story

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: int, event: str, **facts: Any) -> dict[str, Any]:
    """Return an event so many seconds after the beginning."""
    return {"at": (BEGAN + timedelta(seconds=seconds)).isoformat(), "event": event, **facts}


def test_an_iteration_tells_what_it_cost_and_what_it_committed() -> None:
    """Each for itself; one that is not over tells what is known by now."""
    events = [
        at(0, "iteration.started", iteration=1),
        at(8, "agent.reported", tokens=120, cost_usd=0.25),
        at(9, "iteration.ended", iteration=1, status=0, promised=False, changed=True),
        at(10, "iteration.started", iteration=2),
        at(18, "agent.reported", tokens=80, cost_usd=None),
    ]
    commits = [
        LogEntry(f"{second:040x}", int(BEGAN.timestamp()) + second, "A", "s", ()) for second in (15, 5, 3)
    ]
    found = story(events, commits, BEGAN + timedelta(seconds=20)).iterations
    assert [(one.number, one.took, one.remarks) for one in found] == [
        (1, 9.0, ("US$ 0.25", "tokens 120", "commits 2")),
        (2, 10.0, ("not ended", "tokens 80", "commits 1")),
    ]
