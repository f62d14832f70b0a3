"""``[agents.NAME]`` in the configuration file: agents that are added, or changed, without code."""

from __future__ import annotations

import re
from typing import Any

from ralph_wrap.config.settings import AgentTable

PROMPTS = ("stdin", "argument", "file")
"""How an agent can take its prompt."""

OUTPUTS = ("text", "claude", "codex", "opencode", "gemini")
"""What the output of an agent can be."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# What leads git elsewhere, or says who a session is, is not an agent's to be told by a file.
_OURS = re.compile(r"RALPH_|GIT_(?!AUTHOR_|COMMITTER_)")
_PLACES = {"argument": "{prompt}", "file": "{prompt_file}"}


def read(tables: Any) -> tuple[tuple[str, AgentTable], ...]:
    """Read what stands under ``agents``.

    Raises:
        ValueError: it is not as it should be; says what and where below ``agents``.

    """
    if not isinstance(tables, dict):
        raise ValueError("agents: tables are expected: [agents.NAME]")  # noqa: TRY004 -- of a value, as all others
    return tuple((name, _table(name, table)) for name, table in tables.items())


def _table(name: str, table: Any) -> AgentTable:
    place = f"agents.{name}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"agents: {name!r} is no name: letters, digits, - and _ are")
    if not isinstance(table, dict):
        raise ValueError(f"{place}: a table is expected: [{place}]")  # noqa: TRY004 -- as above
    unknown = table.keys() - {*AgentTable._fields}
    if unknown:
        raise ValueError(f"{place}.{min(unknown)}: unknown key; known: {', '.join(AgentTable._fields)}")
    command = _command(f"{place}.command", table["command"]) if "command" in table else None
    prompt = _choice(f"{place}.prompt", table["prompt"], PROMPTS) if "prompt" in table else None
    if command and prompt in _PLACES and _PLACES[prompt] not in " ".join(command):
        raise ValueError(f"{place}.prompt: {prompt!r} needs {_PLACES[prompt]} in the command")
    return AgentTable(
        command,
        prompt,
        _choice(f"{place}.output", table["output"], OUTPUTS) if "output" in table else None,
        _environment(f"{place}.env", table["env"]) if "env" in table else None,
    )


def _command(place: str, words: Any) -> tuple[str, ...]:
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f'{place}: a list of words is expected: ["mine", "--fast"]')
    if not words[0] or any("\0" in word for word in words):
        raise ValueError(f"{place}: {words!r} cannot be run")
    return tuple(words)


def _choice(place: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{place}: {value!r} is none of {', '.join(choices)}")
    return str(value)


def _environment(place: str, variables: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise ValueError(f'{place}: a table of texts is expected: {{ NAME = "value" }}')
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{place}: {name!r} cannot be a variable")
        if _OURS.match(name):
            raise ValueError(f"{place}: {name} is not for an agent's table to set")
    return tuple(variables.items())
