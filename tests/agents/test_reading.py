"""Readers of agents' formats, against damaged and unusual streams."""

from __future__ import annotations

import json
import time
import tracemalloc
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ralph_wrap.agents import output
from ralph_wrap.agents.output import (
    FORMATS,
    LONGEST,
    AgentMessage,
    FinalAnswer,
    OutputReader,
    SkippedLine,
    UnparsedLine,
    UsageLimitReached,
)
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from tests.agents.capture import STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.agents.output import Event

REAL = {path: path.read_bytes() for path in sorted(STREAMS.glob("*/*.jsonl"))}
WORDS = sorted(
    {
        *("type", "message", "content", "text", "usage", "item", "part", "state", "input", "error", "data"),
        *(
            "tokens",
            "cache",
            "model",
            "id",
            "name",
            "result",
            "stats",
            "status",
            "rate_limit_info",
            "changes",
        ),
        *("assistant", "system", "init", "api_retry", "rate_limit_event", "rejected", "tool_use", "success"),
        *(
            "item.completed",
            "item.started",
            "agent_message",
            "command_execution",
            "turn.completed",
            "command",
        ),
        *(
            "turn.failed",
            "file_change",
            "step_start",
            "step_finish",
            "tool",
            "tool_name",
            "parameters",
            "role",
        ),
        *("total_cost_usd", "num_turns", "modelUsage", "input_tokens", "total_tokens", "cost", "resetsAt"),
        *("api_error_status", "is_error", "errors", "subtype", "path", "delta", "subagent", "severity"),
        *("responseHeaders", "responseBody", "statusCode", "isRetryable", "timestamp", "retry-after"),
        *("2026-11-22T09:41:35.072Z", "[API Error: quota]\nPlease wait and try again later.", "429", "1e999"),
        *("anthropic-ratelimit-unified-reset", '{"error": {"resets_at": 1e10, "code": 503}}'),
        "try again at Feb 31st, 9999 11:59 PM usage limit",
    }
)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=8)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)
KINDS = [
    *(
        "assistant",
        "result",
        "rate_limit_event",
        "system",
        "item.started",
        "item.completed",
        "thread.started",
    ),
    *("turn.completed", "turn.failed", "error", "step_start", "step_finish", "text", "tool_use", "message"),
    *("init", "user", "tool_result"),
]
DOCUMENT = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(WORDS), VALUE, max_size=6),
)
LINE = (
    st.binary(max_size=40)
    | DOCUMENT.map(lambda document: json.dumps(document).encode())
    | DOCUMENT.map(lambda document: json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    | VALUE.map(lambda value: json.dumps(value).encode())
    | st.sampled_from(sorted({line for content in REAL.values() for line in content.splitlines()}))
)
STREAM = st.lists(LINE, max_size=8).map(b"\n".join)


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock: Codex tells how long a limit lasts, and not since when."""
    monkeypatch.setattr(time, "time", lambda: 1_900_000_000.0)


def _events(output: str, pieces: Sequence[bytes]) -> list[Event]:
    reader = OutputReader(output)
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.finish()]


def _cut(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges)]


@pytest.mark.parametrize("output", FORMATS)
@given(stream=STREAM, cuts=st.lists(st.integers(0, 4000), max_size=6))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(stream=b'{"type":"result","result":"\xff\xfe"}\n{"type":', cuts=[1])
@example(stream=b"[" * 100_000, cuts=[])
@example(stream=b'{"type":"result","modelUsage":{"m":{"inputTokens":1e400,"outputTokens":-5}}}', cuts=[])
@example(stream=b'{"type":"result","is_error":true,"result":"\\ud800"}', cuts=[])
def test_whatever_comes_is_read_however_it_is_cut(output: str, stream: bytes, cuts: list[int]) -> None:
    """Nothing raises; the events are the same in any pieces, and each can be shown, as whole lines."""
    events = _events(output, [stream])
    assert repr(_events(output, _cut(stream, cuts))) == repr(events)  # NaN is not equal to itself
    readable = TranscriptFormatter()
    shown = b"".join(readable.show(event) for event in events) + readable.finish()
    assert shown == b"" or shown.endswith(b"\n")
    for event in events:
        if isinstance(event, UsageLimitReached) and event.until is not None:
            assert datetime.fromtimestamp(event.until, UTC).year < 5001


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_stream_is_read_byte_by_byte(path: Any) -> None:
    """In the middle of a character, too."""
    stream = REAL[path]
    output = path.parent.name
    assert _events(output, [stream[position : position + 1] for position in range(len(stream))]) == _events(
        output, [stream]
    )


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_stream_that_is_cut_short_tells_what_came_until_then(path: Any) -> None:
    """Half a line at its end is text."""
    stream = REAL[path]
    lines = stream.splitlines(keepends=True)
    half = lines[-1][: len(lines[-1]) // 2]
    before = _events(path.parent.name, [b"".join(lines[:-1])])
    ignored = import_module(f"{output.__name__}.{path.parent.name}").FORMAT.ignored
    printed = [] if ignored.match(half) else [UnparsedLine(half)]
    assert _events(path.parent.name, [b"".join(lines[:-1]) + half]) == [*before, *printed]


def _answer(output: str, words: str) -> bytes:
    """Return how a format tells its final answer."""
    documents: dict[str, list[dict[str, Any]]] = {
        "claude": [{"type": "result", "subtype": "success", "is_error": False, "result": words}],
        "codex": [
            {"type": "item.completed", "item": {"type": "agent_message", "text": words}},
            {"type": "turn.completed", "usage": {}},
        ],
        "opencode": [
            {"type": "text", "part": {"text": words}},
            {"type": "step_finish", "part": {"reason": "stop"}},
        ],
        "gemini": [
            {"type": "message", "role": "assistant", "content": words},
            {"type": "result", "status": "success"},
        ],
        "copilot": [
            {"type": "assistant.message", "data": {"content": words}},
            {"type": "result", "exitCode": 0},
        ],
        "qwen": [{"type": "result", "subtype": "success", "is_error": False, "result": words}],
        "kimi": [
            {"role": "assistant", "content": words},
            {"role": "meta", "type": "session.resume_hint"},
        ],
        "droid": [{"type": "completion", "finalText": words}],
    }
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents[output])


@pytest.mark.parametrize("output", FORMATS)
def test_lines_that_are_not_of_the_format_are_text(output: str) -> None:
    """Between those that are; byte for byte."""
    noise = b"npm warn \xff\xfe\r"
    events = _events(output, [b"\n".join([noise, b"", b"[1]", b'{"no":"type"}', _answer(output, "Done.")])])
    assert events[:4] == [
        UnparsedLine(noise),
        UnparsedLine(b""),
        UnparsedLine(b"[1]"),
        UnparsedLine(b'{"no":"type"}'),
    ]
    assert [event for event in events if isinstance(event, FinalAnswer)] == [FinalAnswer("Done.")]


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("start", [b"", b'{"type":"text","part":{"text":"'])
def test_a_line_of_50_mb_takes_no_memory(output: str, start: bytes) -> None:
    """It is counted, and what follows is read."""
    reader = OutputReader(output)
    piece = b"x" * 65536
    count = 50_000_000 // len(piece)
    tracemalloc.start()
    try:
        events = reader.feed(start)
        for _ in range(count):
            events += reader.feed(piece)
        events += reader.feed(b"\n" + _answer(output, "Done."))
        assert tracemalloc.get_traced_memory()[1] < 4 * LONGEST
    finally:
        tracemalloc.stop()
    assert events[0] == SkippedLine(len(start) + count * len(piece))
    assert FinalAnswer("Done.") in events


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("excess", [0, 1])
def test_how_long_a_line_may_be(output: str, excess: int) -> None:
    """The limit itself is still read, in one piece as in many."""
    line = b"x" * (LONGEST + excess)
    expected = [SkippedLine(len(line)) if excess else UnparsedLine(line)]
    for stream in (line, line + b"\n", b"\n" + line + b"\n"):
        before = [UnparsedLine(b"")] if stream.startswith(b"\n") else []
        assert _events(output, [stream]) == before + expected
        assert _events(output, [stream[:100_000], stream[100_000:]]) == before + expected


@pytest.mark.parametrize("output", FORMATS)
def test_each_iteration_is_read_by_itself(output: str) -> None:
    """What was spent is counted anew, and half a line is not completed by the next iteration."""
    reader = OutputReader(output)
    stream = REAL[STREAMS / output / "tools.jsonl"]
    first = [*reader.feed(stream), *reader.finish()]
    reader.feed(b'{"type":')
    assert reader.finish() == [UnparsedLine(b'{"type":')]
    assert [*reader.feed(stream), *reader.finish()] == first


def test_what_a_model_says_does_not_drive_a_terminal() -> None:
    """No escape sequence, no carriage return; tabs and other languages stay."""
    readable = TranscriptFormatter()
    said = readable.show(AgentMessage("\x1b[2Jgone\r\x9b31m\tÜber \x07 \ud800\n\n"))
    assert said.decode() == "\\x1b[2Jgone\\r\\x9b31m\tÜber \\x07 \\ud800\n"


def test_words_that_come_in_pieces_are_shown_as_lines() -> None:
    """What others print meanwhile begins on a line of its own; the last one is ended."""
    readable = TranscriptFormatter()
    pieces = ["One", ", two\nThr", "ee", "\n", "Four"]
    shown = [readable.show(AgentMessage(piece, goes_on=True)) for piece in pieces]
    assert shown == [b"", b"One, two\n", b"", b"Three\n", b""]
    assert readable.show(UnparsedLine(b"noise")) == b"Four\nnoise\n"
    assert readable.finish() == b""
