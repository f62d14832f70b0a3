"""The story of a session, from its events and commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ralph_wrap.git.patch import LogEntry
from ralph_wrap.interfaces.web.timeline import build_timeline

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: int, event: str, **facts: Any) -> dict[str, Any]:
    """Return an event this number of seconds after the beginning."""
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
    found = build_timeline(events, commits, BEGAN + timedelta(seconds=20)).iterations
    assert [(one.number, one.took, one.remarks) for one in found] == [
        (1, 9.0, ("$0.25", "tokens 120", "commits 2")),
        (2, 10.0, ("not ended", "tokens 80", "commits 1")),
    ]


def _made_by(events: list[dict[str, Any]], commits: list[LogEntry]) -> list[str]:
    """Return what each iteration says of commits."""
    found = build_timeline(events, commits, BEGAN + timedelta(seconds=60)).iterations
    return [" ".join(remark for remark in one.remarks if "commits" in remark) for one in found]


def test_each_commit_counts_for_one_iteration() -> None:
    """For the one whose HEAD contains it first, also where several iterations share one second."""
    ids = [f"{number:040x}" for number in range(1, 7)]
    newest_first = [
        LogEntry(oid, int(BEGAN.timestamp()), "A", "s", tuple(ids[number - 1 : number]))
        for number, oid in reversed([*enumerate(ids)])
    ]
    events = [
        at(0, "iteration.started", iteration=1),
        at(0, "iteration.kept", iteration=1, head=ids[1]),
        at(0, "iteration.started", iteration=2),
        at(0, "iteration.kept", iteration=2, head=ids[1]),
        at(0, "iteration.started", iteration=3),
        at(0, "iteration.kept", iteration=3, head=ids[4]),
        at(0, "iteration.started", iteration=4),
    ]
    assert _made_by(events, newest_first) == ["commits 2", "", "commits 3", "commits 1"]


def test_commits_after_the_end_are_of_another_session() -> None:
    """They stand neither in the iterations nor in the timeline: the branch goes on with resume."""
    events = [at(0, "iteration.started", iteration=1), at(5, "session.released")]
    commits = [_commit(9, "later"), _commit(3, "mine")]
    assert _made_by(events, commits) == ["commits 1"]
    assert "later" not in _order(events, commits)


def _commit(seconds: int, subject: str = "s") -> LogEntry:
    return LogEntry(f"{seconds + 20:040x}", int(BEGAN.timestamp()) + seconds, "A", subject, ())


def _order(events: list[dict[str, Any]], commits: list[LogEntry]) -> list[str]:
    found = build_timeline(events, commits, BEGAN + timedelta(seconds=20)).events
    return [event.words if event.commit else event.event for event in found]


def test_a_commit_comes_after_what_led_to_it() -> None:
    """A commit has whole seconds, so the agent that made it started later in that second."""
    began = (BEGAN + timedelta(milliseconds=400)).isoformat()
    started = (BEGAN + timedelta(milliseconds=700)).isoformat()
    events = [
        {"at": began, "event": "session.registered"},
        {"at": started, "event": "agent.started"},
        at(2, "iteration.ended", iteration=1),
    ]
    commits = [_commit(1, "later"), _commit(0, "second"), _commit(0, "first"), _commit(-9, "early")]
    assert _order(events, commits) == [
        *("session.registered", "early", "agent.started", "first", "second", "later"),
        "iteration.ended",
    ]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (at(0, "agent.started", command=["./agent.sh", "a b"]), "the agent started: ./agent.sh 'a b'"),
        (
            at(0, "agent.reported", tokens=3, cost_usd=0.126, turns=None),
            "the agent reported tokens: 3, cost: $0.13",
        ),
        (
            at(0, "notify.ended", notified="done", status=0, output=None),
            "notify was run for done, and ended with status 0",
        ),
        (
            at(0, "new.in_a_later", resumed=True, is_x=False, n=3, x=None),
            "new in a later: resumed: yes, is x: no, n: 3",
        ),
        (at(0, "iteration.kept", head=5), "iteration kept: head: 5"),
        (at(0, "odd", facts={"a": True}, paths=[]), 'odd: facts: {"a": true}, paths: '),
        (at(0, "x.y", message="it is so", hint="do this", more=1), "it is so (do this)"),
    ],
)
def test_an_event_in_words(event: dict[str, Any], words: str) -> None:
    """A sentence, where there is one; an unknown event tells its name and its facts."""
    [found] = build_timeline([event], [], BEGAN).events
    assert found.words == words
