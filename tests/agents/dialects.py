"""The protocols that the scripted model speaks, each as far as the agents' command lines need it.

- Anthropic Messages (https://docs.anthropic.com/en/api/messages-streaming), for Claude Code;
- OpenAI Responses (https://platform.openai.com/docs/api-reference/responses-streaming), for Codex;
- OpenAI chat completions (https://platform.openai.com/docs/api-reference/chat-streaming), for opencode,
  Copilot CLI, Qwen Code, Kimi Code and Droid;
- Gemini (https://ai.google.dev/api/generate-content), for Gemini CLI.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.agents.script import INPUT_TOKENS, OUTPUT_TOKENS, Say, Shell, Turn, Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


HURRY = {"retry-after-ms": "1"}
"""For opencode, which else waits 2 to 30 s before each of five more attempts, or as the server says."""


def _sse(data: Any, *, named: bool = False) -> str:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _cut(turn: Say) -> list[str]:
    size = max(1, -(-len(turn.text) // turn.pieces))
    return [turn.text[position : position + size] for position in range(0, len(turn.text), size)]


class Dialect:
    """A protocol.

    Attributes:
        hurry: headers of an error, for agents that would wait before they ask again.

    """

    hurry: Mapping[str, str] = {}

    def speaks(self, path: str) -> bool:
        """Return whether a path is of it."""
        raise NotImplementedError

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        """Return whether the answer is to be server-sent events."""
        del path
        return bool(body.get("stream"))

    def answered(self, body: dict[str, Any]) -> int:
        """Return how many tools have answered in a conversation."""
        raise NotImplementedError

    def events(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        """Return the answer as server-sent events."""
        raise NotImplementedError

    def whole(self, turn: Turn, body: dict[str, Any]) -> Any:
        """Return the answer as one document."""
        raise NotImplementedError

    def error(self, status: int) -> Any:
        """Return the document of an error."""
        words = "The server is overloaded" if status >= 500 else "The request is invalid"
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"type": kind, "code": status, "message": words}}

    def limited(self, until: int | None) -> tuple[Any, dict[str, str]]:
        """Return document and headers of a usage limit that is reached."""
        raise NotImplementedError


class _Anthropic(Dialect):
    def speaks(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/v1/messages")

    def answered(self, body: dict[str, Any]) -> int:
        blocks = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
        return sum(block.get("type") == "tool_result" for content in blocks for block in content)

    def _blocks(self, turn: Turn, number: int) -> list[dict[str, Any]]:
        if isinstance(turn, Say):
            thought = (
                [{"type": "thinking", "thinking": turn.thought, "signature": "s"}] if turn.thought else []
            )
            return [*thought, {"type": "text", "text": turn.text}]
        if isinstance(turn, Shell):
            words = [{"type": "text", "text": turn.text}] if turn.text else []
            tool = {"name": "Bash", "input": {"command": turn.command, "description": "Run it"}}
        else:
            assert isinstance(turn, Write)
            words, tool = [], {"name": "Write", "input": {"file_path": turn.path, "content": turn.content}}
        return [*words, {"type": "tool_use", "id": f"toolu_{number}", **tool}]

    def whole(self, turn: Turn, body: dict[str, Any]) -> Any:
        blocks = self._blocks(turn, self.answered(body))
        return {
            "id": f"msg_{self.answered(body)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": INPUT_TOKENS,
                "output_tokens": turn.output_tokens if isinstance(turn, Shell) else OUTPUT_TOKENS,
            },
        }

    def events(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        message = self.whole(turn, body)
        used = {"output_tokens": message["usage"]["output_tokens"]}
        blocks, reason = message["content"], message["stop_reason"]
        begun = {
            **message,
            "content": [],
            "stop_reason": None,
            "usage": {**message["usage"], "output_tokens": 1},
        }
        yield _sse({"type": "message_start", "message": begun}, named=True)
        for index, block in enumerate(blocks):
            kind = block["type"]
            empty = {
                "text": {"text": ""},
                "thinking": {"thinking": "", "signature": ""},
                "tool_use": {"input": {}},
            }
            start = {"type": "content_block_start", "index": index, "content_block": block | empty[kind]}
            yield _sse(start, named=True)
            deltas: list[dict[str, Any]]
            if kind == "text":
                pieces = _cut(turn) if isinstance(turn, Say) else [block["text"]]
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
            elif kind == "thinking":
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas.append({"type": "signature_delta", "signature": "s"})
            else:
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            for delta in deltas:
                yield _sse({"type": "content_block_delta", "index": index, "delta": delta}, named=True)
            yield _sse({"type": "content_block_stop", "index": index}, named=True)
        end = {"stop_reason": reason, "stop_sequence": None}
        yield _sse({"type": "message_delta", "delta": end, "usage": used}, named=True)
        yield _sse({"type": "message_stop"}, named=True)

    def error(self, status: int) -> Any:
        kind = {400: "invalid_request_error", 529: "overloaded_error"}.get(status, "api_error")
        words = "Overloaded" if status >= 500 else "The request is invalid"
        return {"type": "error", "error": {"type": kind, "message": words}}

    def limited(self, until: int | None) -> tuple[Any, dict[str, str]]:
        body = {
            "type": "error",
            "error": {"type": "rate_limit_error", "message": "This account has reached its limit"},
        }
        headers = {"anthropic-ratelimit-unified-status": "rejected", "x-should-retry": "false"}
        if until is not None:
            headers["anthropic-ratelimit-unified-reset"] = str(until)
            headers["anthropic-ratelimit-unified-representative-claim"] = "five_hour"
        return body, headers


class _Responses(Dialect):
    def speaks(self, path: str) -> bool:
        return path.endswith("/v1/responses")

    def answered(self, body: dict[str, Any]) -> int:
        return sum(str(item.get("type")).endswith("_call_output") for item in body["input"])

    def _items(self, turn: Turn, body: dict[str, Any]) -> list[dict[str, Any]]:
        def message(text: str) -> dict[str, Any]:
            return {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "content": [{"type": "output_text", "text": text}],
            }

        if isinstance(turn, Say):
            summary = [{"type": "summary_text", "text": turn.thought}]
            thought = [{"type": "reasoning", "id": "rs_1", "summary": summary}] if turn.thought else []
            return [*thought, message(turn.text)]
        if isinstance(turn, Shell):
            command, words = turn.command, [message(turn.text)] if turn.text else []
        else:
            assert isinstance(turn, Write)
            command, words = f"cat > '{turn.path}' <<'EOT'\n{turn.content}\nEOT", []
        call = {"type": "function_call", "call_id": f"call_{self.answered(body)}", **_shell_of(body, command)}
        return [*words, call]

    def events(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
        yield _sse({"type": "response.created", "response": response}, named=True)
        for number, item in enumerate(self._items(turn, body)):
            if isinstance(turn, Say) and turn.pieces > 1:
                for piece in _cut(turn):
                    yield _sse({"type": "response.output_text.delta", "delta": piece}, named=True)
            done = {"type": "response.output_item.done", "output_index": number, "item": item}
            yield _sse(done, named=True)
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        completed = {**response, "status": "completed", "usage": usage}
        yield _sse({"type": "response.completed", "response": completed}, named=True)

    def limited(self, until: int | None) -> tuple[Any, dict[str, str]]:
        error = {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
        }
        return {"error": error if until is None else {**error, "resets_at": until}}, {}


def _shell_of(body: dict[str, Any], command: str) -> dict[str, str]:
    """Return name and arguments of the shell tool that a Codex offers: it differs from model to model."""
    names = {tool.get("name") for tool in body["tools"]}
    if "exec_command" in names:
        return {"name": "exec_command", "arguments": json.dumps({"cmd": command})}
    if "shell_command" in names:
        return {"name": "shell_command", "arguments": json.dumps({"command": command})}
    return {"name": "shell", "arguments": json.dumps({"command": ["bash", "-c", command]})}


# The tools of the agents that speak chat completions: for each name, its parameters.
_SHELLS = {
    "bash": ("command", "description"),  # opencode, copilot
    "Bash": ("command", "description"),  # kimi
    "run_shell_command": ("command", "description"),  # qwen
    "Execute": ("command", "summary"),  # droid
}
_WRITERS = {
    "write": ("filePath", "content"),  # opencode
    "create": ("path", "file_text"),  # copilot
    "Write": ("path", "content"),  # kimi
    "write_file": ("file_path", "content"),  # qwen
    "Create": ("file_path", "content"),  # droid
}


def _tool_of(
    body: dict[str, Any], known: Mapping[str, tuple[str, str]], first: str, second: str = "Run it"
) -> tuple[str, dict[str, str]]:
    """Return name and arguments of the tool that an agent offers."""
    offered = {tool["function"]["name"] for tool in body["tools"]}
    name = next(name for name in known if name in offered)
    return name, dict(zip(known[name], (first, second), strict=True))


class _Chat(Dialect):
    hurry: Mapping[str, str] = HURRY

    def speaks(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def answered(self, body: dict[str, Any]) -> int:
        return sum(message["role"] == "tool" for message in body["messages"])

    def events(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            base = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
            return _sse({**base, "choices": [choice], **more})

        yield chunk({"role": "assistant", "content": ""})
        reason = "stop"
        if isinstance(turn, Say):
            if turn.thought:
                yield chunk({"reasoning_content": turn.thought})
            for piece in _cut(turn):
                yield chunk({"content": piece})
        else:
            reason = "tool_calls"
            if isinstance(turn, Shell):
                if turn.text:
                    yield chunk({"content": turn.text})
                name, given = _tool_of(body, _SHELLS, turn.command)
            else:
                assert isinstance(turn, Write)
                name, given = _tool_of(body, _WRITERS, turn.path, turn.content)
            function = {"name": name, "arguments": json.dumps(given)}
            call = {"index": 0, "id": f"call_{self.answered(body)}", "type": "function", "function": function}
            yield chunk({"tool_calls": [call]})
        total = INPUT_TOKENS + OUTPUT_TOKENS
        usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}
        yield chunk({}, reason, usage=usage)
        yield "data: [DONE]\n\n"

    def limited(self, until: int | None) -> tuple[Any, dict[str, str]]:
        pause = {} if until is None else {"retry-after": str(max(0, until - int(time.time())))}
        error = {"type": "requests", "code": "rate_limit_exceeded", "message": "Rate limit reached"}
        return {"error": error}, {**self.hurry, **pause}


class _Gemini(Dialect):
    def speaks(self, path: str) -> bool:
        return "GenerateContent" in path or "generateContent" in path

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        del body
        return "streamGenerateContent" in path

    def answered(self, body: dict[str, Any]) -> int:
        return sum("functionResponse" in part for content in body["contents"] for part in content["parts"])

    def _chunks(self, turn: Turn) -> list[list[dict[str, Any]]]:
        if isinstance(turn, Say):
            thought = [[{"text": turn.thought, "thought": True}]] if turn.thought else []
            return [*thought, *([{"text": piece}] for piece in _cut(turn))]
        if isinstance(turn, Shell):
            words = [{"text": turn.text}] if turn.text else []
            call = {"name": "run_shell_command", "args": {"command": turn.command, "description": "Run it"}}
        else:
            assert isinstance(turn, Write)
            words, call = (
                [],
                {"name": "write_file", "args": {"file_path": turn.path, "content": turn.content}},
            )
        return [[*words, {"functionCall": call}]]

    def _document(self, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        usage = {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        return {
            "candidates": [candidate | ({"finishReason": "STOP"} if last else {})],
            "usageMetadata": usage,
        }

    def events(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        del body
        chunks = self._chunks(turn)
        for number, parts in enumerate(chunks, 1):
            yield _sse(self._document(parts, last=number == len(chunks)))

    def whole(self, turn: Turn, body: dict[str, Any]) -> Any:
        del body
        parts = [part for chunk in self._chunks(turn) for part in chunk]
        return self._document(parts, last=True)

    def error(self, status: int) -> Any:
        kind, words = "UNAVAILABLE", "The model is overloaded."
        if status < 500:
            kind, words = "INVALID_ARGUMENT", "Request contains an invalid argument."
        return {"error": {"code": status, "message": words, "status": kind}}

    def limited(self, until: int | None) -> tuple[Any, dict[str, str]]:
        details: list[dict[str, Any]] = [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
            }
        ]
        if until is not None:
            delay = f"{max(0, until - int(time.time()))}s"
            details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
        message = "You exceeded your current quota"
        return {
            "error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}
        }, {}


DIALECTS: tuple[Dialect, ...] = (_Anthropic(), _Responses(), _Chat(), _Gemini())
