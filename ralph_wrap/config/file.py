"""``.ralph/config.toml``: read its keys by the table of options."""

from __future__ import annotations

import errno
import tomllib
from pathlib import Path
from typing import Any

from ralph_wrap.config import agent_tables
from ralph_wrap.config.options import ROWS
from ralph_wrap.config.parsers import AGENTS, COMMAND, COMMANDS, all_of, did_you_mean
from ralph_wrap.config.settings import AgentTable
from ralph_wrap.config.table import KEY, TYPED, Option
from ralph_wrap.errors import UsageError
from ralph_wrap.system import files

CONFIG = Path(".ralph/config.toml")
"""The configuration file, below the project root."""

KEYS = tuple(row.name for row in ROWS.values() if KEY in row.sources)
"""All keys of the configuration file."""


def read(root: Path) -> dict[str, Any]:
    """Return the settings that the configuration file gives.

    Arguments:
        root: the project root.

    Raises:
        UsageError: something in the file is wrong; the message names the file and the key.

    """
    path = root / CONFIG
    try:
        content = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        hint = "make it shorter" if error.errno == errno.EFBIG else "chmod or remove it"
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML: that error names line and column
        raise UsageError(f"{path} is not valid TOML: {error}", "see https://toml.io") from None
    return {key: _value(key, value, path) for key, value in table.items()}


def owner(root: Path) -> int | None:
    """Return the user id of the owner of the configuration file; ``None`` if there is none."""
    try:
        return (root / CONFIG).lstat().st_uid
    except OSError:
        return None


def _value(key: str, value: Any, path: Path) -> Any:
    row = ROWS.get(key)
    if row is None or KEY not in row.sources:
        reason = f'unknown key "{key}"{did_you_mean(key, KEYS)}'
        raise UsageError(f"{path}: {reason}", f"known: {', '.join(KEYS)}")
    if row.kind is AGENTS:
        return _agents(value, path)
    try:
        return row.kind.read(_as_text(row, value))
    except ValueError as error:
        raise UsageError(f"{path}: {key}: {error}", _help(row)) from None


def _as_text(row: Option, value: Any) -> str:
    """Return a value of the file as the text that the environment would have."""
    if row.kind.several and isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return "\n".join(value)
    if row.kind is COMMANDS and isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return all_of([entry for entry in value if entry.strip()])
    if row.kind in {COMMAND, COMMANDS} and isinstance(value, int | float | list):
        raise ValueError(f'a command is one text: {row.name} = "npm ci", which sh runs')
    if not isinstance(value, str | int | float):
        raise ValueError("a single value is expected")  # noqa: TRY004 -- all wrong values raise this error
    return str(value)


def _agents(tables: Any, path: Path) -> tuple[tuple[str, AgentTable], ...]:
    try:
        return agent_tables.read(tables)
    except agent_tables.WrongTableError as error:
        raise UsageError(f"{path}: {error}", error.hint) from None


def _help(row: Option) -> str:
    return "see ralph-wrap run --help" if TYPED in row.sources else "see ralph-wrap config schema"
