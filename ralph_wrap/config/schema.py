"""The JSON schema of ``.ralph/config.toml``, made from the table of options, for editors.

It accepts each file that ``config.file`` accepts: ``max_iterations = 7`` and ``max_iterations = "7"`` are the
same. It refuses unknown keys, wrong types and wrong words, but looks into no text: only the program says
whether "90s" is a duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from ralph_wrap.config import agent_tables
from ralph_wrap.config.options import Settings
from ralph_wrap.config.parsers import DURATIONS, LOG_SIZE, SLOWEST_BEAT, SMALLEST_LOG, ValueKind, written
from ralph_wrap.config.table import KEY, Option

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SCALAR = ["string", "number", "boolean"]
_TEXT = {"type": "string"}


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
    if kind in (*DURATIONS, LOG_SIZE) or isinstance(value, Enum | Path):
        return written(value, kind)
    return value


def _property(row: Option) -> dict[str, Any]:
    form = {"enum": [*row.kind.choices]} if row.kind.name == "choice" else _FORMS[row.kind.name]
    default = as_json(row.default, row.kind)
    return {"description": row.help, **form, **({} if default is None else {"default": default})}


def _number(kind: str = "number", **limits: Any) -> dict[str, Any]:
    """Return the form of a number that may also be a text."""
    return {"anyOf": [{"type": kind, "minimum": 0, **limits}, _TEXT]}


def _agent_table() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "command": {
                "description": "The agent's command.",
                "type": "array",
                "items": _TEXT,
                "minItems": 1,
            },
            "prompt": {"description": "How the agent takes the prompt.", "enum": [*agent_tables.PROMPTS]},
            "output": {"description": "The format of the agent's output.", "enum": [*agent_tables.OUTPUTS]},
            "env": {
                "description": "Additional environment variables of the agent.",
                "type": "object",
                "additionalProperties": _TEXT,
            },
        },
        "additionalProperties": False,
    }


_LIST = {"anyOf": [{"type": "array", "items": _TEXT}, {"type": _SCALAR}]}  # one text is a list of one entry

_FORMS: Mapping[str, dict[str, Any]] = {
    "text": {"type": _SCALAR},
    "file": {"type": _SCALAR},
    "count": _number("integer", maximum=999_999_999),
    "duration": _number(),
    "beat": _number(exclusiveMinimum=0, maximum=SLOWEST_BEAT),
    "size": {"anyOf": [{"const": 0}, {"type": "number", "minimum": SMALLEST_LOG}, _TEXT]},
    "dollars": _number(exclusiveMaximum=1_000_000_000),
    "flag": {"anyOf": [{"type": "boolean"}, {"enum": [0, 1]}, _TEXT]},
    "paths": _LIST,
    "places": _LIST,
    "words": _LIST,
    "events": _LIST,
    "network": _LIST,
    "command": _TEXT,
    "commands": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    "branch": {"type": ["string", "number"], "not": {"enum": ["True", "False"]}},
    "agents": {"type": "object", "additionalProperties": _agent_table()},
}
