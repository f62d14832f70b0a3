"""Settings of a session: flags beat the environment beats ``.ralph/config.toml`` beats the defaults."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph_wrap.config.parsers import FILE_ONLY, READERS, duration
from ralph_wrap.config.settings import (
    COMMANDS,
    AgentTable,
    Ignore,
    Isolation,
    OnDirty,
    OnLeak,
    Orphans,
    Settings,
    Submodules,
)
from ralph_wrap.errors import UsageError
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = Path(".ralph/config.toml")
"""The configuration file, below the project root."""

PROMPT = Path("PROMPT.md")
"""The default prompt file, below the project root."""


LISTS = ("sparse", "link")
"""Options that can be given several times; one path a line, where they are one text."""
SWITCHES = ("keep_worktree", "drop_empty", "raw")
"""Options that take no value."""
OPTIONS = tuple(name for name in READERS if name != "job")
"""Every setting that is also ``RALPH_WRAP_<OPTION>`` and a key of the file; a job stands for several."""
KEYS = (*OPTIONS, *FILE_ONLY, "agents")
"""Everything that can stand in the configuration file."""
_PREFIX = "RALPH_WRAP_"
_OTHERS = ("project", "stop_timeout")  # variables that are read elsewhere
_OWN = "OWN_COMMAND"  # set for git commands of ours, and so for whatever those start
OF_A_WORKTREE = (
    *("base", "branch", "sparse", "link"),
    *("on_leak", "on_dirty", "keep_worktree", "drop_empty", "ignore"),
)
"""Options that change nothing where there is none."""


def load(
    project: Path,
    root: Path,
    cwd: Path,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    command: tuple[str, ...],
) -> Settings:
    """Put the settings of a session together.

    Arguments:
        project: the directory that was named.
        root: the project root, where the configuration file is.
        cwd: what relative paths in flags and environment are relative to.
        flags: options from the command line as they were typed; ``None`` if they were not.
        environ: our environment.
        command: what was typed behind ``--``.

    Raises:
        UsageError: a value is wrong; the message names where it stands.

    """
    values: dict[str, Any] = {}
    for source, (given, directory) in {
        "file": (_from_file(root / CONFIG), root),
        "environment": (_from_environment(environ), cwd),
        "flags": (_from_flags(flags), cwd),
    }.items():
        _read_job(given, directory)
        if command and source != "flags":
            given.pop("agent", None)  # a command that was typed beats an agent that was not
        # The two ways to give a prompt are one choice: a stronger source replaces both.
        if given.keys() & {"prompt", "prompt_file"}:
            values.pop("prompt", None)
            values.pop("prompt_file", None)
        if given.keys() >= {"prompt", "prompt_file"}:
            raise UsageError(f"both a prompt and a prompt file are given ({source})", "give one of them")
        if "prompt_file" in given:
            given["prompt_file"] = directory / given["prompt_file"]
        values |= given
    if "prompt" not in values and "prompt_file" not in values and (root / PROMPT).is_file():
        values["prompt_file"] = root / PROMPT
    if "prompt_file" in values:
        _check_readable(values["prompt_file"])
    return Settings(project=project, command=command, **values)


def of_project(root: Path) -> Settings:
    """Return what the configuration file says, for those who start no agent.

    Arguments:
        root: the project root.

    Raises:
        UsageError: something in the configuration file is wrong.

    """
    return Settings(project=root, command=(), **_from_file(root / CONFIG))


def _read_job(given: dict[str, Any], directory: Path) -> None:
    """Add what stands in the job that options name, if they name one; what stands beside it beats it."""
    if (path := given.pop("job", None)) is None:
        return
    from ralph_wrap.config import job as jobs  # noqa: PLC0415 -- seldom needed

    job = jobs.read(path if str(path) == "-" else directory / path)
    if given.keys() & {"prompt", "prompt_file"}:
        job.pop("prompt")
    for name, value in job.items():
        given.setdefault(name, _read(name, value, f"job {path}"))


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(
            f"prompt file {path} cannot be read: {error.strerror}", "name a file that is there"
        ) from None


def _from_flags(flags: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        name: _read(name, value, f"--{name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None
    }


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that look like ours and that nothing of ours reads, each with the nearest that is.

    Arguments:
        environ: our environment.

    """
    known = [name.upper() for name in (*READERS, *_OTHERS)]
    ours = {
        name.removeprefix(_PREFIX) for name, value in environ.items() if value and name.startswith(_PREFIX)
    }
    unknown = sorted(ours - {*known, _OWN})
    if not unknown:
        return {}
    import difflib  # noqa: PLC0415 -- seldom needed, and every start would wait for it

    nearest = {name: difflib.get_close_matches(name, known, 1) for name in unknown}
    return {_PREFIX + name: _PREFIX + near[0] if near else None for name, near in nearest.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    names = {f"{_PREFIX}{name.upper()}": name for name in READERS} | {"RALPH_KEEP_WORKTREES": "keep_worktree"}
    return {
        name: _read(name, environ[variable], variable)
        for variable, name in names.items()
        if environ.get(variable)
    }


def _from_file(path: Path) -> dict[str, Any]:
    try:
        content = files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "chmod or remove it") from None
    import tomllib  # noqa: PLC0415 -- few projects have the file, and every start would wait for it

    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML, which names line and column
        raise UsageError(f"{path} is not valid TOML: {error}", "see https://toml.io") from None
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{path}, line {_line_of(key, content)}, key {key}"
        if key not in KEYS:
            raise UsageError(f"{place}: unknown key", f"known: {', '.join(KEYS)}")
        if key == "agents":
            values[key] = _read_agents(value, path, content)
            continue
        if (
            key in {*LISTS, "copy", "pool_keep"}
            and isinstance(value, list)
            and all(isinstance(one, str) for one in value)
        ):
            value = "\n".join(value)  # noqa: PLW2901 -- as it would stand in the environment
        if key in COMMANDS and isinstance(value, int | float | list):
            raise UsageError(f"{place}: a command is one text", f'{key} = "npm ci", which sh runs')
        if not isinstance(value, str | int | float):
            raise UsageError(f"{place}: a single value is expected", _help(key))
        values[key] = _read(key, str(value), place)
    return values


def _read_agents(tables: Any, path: Path, content: bytes) -> tuple[tuple[str, AgentTable], ...]:
    from ralph_wrap.config import agent_tables  # noqa: PLC0415 -- few projects have any

    try:
        return agent_tables.read(tables)
    except ValueError as error:
        where, _, what = str(error).partition(":")
        line = _line_of(".".join(where.split(".")[:2]), content)
        raise UsageError(f"{path}, line {line}, key {where}:{what}", "see the README, Agents") from None


def _line_of(key: str, content: bytes) -> int:
    pattern = re.compile(rb"\s*\[?\[?[\"']?" + re.escape(os.fsencode(key)) + rb"[\"']?\s*[=.\]]")
    lines = content.splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 1)


def _read(name: str, value: str, place: str) -> Any:
    try:
        return (READERS | FILE_ONLY)[name](value)
    except ValueError as error:
        raise UsageError(f"{place}: {error}", _help(name)) from None


def _help(name: str) -> str:
    return f"see the README for {name}" if name in FILE_ONLY else "see ralph-wrap run --help"


__all__ = [
    "COMMANDS",
    "CONFIG",
    "FILE_ONLY",
    "KEYS",
    "LISTS",
    "OF_A_WORKTREE",
    "OPTIONS",
    "PROMPT",
    "SWITCHES",
    "Ignore",
    "Isolation",
    "OnDirty",
    "OnLeak",
    "Orphans",
    "Settings",
    "Submodules",
    "duration",
    "load",
    "of_project",
    "unknown_variables",
]
