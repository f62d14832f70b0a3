"""The JSON schema of ``.ralph/config.toml``, made from the table of options, for editors.

It accepts what ``config.file`` accepts: ``max_iterations = 7`` and ``max_iterations = "7"`` are the same.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.config import agent_tables
from ralph_wrap.config.options import Settings
from ralph_wrap.config.parsers import DURATIONS, FLAG_WORDS, HOST, SLOWEST_BEAT, ValueKind, written
from ralph_wrap.config.table import KEY, Option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SCALAR = ["string", "number", "boolean"]
_PART = r"[^/\n]+"
_PLACE = rf"(?!(?:\.git|\.ralph|\.\.?)(?:/|\n|$)){_PART}(?:/(?!\.\.?(?:/|\n|$)){_PART})*/*"
_PLACES = rf"^(?:{_PLACE})?(?:\n(?:{_PLACE})?)*$"
_NO_NUL = r"^[^\u0000]*$"
_HOST = rf"(?!(?:all|none)(?:\n|$)){HOST}"
_NETWORK = rf"^\n*(?:all|none|{_HOST}(?:\n+{_HOST})*)\n*$"


def schema() -> dict[str, Any]:
    """Return the schema (https://json-schema.org/draft/2020-12)."""
    rows = [row for row in Settings.options if KEY in row.sources]
    return {
        "$schema": _DRAFT,
        "title": "The configuration of ralph-wrap: .ralph/config.toml",
        "type": "object",
        "properties": {row.name: _property(row) for row in rows},
        "additionalProperties": False,
        "not": {"required": ["prompt", "prompt_file"]},
    }


def as_json(value: Any, kind: ValueKind) -> Any:
    """Return a value in the form of the configuration file; ``None`` if the file would lack the key."""
    if isinstance(value, tuple):
        return {name: table.stated() for name, table in value} if kind.name == "agents" else [*value]
    if kind in DURATIONS or isinstance(value, Enum | Path):
        return written(value, kind)
    return value


def _property(row: Option) -> dict[str, Any]:
    form = {"enum": [*row.kind.choices]} if row.kind.name == "choice" else _FORMS[row.kind.name]
    default = as_json(row.default, row.kind)
    return {"description": row.help, **form, **({} if default is None else {"default": default})}


def _any_case(word: str) -> str:
    """Return the pattern of a word in small or capital letters; a schema has no flag to ignore case."""
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word)


def _number(pattern: str, **limits: Any) -> dict[str, Any]:
    """Return the form of a number that may also be a text."""
    return {"anyOf": [{"type": "number", "minimum": 0, **limits}, {"type": "string", "pattern": pattern}]}


def _list(**entry: Any) -> dict[str, Any]:
    """Return the form of a list; a single text is a list of one entry."""
    return {"anyOf": [{"type": "array", "items": {"type": "string", **entry}}, {"type": _SCALAR, **entry}]}


def _agent_table() -> dict[str, Any]:
    words = {"type": "string", "pattern": _NO_NUL}
    name = rf"^(?!{agent_tables.OURS})[^=\u0000]+$"
    return {
        "type": "object",
        "properties": {
            "command": {
                "description": "The agent's command.",
                "type": "array",
                "prefixItems": [{**words, "minLength": 1}],
                "items": words,
                "minItems": 1,
            },
            "prompt": {"description": "How the agent takes the prompt.", "enum": [*agent_tables.PROMPTS]},
            "output": {"description": "The format of the agent's output.", "enum": [*agent_tables.OUTPUTS]},
            "env": {
                "description": "Additional environment variables of the agent.",
                "type": "object",
                "propertyNames": {"pattern": name},
                "additionalProperties": words,
            },
        },
        "additionalProperties": False,
        "allOf": [_needs(prompt, word) for prompt, word in agent_tables.PLACES.items()],
    }


def _needs(prompt: str, word: str) -> dict[str, Any]:
    """Return the rule that a command has the placeholder of the prompt."""
    taken = {"properties": {"prompt": {"const": prompt}}, "required": ["prompt", "command"]}
    pattern = word.replace("{", r"\{").replace("}", r"\}")
    return {"if": taken, "then": {"properties": {"command": {"contains": {"pattern": pattern}}}}}


# Above 0 and at most 10 minutes, which are not written in hours.
_BEAT = (
    r"^(?=.*[1-9])0*(?:(?:[0-9]{1,2}|[1-5][0-9]{2})(?:\.[0-9]+)?s?|600(?:\.0+)?s?"
    r"|[0-9](?:\.[0-9]+)?m|10(?:\.0+)?m|(?:[0-9]{1,5}|[1-5][0-9]{5})(?:\.[0-9]+)?ms|600000(?:\.0+)?ms)$"
)

_FORMS: Mapping[str, dict[str, Any]] = {
    "text": {"type": _SCALAR},
    "file": {"type": _SCALAR},
    "count": {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 999_999_999},
            {"type": "string", "pattern": "^[0-9]{1,9}$"},
        ]
    },
    "duration": _number(r"^[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)?$"),
    "beat": _number(_BEAT, exclusiveMinimum=0, maximum=SLOWEST_BEAT),
    "dollars": _number(r"^[0-9]{1,9}(?:\.[0-9]{1,6})?$", exclusiveMaximum=1_000_000_000),
    "flag": {
        "anyOf": [
            {"type": "boolean"},
            {"enum": [0, 1]},
            {
                "type": "string",
                "pattern": f"^(?:{'|'.join(map(_any_case, FLAG_WORDS))})$",
            },
        ]
    },
    "paths": _list(),
    "places": _list(pattern=_PLACES),
    "network": {
        "anyOf": [
            {"enum": [["all"], ["none"]]},
            {"type": "array", "items": {"type": "string", "pattern": rf"^{_HOST}$"}, "minItems": 1},
            {"type": _SCALAR, "pattern": _NETWORK},
        ]
    },
    "command": {"type": "string", "pattern": _NO_NUL},
    "branch": {"type": ["string", "number"], "not": {"enum": ["True", "False"]}},
    "agents": {
        "type": "object",
        "propertyNames": {"pattern": f"^{agent_tables.NAME}$"},
        "additionalProperties": _agent_table(),
    },
}
