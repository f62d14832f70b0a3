"""What a refusal of an agent's service means, and how long a usage limit lasts."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest

from ralph_wrap.agents.output import (
    AgentFailure,
    OutputReader,
    UsageLimitReached,
    failure,
)
from tests.agents.capture import STREAMS
from tests.agents.reading import read
from tests.agents.refusals import REFUSALS, UNTIL


@pytest.fixture(autouse=True)
def _utc(_sealed: None) -> None:
    """Codex tells local time, as it is where it runs."""
    time.tzset()


@pytest.mark.parametrize(
    ("agent", "case"), [(agent, case) for agent in REFUSALS for case in REFUSALS[agent]], ids="/".join
)
def test_what_a_refusal_means(monkeypatch: pytest.MonkeyPatch, agent: str, case: str) -> None:
    """A limit, with the time that the answer names, or a failure that passes; counted from the answer."""
    refusal = REFUSALS[agent][case]
    path = STREAMS / agent / f"{case}.jsonl"
    now = _moment_of(json.loads(path.read_bytes().splitlines()[-1]))
    monkeypatch.setattr(time, "time", lambda: now)
    event = [event for event in read(path) if isinstance(event, UsageLimitReached | AgentFailure)][-1]
    if refusal.means == "limit":
        until = refusal.until if refusal.wait is None else pytest.approx(now + refusal.wait, abs=0.01)
        assert (type(event), getattr(event, "until", None)) == (UsageLimitReached, until)
    else:
        assert isinstance(event, AgentFailure)
        assert (event.passing, event.logged_out) == (
            refusal.means == "passing",
            refusal.means == "logged-out",
        )


def _moment_of(document: dict[str, Any]) -> float:
    """Return when a line was written; some do not say."""
    printed = document.get("timestamp", NOW * 1000)
    return datetime.fromisoformat(printed).timestamp() if isinstance(printed, str) else float(printed) / 1000


HOUR = 3600

NOW = 1_900_000_000  # 17:46:40 UTC


@pytest.mark.parametrize(
    ("words", "until"),
    [
        ("try again at 6:05 PM.", NOW + 18 * 60 + 20 + 60),
        ("try again at 12:05 AM.", NOW - 17 * HOUR - 46 * 60 - 40 + 6 * 60),
        ("try again at Mar 18th, 2030 5:46 PM.", NOW + 24 * HOUR + 20),
        ("try again at Foo 18th, 2030 5:46 PM.", None),
        ("try again at Dec 31st, 9999 11:59 PM.", None),
        ("try again at Jan 1st, 0000 11:59 PM.", None),
        ("try again later.", None),
        ("", None),
    ],
)
def test_when_a_limit_of_codex_ends(monkeypatch: pytest.MonkeyPatch, words: str, until: float | None) -> None:
    """Today if no day is named; its minute has to be over."""
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    failed = {"type": "turn.failed", "error": {"message": f"You've hit your usage limit, {words}"}}
    (event,) = OutputReader("codex").feed(json.dumps(failed).encode() + b"\n")
    assert isinstance(event, UsageLimitReached)
    assert event.until == until


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 4s.", 4),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 7m12s. Visit", 7 * 60 + 12),
        ("Please retry in 14h42m6.85s.", 14 * HOUR + 42 * 60 + 6.85),
        ("Please retry in 3s.\nSuggested retry after 4s.", 4),
        ("It will reset in 2 days 3 hours.", 51 * HOUR),
        ("Your quota will reset after 0s.", 0),
        ("try again in 5 minutes, or ask", 300),
        ("try again in 3 months", None),
        ("try again in 3", None),
        ("try again in 99999999d", None),
        (f"try again in {'9' * 5000}s", None),
        ("try again in 1.2.3s", None),
        ("try again later", None),
    ],
)
def test_how_long_a_limit_lasts(words: str, seconds: float | None) -> None:
    """As long as its words say, in any unit; nonsense is no time."""
    until = failure.after(words, NOW)
    assert until == (None if seconds is None else pytest.approx(NOW + seconds, abs=0.001))
    assert failure.after(words, None) is None


@pytest.mark.parametrize(
    ("words", "status", "event"),
    [
        ("Disk quota exceeded (os error 122)", None, AgentFailure),
        ("Quota exceeded. Check your plan and billing details.", None, UsageLimitReached),
        ("Your workspace is out of credits. Add credits to continue.", None, UsageLimitReached),
        ("You hit your spend cap set in your workspace.", None, UsageLimitReached),
        ("the quota service is down", 503, AgentFailure),
        ("no words of it", 429, UsageLimitReached),
        ("context limit reached", 400, AgentFailure),
    ],
)
def test_what_words_are_of_a_limit(words: str, status: int | None, event: type) -> None:
    """The status of the answer decides; a full disk is no account."""
    assert type(failure.classified(words, status)) is event


@pytest.mark.parametrize(
    ("words", "status", "passing"),
    [
        ("We are currently experiencing high demand", None, True),
        ("Selected model is at capacity. Please try a different model.", None, True),
        ("the field 529 is missing", 400, False),
        ("nothing known", 502, True),
        ("nothing known", None, False),
    ],
)
def test_what_passes(words: str, status: int | None, passing: object) -> None:
    """Words count where the answer has no status."""
    assert failure.classified(words, status) == AgentFailure(words, passing=bool(passing))


def test_codex_is_read_by_its_status() -> None:
    """What the service has written may name any number."""
    message = "unexpected status 400 Bad Request: 512 connections are too many, url: http://h:529/v1"
    failed = {"type": "turn.failed", "error": {"message": message}}
    assert OutputReader("codex").feed(json.dumps(failed).encode() + b"\n") == [AgentFailure(message)]


@pytest.mark.parametrize(
    ("data", "until"),
    [
        ({"responseHeaders": {"retry-after": "60"}}, NOW + 60),
        (
            {"responseHeaders": {"anthropic-ratelimit-unified-reset": str(UNTIL + 5), "retry-after": "9"}},
            UNTIL + 5,
        ),
        ({"responseBody": json.dumps({"error": {"resets_at": UNTIL + 7}})}, UNTIL + 7),
        ({"responseBody": json.dumps({"error": {"resets_in_seconds": 8}})}, NOW + 8),
        ({"message": "reset in 2 hours"}, NOW + 2 * HOUR),
        ({"responseHeaders": {"retry-after": "soon"}, "responseBody": "[" * 100_000}, None),
        ({"responseHeaders": {"retry-after": "95617583999"}}, None),
        ({"responseHeaders": {"retry-after": "1e400"}, "responseBody": "[1]"}, None),
        ({"responseHeaders": "none", "responseBody": {}}, None),
    ],
)
def test_when_a_limit_of_opencode_ends(data: dict[str, Any], until: float | None) -> None:
    """At the time that the service names, in any of its forms."""
    printed = {"message": "none", "statusCode": 429, **data}
    document = {"type": "error", "timestamp": NOW * 1000, "error": {"name": "APIError", "data": printed}}
    (event,) = OutputReader("opencode").feed(json.dumps(document).encode() + b"\n")
    assert event == UsageLimitReached(printed["message"], until)
