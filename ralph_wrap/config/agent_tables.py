"""``[agents.NAME]`` in the configuration file: it adds or changes an agent without code."""

from __future__ import annotations

import re
from typing import Any

from ralph_wrap.config.parsers import did_you_mean
from ralph_wrap.config.settings import AgentTable

PROMPTS = ("stdin", "argument", "file")
"""How an agent can take its prompt."""

NAMES = (
    *("claude", "codex", "opencode", "copilot", "gemini", "qwen", "kimi", "droid"),
    *("agy", "aider", "amp", "crush", "cursor-agent"),
)
"""The known agents; first those that tests run. ``ralph_wrap.agents`` has a module for each."""

OUTPUTS = ("text", "claude", "codex", "opencode", "copilot", "gemini", "qwen", "kimi", "droid")
"""The known formats of an agent's output; ``ralph_wrap.agents.output`` has a module for each but ``text``."""

NAME = "[A-Za-z0-9][A-Za-z0-9_-]*"
"""A regular expression: the possible names of an agent."""

OURS = "RALPH_|GIT_(?!AUTHOR_|COMMITTER_)"
"""A regular expression: the beginnings of variables that redirect git or name a session."""

PLACES = {"argument": "{prompt}", "file": "{prompt_file}"}
"""The placeholder of the prompt in a command, for each way to take the prompt."""


class WrongTableError(ValueError):
    """A table under ``agents`` has a mistake.

    Attributes:
        hint: how to correct it.

    """

    def __init__(self, reason: str, hint: str = "see docs/agents.md") -> None:
        super().__init__(reason)
        self.hint = hint


def _wrong(keys: tuple[str, ...], reason: str) -> WrongTableError:
    return WrongTableError(f"{'.'.join(keys)}: {reason}")


def read(tables: Any) -> tuple[tuple[str, AgentTable], ...]:
    """Read the tables under ``agents``.

    Raises:
        WrongTableError: a table has a mistake; the message names the key.

    """
    if not isinstance(tables, dict):
        raise _wrong(("agents",), "tables are expected: [agents.NAME]")
    return tuple((name, _table(name, table)) for name, table in tables.items())


def _table(name: str, table: Any) -> AgentTable:
    keys = ("agents", name)
    if not re.fullmatch(NAME, name):
        raise _wrong(keys[:1], f"{name!r} is no valid name: use letters, digits, - and _")
    if not isinstance(table, dict):
        raise _wrong(keys, f"a table is expected: [{'.'.join(keys)}]")
    if unknown := [key for key in table if key not in AgentTable._fields]:
        known = AgentTable._fields
        reason = f'unknown key "{unknown[0]}" in [{".".join(keys)}]{did_you_mean(unknown[0], known)}'
        raise WrongTableError(reason, f"known: {', '.join(known)}")
    command = _command((*keys, "command"), table["command"]) if "command" in table else None
    prompt = _choice((*keys, "prompt"), table["prompt"], PROMPTS) if "prompt" in table else None
    if command and prompt in PLACES and PLACES[prompt] not in " ".join(command):
        raise _wrong((*keys, "prompt"), f"{prompt!r} needs {PLACES[prompt]} in the command")
    return AgentTable(
        command,
        prompt,
        _choice((*keys, "output"), table["output"], OUTPUTS) if "output" in table else None,
        _environment((*keys, "env"), table["env"]) if "env" in table else None,
    )


def _command(keys: tuple[str, ...], words: Any) -> tuple[str, ...]:
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _wrong(keys, 'a list of words is expected: ["mine", "--fast"]')
    if not words[0] or any("\0" in word for word in words):
        raise _wrong(keys, f"{words!r} cannot be run")
    return tuple(words)


def _choice(keys: tuple[str, ...], value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _wrong(keys, f"{value!r} is none of {', '.join(choices)}")
    return str(value)


def _environment(keys: tuple[str, ...], variables: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise _wrong(keys, 'a table of texts is expected: { NAME = "value" }')
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise _wrong(keys, f"{name!r} cannot be a variable")
        if re.match(OURS, name):
            raise _wrong(keys, f"{name} is not for an agent's table to set")
    return tuple(variables.items())
