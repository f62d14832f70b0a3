"""``codex exec --json`` (https://developers.openai.com/codex/noninteractive; captured from 0.169).

It reports tokens only at its end. They are the tokens of the whole thread, earlier runs included. Without a
network it waits without limit, and prints this again and again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.events import (
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    Event,
    FinalAnswer,
    ToolCall,
    Usage,
)

# "try again at 9:55 PM.", "try again at Jan 3rd, 2027 9:55 PM.": local time without seconds
_AGAIN = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}):(\d\d) ([AP]M)", re.ASCII
)
# The beginning of its message about a refused request, or about the last one after retries
_STATUS = re.compile(r"\A(?:unexpected status|exceeded retry limit, last status:) (\d{3}) ", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# /bin/bash -lc "…": a script in one word; Codex quotes it only as far as necessary
_IN_SHELL = re.compile(
    r"""(?:/\S*/)?(?:ba|z|da)?sh -l?c (?:'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s'"\\]+))""", re.DOTALL
)
_ESCAPED = re.compile(r'\\(["\\$`])')  # the characters that a backslash quotes inside double quotes


class CodexFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(
        rb'\{"type":"(?:turn\.started"|item\.updated"|item\.completed","item":\{"id":"[^"]*",'
        rb'"type":"(?:command_execution|reasoning)",)'
    )
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        self._latest = ""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind = document["type"]
        if kind in {"item.started", "item.completed"}:
            return self._item(document.get("item"), completed=kind == "item.completed")
        return self._other(kind, document)

    def _other(self, kind: str, document: dict[str, Any]) -> Iterator[Event]:
        if kind == "thread.started":
            if session := json_access.text(document, "thread_id"):
                yield AgentSessionId(session)
        elif kind == "turn.completed":
            usage = document.get("usage")
            tokens = json_access.count(usage, "input_tokens") + json_access.count(usage, "output_tokens")
            yield Usage(tokens, None, 1, overall=True)
            yield FinalAnswer(self._latest)
            self._latest = ""
        elif kind == "turn.failed":
            message = json_access.text(document, "error", "message")
            found, now = _STATUS.search(message), time.time()
            until = _until(message, now) or failure.after(message, now)
            yield failure.classified(message, int(found[1]) if found else None, until)
        elif kind == "error":
            yield AgentWarning(json_access.text(document, "message"))

    def _item(self, item: Any, *, completed: bool) -> Iterator[Event]:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind == "agent_message" and completed:
            self._latest = json_access.text(item, "text")
            yield AgentMessage(self._latest)
        elif kind == "command_execution" and not completed:
            yield ToolCall("shell", _inner(json_access.text(item, "command")))
        elif kind == "mcp_tool_call" and not completed:
            tool = f"{json_access.text(item, 'server')}.{json_access.text(item, 'tool')}"
            yield ToolCall(tool, json_access.telling(json_access.part(item, "arguments")))
        elif kind == "file_change" and completed:
            paths = (json_access.text(change, "path") for change in json_access.rows(item, "changes"))
            yield ToolCall("edit", ", ".join(path for path in paths if path))
        elif kind == "web_search" and completed:
            yield ToolCall("web_search", json_access.text(item, "query"))
        elif kind == "error" and completed:
            yield AgentWarning(json_access.text(item, "message"))


def _inner(command: str) -> str:
    """Return the script of a shell command, without the shell."""
    found = _IN_SHELL.fullmatch(command)
    if found is None:
        return command
    single, double, bare = found.groups()
    return single or bare or _ESCAPED.sub(r"\1", double or "")


def _until(message: str, now: float) -> float | None:
    """Return the time that a message names, in seconds since the epoch.

    Arguments:
        message: the message of Codex.
        now: the time of the message, for a time without a date; seconds since the epoch.

    """
    found = _AGAIN.search(message)
    if found is None:
        return None
    today = time.localtime(now)
    day = (today.tm_year, today.tm_mon, today.tm_mday)
    if found[1]:
        if found[1] not in _MONTHS:
            return None
        day = (int(found[3]), _MONTHS.index(found[1]) + 1, int(found[2]))
    hour = int(found[4]) % 12 + (12 if found[6] == "PM" else 0)
    try:
        until = time.mktime((*day, hour, int(found[5]) + 1, 0, 0, 0, -1))
    except (OverflowError, ValueError):
        return None
    return json_access.moment({"until": until}, "until")


FORMAT = CodexFormat
