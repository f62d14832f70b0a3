"""What is read from streams that real agents have printed (see ``capture.py``)."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.agents.output import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    FinalAnswer,
    OutputReader,
    ToolCall,
    Usage,
    UsageLimitReached,
    failure,
)
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from tests.agents.capture import PROMISE, STREAMS
from tests.agents.refusals import REFUSALS, UNTIL

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.agents.output import Event

SESSION = AgentSessionId("its session")
WORK = f"echo hello > made; git add made; git commit -qm made; echo '{PROMISE}'"
NOTED = "cat > 'notes.txt' <<'EOT'\nnoted\n\nEOT"
METADATA = AgentWarning(
    "Model metadata for `scripted` not found. Defaulting to fallback metadata; "
    "this can degrade performance and cause issues."
)
ANSWER = f"All is well.\n{PROMISE}"

# Claude Code: one message is told once for each of its parts, its words counted only at the end.
CLAUDE: dict[str, list[Event]] = {
    "answer": [
        SESSION,
        Usage(1001, None, 1),
        AgentMessage(ANSWER),
        Usage(1001, None, 1),
        Usage(1100, 0.0075, 1),
        FinalAnswer(ANSWER),
    ],
    "thought": [
        SESSION,
        Usage(1001, None, 1),
        AgentMessage("Not yet."),
        Usage(1001, None, 1),
        Usage(1100, 0.0075, 1),
        FinalAnswer("Not yet."),
    ],
    "tools": [
        SESSION,
        AgentMessage("Working."),
        Usage(1001, None, 1),
        ToolCall("Bash", WORK),
        Usage(1001, None, 1),
        ToolCall("Write", "notes.txt"),
        Usage(2002, None, 2),
        AgentMessage("Made it."),
        Usage(3003, None, 3),
        Usage(3300, 0.0225, 3),
        FinalAnswer("Made it."),
    ],
    "limit": [
        SESSION,
        Usage(0, 0, 1),
        UsageLimitReached("You've hit your session limit · resets Mar 17, 2030, 5:46pm (UTC)", UNTIL),
    ],
    "limit-unknown": [
        SESSION,
        Usage(0, 0, 1),
        UsageLimitReached("API Error: Request rejected (429) · This account has reached its limit"),
    ],
    "refused": [SESSION, Usage(0, 0, 1), AgentFailure("API Error: 400 The request is invalid")],
    "interrupted": [
        SESSION,
        AgentMessage("Working."),
        Usage(1001, None, 1),
        ToolCall("Bash", "echo one"),
        Usage(1001, None, 1),
    ],
}

HIT = (
    "You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit "  # noqa: RUF001
    "https://chatgpt.com/settings/usage to purchase more credits or try again"
)
INVALID = '{"error": {"type": "invalid_request_error", "code": 400, "message": "The request is invalid"}}'
CODEX: dict[str, list[Event]] = {
    "answer": [
        SESSION,
        METADATA,
        AgentMessage(ANSWER),
        Usage(1100, None, 1, overall=True),
        FinalAnswer(ANSWER),
    ],
    "thought": [
        SESSION,
        METADATA,
        AgentMessage("Not yet."),
        Usage(1100, None, 1, overall=True),
        FinalAnswer("Not yet."),
    ],
    "tools": [
        SESSION,
        METADATA,
        AgentMessage("Working."),
        ToolCall("shell", WORK),
        ToolCall("shell", NOTED),
        AgentMessage("Made it."),
        Usage(3300, None, 1, overall=True),
        FinalAnswer("Made it."),
    ],
    "limit": [
        SESSION,
        METADATA,
        AgentWarning(f"{HIT} at Mar 17th, 2030 5:46 PM."),
        UsageLimitReached(f"{HIT} at Mar 17th, 2030 5:46 PM.", UNTIL + 20),  # it tells no seconds
    ],
    "limit-unknown": [SESSION, METADATA, AgentWarning(f"{HIT} later."), UsageLimitReached(f"{HIT} later.")],
    "refused": [SESSION, METADATA, AgentWarning(INVALID), AgentFailure(INVALID)],
    "dropped": [
        SESSION,
        METADATA,
        AgentWarning(
            "Reconnecting... 1/1 (stream disconnected before completion: stream closed before "
            "response.completed)"
        ),
        AgentWarning("stream disconnected before completion: stream closed before response.completed"),
        AgentFailure(
            "stream disconnected before completion: stream closed before response.completed", passing=True
        ),
    ],
    "interrupted": [SESSION, METADATA, AgentMessage("Working."), ToolCall("shell", "echo one")],
}
OPENCODE: dict[str, list[Event]] = {
    "answer": [SESSION, AgentMessage(ANSWER), Usage(1100, 0.0012, 1), FinalAnswer(ANSWER)],
    "thought": [SESSION, AgentMessage("Not yet."), Usage(1100, 0.0012, 1), FinalAnswer("Not yet.")],
    "tools": [
        SESSION,
        AgentMessage("Working."),
        ToolCall("bash", WORK),
        Usage(1100, 0.0012, 1),
        ToolCall("write", "notes.txt"),
        Usage(2200, 0.0024, 2),
        AgentMessage("Made it."),
        Usage(3300, 0.0012 + 0.0012 + 0.0012, 3),
        FinalAnswer("Made it."),
    ],
    "limit": [UsageLimitReached("Rate limit reached", UNTIL + 0.763)],  # counted from when it tells
    "refused": [AgentFailure("The request is invalid")],
    "interrupted": [SESSION, AgentMessage("Working."), ToolCall("bash", "echo one"), Usage(1100, 0.0012, 1)],
}
GEMINI: dict[str, list[Event]] = {
    "answer": [SESSION, AgentMessage(ANSWER, goes_on=True), Usage(1100), FinalAnswer(ANSWER)],
    "thought": [SESSION, AgentMessage("Not yet.", goes_on=True), Usage(1100), FinalAnswer("Not yet.")],
    "pieces": [
        SESSION,
        *[AgentMessage(piece, goes_on=True) for piece in ("One, ", "two, ", "three", ".\nFou", "r.")],
        Usage(1100),
        FinalAnswer("One, two, three.\nFour."),
    ],
    "tools": [
        SESSION,
        AgentMessage("Working.", goes_on=True),
        ToolCall("run_shell_command", WORK),
        ToolCall("write_file", "notes.txt"),
        AgentMessage("Made it.", goes_on=True),
        Usage(3300),
        FinalAnswer("Made it."),
    ],
    "limit": [SESSION, Usage(0), UsageLimitReached("You have exhausted your daily quota on this model.")],
    "refused": [
        SESSION,
        Usage(0),
        AgentFailure("Request contains an invalid argument."),
    ],
    "overload": [
        SESSION,
        Usage(0),
        AgentFailure("The model is overloaded.", passing=True),
    ],
    "interrupted": [
        SESSION,
        AgentMessage("Working.", goes_on=True),
        ToolCall("run_shell_command", "echo one"),
    ],
}
EXPECTED = {
    (agent, case): events
    for agent, cases in {"claude": CLAUDE, "codex": CODEX, "opencode": OPENCODE, "gemini": GEMINI}.items()
    for case, events in cases.items()
}


def _read(path: Path) -> list[Event]:
    reader = OutputReader(path.parent.name)
    return [*reader.feed(path.read_bytes()), *reader.finish()]


@pytest.fixture(autouse=True)
def _utc(_sealed: None) -> None:
    """Codex tells local time, as it is where it runs."""
    time.tzset()


@pytest.mark.parametrize(("agent", "case"), EXPECTED, ids="/".join)
def test_what_a_real_stream_tells(agent: str, case: str) -> None:
    """All of it, in order; an agent's name for its session is its own."""
    told = _read(STREAMS / agent / f"{case}.jsonl")
    assert [SESSION if isinstance(event, AgentSessionId) else event for event in told] == EXPECTED[
        agent, case
    ]


@pytest.mark.parametrize(
    "path", sorted(STREAMS.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_line_of_a_real_stream_is_strange(path: Path) -> None:
    """Each is of the format; nothing of the machine that it was captured on is in it."""
    content = path.read_bytes()
    assert {type(event).__name__ for event in _read(path)} & {"Stray", "Skipped"} == set()
    assert [word for word in (b"/root", b"/work/") if word in content] == []


@pytest.mark.parametrize(
    ("agent", "passing"),
    [
        *(
            ("claude/overload", True),
            ("codex/overload", True),
            ("codex/dropped", True),
            ("gemini/overload", True),
            ("opencode/overload", True),
        ),
        *(("claude/unconnected", True), ("opencode/unconnected", True), ("gemini/unconnected", True)),
        *(("claude/refused", False), ("codex/refused", False), ("opencode/refused", False)),
        ("gemini/refused", False),
    ],
)
def test_which_failures_pass(agent: str, passing: object) -> None:
    """An overload and the network do, a request that is refused does not."""
    failures = [event for event in _read(STREAMS / f"{agent}.jsonl") if isinstance(event, AgentFailure)]
    assert [failure.passing for failure in failures] == [passing]


@pytest.mark.parametrize(
    ("agent", "shell", "write"),
    [
        ("claude", "Bash", "Write: notes.txt"),
        ("codex", "shell", "shell: cat > 'notes.txt' <<'EOT' …"),
        ("opencode", "bash", "write: notes.txt"),
        ("gemini", "run_shell_command", "write_file: notes.txt"),
    ],
)
def test_what_is_seen_of_an_agents_work(agent: str, shell: str, write: str) -> None:
    """Its words, and a line for each use of a tool."""
    readable = TranscriptFormatter()
    shown = (
        b"".join(readable.show(event) for event in _read(STREAMS / agent / "tools.jsonl")) + readable.finish()
    )
    lines = shown.decode().splitlines()
    assert lines[-4:] == ["Working.", f"> {shell}: {WORK}", f"> {write}", "Made it."]
    assert [line[:16] for line in lines[:-4]] == (["! Model metadata"] if agent == "codex" else [])


@pytest.mark.parametrize(
    ("agent", "case"), [(agent, case) for agent in REFUSALS for case in REFUSALS[agent]], ids="/".join
)
def test_what_a_refusal_means(monkeypatch: pytest.MonkeyPatch, agent: str, case: str) -> None:
    """A limit, with the time that was told, or a failure that passes; counted from the moment it was told."""
    refusal = REFUSALS[agent][case]
    path = STREAMS / agent / f"{case}.jsonl"
    now = _moment_of(json.loads(path.read_bytes().splitlines()[-1]))
    monkeypatch.setattr(time, "time", lambda: now)
    event = [event for event in _read(path) if isinstance(event, UsageLimitReached | AgentFailure)][-1]
    if refusal.means == "limit":
        until = refusal.until if refusal.wait is None else pytest.approx(now + refusal.wait, abs=0.01)
        assert (type(event), getattr(event, "until", None)) == (UsageLimitReached, until)
    else:
        assert isinstance(event, AgentFailure)
        assert event.passing is (refusal.means == "passing")


def _moment_of(document: dict[str, Any]) -> float:
    """Return when a line was written; some do not say."""
    told = document.get("timestamp", NOW * 1000)
    return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else float(told) / 1000


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
    assert type(failure.judged(words, status)) is event


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
    """Words count where no status was told."""
    assert failure.judged(words, status) == AgentFailure(words, passing=bool(passing))


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
    """As the service has told it, in whatever way."""
    told = {"message": "none", "statusCode": 429, **data}
    document = {"type": "error", "timestamp": NOW * 1000, "error": {"name": "APIError", "data": told}}
    (event,) = OutputReader("opencode").feed(json.dumps(document).encode() + b"\n")
    assert event == UsageLimitReached(told["message"], until)
