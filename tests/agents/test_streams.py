"""Reading streams that real agents have printed (see ``capture.py``)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents.output import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    FinalAnswer,
    ToolCall,
    Usage,
    UsageLimitReached,
)
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from tests.agents.capture import PROMISE, STREAMS
from tests.agents.refusals import UNTIL

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.agents.output import Event
from tests.agents.reading import read

SESSION = AgentSessionId("its session")

WORK = f"echo hello > made; git add made; git commit -qm made; echo '{PROMISE}'"

NOTED = "cat > 'notes.txt' <<'EOT'\nnoted\n\nEOT"

METADATA = AgentWarning(
    "Model metadata for `scripted` not found. Defaulting to fallback metadata; "
    "this can degrade performance and cause issues."
)

ANSWER = f"All is well.\n{PROMISE}"

# Claude Code: one message comes once for each of its parts, its words counted only at the end.
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
    "metered": [
        SESSION,
        AgentMessage("Working."),
        Usage(1001, None, 1),
        ToolCall("Bash", "echo one"),
        Usage(1001, None, 1),
        Usage(1100, None, 1),
        AgentMessage("Made it."),
        Usage(2101, None, 2),
        Usage(2200, 0.015, 2),
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

# Copilot CLI: it names its session at its end, and reports no tokens.
RETRIED = "Failed to get response from the AI model; retried 5 times (total retry wait time: 5.00 seconds)"

COPILOT: dict[str, list[Event]] = {
    "answer": [AgentMessage(ANSWER), SESSION, FinalAnswer(ANSWER)],
    "tools": [
        AgentMessage("Working."),
        ToolCall("bash", WORK),
        ToolCall("create", "notes.txt"),
        AgentMessage("Made it."),
        SESSION,
        FinalAnswer("Made it."),
    ],
    "limit": [
        *[AgentWarning("rate_limit: retry")] * 5,
        UsageLimitReached(f"{RETRIED} Last error: 429 Rate limit reached"),
        SESSION,
    ],
    "refused": [AgentFailure("400 The request is invalid"), SESSION],
    "interrupted": [AgentMessage("Working."), ToolCall("bash", "echo one")],
}

QWEN: dict[str, list[Event]] = {
    "answer": [
        SESSION,
        AgentMessage(ANSWER),
        Usage(1100, None, 1),
        FinalAnswer(ANSWER),
    ],
    "tools": [
        SESSION,
        AgentMessage("Working."),
        ToolCall("run_shell_command", WORK),
        Usage(1100, None, 1),
        ToolCall("write_file", "notes.txt"),
        Usage(2200, None, 2),
        AgentMessage("Made it."),
        Usage(3300, None, 3),
        FinalAnswer("Made it."),
    ],
    "limit": [
        SESSION,
        AgentMessage(
            "[API Error: 429 Rate limit reached]\nPossible quota limitations in place or slow response times "
            "detected. Please wait and try again later."
        ),
        UsageLimitReached("Rate limit reached"),
    ],
    "refused": [
        SESSION,
        AgentMessage("[API Error: 400 The request is invalid]"),
        AgentFailure("The request is invalid"),
    ],
}

# Kimi Code: what it fails with at last is on stderr only.
KIMI: dict[str, list[Event]] = {
    "answer": [AgentMessage(ANSWER), SESSION, FinalAnswer(ANSWER)],
    "tools": [
        AgentMessage("Working."),
        ToolCall("Bash", WORK),
        ToolCall("Write", "notes.txt"),
        AgentMessage("Made it."),
        SESSION,
        FinalAnswer("Made it."),
    ],
    "limit-unknown": [UsageLimitReached("429 Rate limit reached")],
    "refused": [],
    "interrupted": [AgentMessage("Working."), ToolCall("Bash", "echo one")],
}

DROID: dict[str, list[Event]] = {
    "answer": [SESSION, AgentMessage(ANSWER), Usage(1100, overall=True), FinalAnswer(ANSWER)],
    "tools": [
        SESSION,
        AgentMessage("Working."),
        ToolCall("Execute", WORK),
        ToolCall("Create", "notes.txt"),
        AgentMessage("Made it."),
        Usage(3300, overall=True),
        FinalAnswer("Made it."),
    ],
    "limit-unknown": [SESSION, UsageLimitReached("Rate limit reached")],
    "refused": [SESSION, AgentFailure("The request is invalid")],
    "interrupted": [SESSION, AgentMessage("Working."), ToolCall("Execute", "echo one")],
}

STREAMED = {
    "claude": CLAUDE,
    "codex": CODEX,
    "opencode": OPENCODE,
    "gemini": GEMINI,
    "copilot": COPILOT,
    "qwen": QWEN,
    "kimi": KIMI,
    "droid": DROID,
}
EXPECTED = {(agent, case): events for agent, cases in STREAMED.items() for case, events in cases.items()}


@pytest.fixture(autouse=True)
def _utc(_sealed: None) -> None:
    """Codex tells local time, as it is where it runs."""
    time.tzset()


@pytest.mark.parametrize(("agent", "case"), EXPECTED, ids="/".join)
def test_what_a_real_stream_tells(agent: str, case: str) -> None:
    """All of it, in order; an agent's name for its session is its own."""
    printed = read(STREAMS / agent / f"{case}.jsonl")
    assert [SESSION if isinstance(event, AgentSessionId) else event for event in printed] == EXPECTED[
        agent, case
    ]


@pytest.mark.parametrize(
    "path", sorted(STREAMS.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_line_of_a_real_stream_is_strange(path: Path) -> None:
    """Each is of the format; nothing of the machine that it was captured on is in it."""
    content = path.read_bytes()
    assert {type(event).__name__ for event in read(path)} & {"Stray", "Skipped"} == set()
    assert [word for word in (b"/root", b"/work/") if word in content] == []


def test_a_limit_of_kimi_ends_when_its_service_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells how long it waits; it was captured when the limit had that long to go."""
    (limited,) = (json.loads(line) for line in (STREAMS / "kimi/limit.jsonl").read_text().splitlines()[1:])
    monkeypatch.setattr(time, "time", lambda: UNTIL - limited["delay_ms"] / 1000)
    assert read(STREAMS / "kimi/limit.jsonl") == [UsageLimitReached("429 Rate limit reached", UNTIL)]


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
        *(("copilot/overload", True), ("qwen/overload", True), ("kimi/overload", True)),
        *(("copilot/unconnected", True), ("qwen/unconnected", True), ("kimi/unconnected", True)),
        ("droid/unconnected", True),
        *(("copilot/refused", False), ("qwen/refused", False), ("droid/refused", False)),
    ],
)
def test_which_failures_pass(agent: str, passing: object) -> None:
    """An overload and the network do, a request that is refused does not."""
    failures = [event for event in read(STREAMS / f"{agent}.jsonl") if isinstance(event, AgentFailure)]
    assert [failure.passing for failure in failures] == [passing]


@pytest.mark.parametrize(
    ("agent", "shell", "write"),
    [
        ("claude", "Bash", "Write: notes.txt"),
        ("codex", "shell", "shell: cat > 'notes.txt' <<'EOT' …"),
        ("opencode", "bash", "write: notes.txt"),
        ("gemini", "run_shell_command", "write_file: notes.txt"),
        ("copilot", "bash", "create: notes.txt"),
        ("qwen", "run_shell_command", "write_file: notes.txt"),
        ("kimi", "Bash", "Write: notes.txt"),
        ("droid", "Execute", "Create: notes.txt"),
    ],
)
def test_the_events_of_an_agents_work(agent: str, shell: str, write: str) -> None:
    """Its words, and a line for each use of a tool."""
    readable = TranscriptFormatter()
    shown = (
        b"".join(readable.show(event) for event in read(STREAMS / agent / "tools.jsonl")) + readable.finish()
    )
    lines = shown.decode().splitlines()
    assert lines[-4:] == ["Working.", f"> {shell}: {WORK}", f"> {write}", "Made it."]
    assert [line[:16] for line in lines[:-4]] == (["! Model metadata"] if agent == "codex" else [])
