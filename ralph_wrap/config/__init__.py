"""The settings of a session.

A typed option wins over the environment, the environment over ``.ralph/config.toml``, and the file over the
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralph_wrap.config import authority, file, prompt_file, trust
from ralph_wrap.config.agent_options import AgentSettings
from ralph_wrap.config.authority import PROMPT
from ralph_wrap.config.file import CONFIG, KEYS
from ralph_wrap.config.file_options import CheckpointSettings, LandingSettings, PoolSettings, SetupSettings
from ralph_wrap.config.gate_options import GateSettings
from ralph_wrap.config.job import read_job
from ralph_wrap.config.notify_options import NotifySettings
from ralph_wrap.config.options import (
    JOB,
    ROWS,
    LoopLimits,
    Settings,
    WorktreeSettings,
)
from ralph_wrap.config.parsers import duration, nearest, written
from ralph_wrap.config.sandbox_options import SandboxSettings
from ralph_wrap.config.settings import (
    IgnoreLocation,
    Isolation,
    LogFormat,
    OnDirty,
    OnLeak,
    OnOrphans,
    SandboxMode,
    SubmoduleMode,
)
from ralph_wrap.config.table import ENVIRONMENT, KEY, PREFIX, TYPED, Option
from ralph_wrap.errors import UsageError

_AGENT_OPTIONS = ("model", "agent_arg")  # options that another agent does not understand
_OWN = "OWN_COMMAND"  # set for git commands that ralph-wrap runs, and so for their children


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
        project: the directory that the user names.
        root: the project root, which has the configuration file.
        cwd: relative paths in flags and environment start here.
        flags: options from the command line, as the user typed them; ``None`` for the others.
        command: the words after ``--``.

    Raises:
        UsageError: a value is wrong; the message names its source.

    """
    values, sources = merge(root, cwd, flags, environ, command)
    given = [
        (name, text)
        for name, value in values.items()
        if sources.get(name, KEY) != KEY and (text := written(value, ROWS[name].kind)) is not None
    ]
    return Settings(project=project, command=command, given=tuple(given), **values)


def merge(
    root: Path,
    cwd: Path,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    command: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that any source gives, and for each the source that it comes from.

    Arguments and errors are those of :func:`load`. A source is one of the table's, or ``job FILE``.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    in_file = file.read(root)
    stated = authority.stated(root, in_file, file.owner(root))
    for source, (given, directory) in {
        KEY: (in_file, root),
        ENVIRONMENT: (_from_environment(environ), cwd),
        TYPED: (_from_flags(flags), cwd),
    }.items():
        of_job = _add_job(given, directory)
        if command and source != TYPED:
            # The typed command replaces an agent of a weaker source, and what belongs to it.
            _remove(given, "agent", "fallback", *_AGENT_OPTIONS)
        _forget_other_agent(given, values, sources)
        # A prompt and a prompt file exclude each other. Each of them replaces both of a weaker source.
        if given.keys() & {"prompt", "prompt_file"}:
            for name in ("prompt", "prompt_file"):
                values.pop(name, None)
                sources.pop(name, None)
        if given.keys() >= {"prompt", "prompt_file"}:
            raise UsageError(f"both a prompt and a prompt file are given ({source})", "give one of them")
        if "prompt_file" in given:
            given["prompt_file"] = directory / given["prompt_file"]
        values |= given
        sources |= dict.fromkeys(given, source) | of_job
    if "prompt" not in values and "prompt_file" not in values and (root / PROMPT).is_file():
        values["prompt_file"] = root / PROMPT
    if sources.get("prompt_file", KEY) == KEY and "prompt_file" in values:
        # What the user approves is what the session reads: a symlink can be changed meanwhile.
        values["prompt_file"] = values["prompt_file"].resolve()
    if "prompt_file" in values:
        _check_readable(values["prompt_file"])
    replaced = frozenset(name for name, source in sources.items() if source != KEY)
    return values | {"stated": stated, "replaced": replaced}, sources


def _forget_other_agent(given: Mapping[str, Any], values: dict[str, Any], sources: dict[str, str]) -> None:
    """Remove what the project has chosen for its own agent, if a stronger source gives another agent."""
    if given.get("agent", values.get("agent")) != values.get("agent"):
        for name in _AGENT_OPTIONS:
            if sources.get(name) == KEY:
                del values[name], sources[name]


def _remove(given: dict[str, Any], *names: str) -> None:
    for name in names:
        given.pop(name, None)


def of_project(root: Path, environ: Mapping[str, str], *used: str) -> Settings:
    """Return the settings of the configuration file, for commands that start no agent.

    Arguments:
        root: the project root.
        used: the keys that the command obeys. The others need no approval.

    Raises:
        UsageError: something in the configuration file is wrong.
        UntrustedError: the user has not approved what the project says for these keys.

    """
    values = file.read(root)
    stated = authority.stated(root, values, file.owner(root))
    if used:
        trust.require(root, stated, environ, lambda key: key in used)
    return Settings(project=root, command=(), stated=stated, **values)


def _add_job(given: dict[str, Any], directory: Path) -> dict[str, str]:
    """Add the settings of the job that an option names; a setting given beside the job wins over the job.

    Returns:
        The source of each added setting.

    """
    if (path := given.pop("job", None)) is None:
        return {}
    job = read_job(path if str(path) == "-" else directory / path)
    if given.keys() & {"prompt", "prompt_file"}:
        job.pop("prompt")
    source = f"job {path}"
    added = {name: value for name, value in job.items() if name not in given}
    given |= {name: _read(ROWS[name], value, source) for name, value in added.items()}
    return dict.fromkeys(added, source)


def _check_readable(path: Path) -> None:
    try:
        prompt_file.check(path)
    except OSError as error:
        raise UsageError(
            f"prompt file {path} cannot be read: {error.strerror}", "name a file that exists"
        ) from None


def _from_flags(flags: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        name: _read(ROWS[name], value, ROWS[name].word) for name, value in flags.items() if value is not None
    }


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the unknown variables that begin with ``RALPH_WRAP_``, each with the nearest known name."""
    known = [variable.removeprefix(PREFIX) for row in ROWS.values() for variable in row.variables]
    ours = {name.removeprefix(PREFIX) for name, value in environ.items() if value and name.startswith(PREFIX)}
    near = {name: nearest(name, known) for name in sorted(ours - {*known, _OWN})}
    return {PREFIX + name: found and PREFIX + found for name, found in near.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        row.name: _read(row, environ[variable], variable)
        for row in (*Settings.options, JOB)
        for variable in row.variables
        if environ.get(variable)
    }


def _read(row: Option, value: str, source: str) -> Any:
    try:
        return row.kind.read(value)
    except ValueError as error:
        raise UsageError(f"{source}: {error}", "see ralph-wrap run --help") from None


__all__ = [
    "CONFIG",
    "KEYS",
    "PROMPT",
    "ROWS",
    "AgentSettings",
    "CheckpointSettings",
    "GateSettings",
    "IgnoreLocation",
    "Isolation",
    "LandingSettings",
    "LogFormat",
    "LoopLimits",
    "NotifySettings",
    "OnDirty",
    "OnLeak",
    "OnOrphans",
    "PoolSettings",
    "SandboxMode",
    "SandboxSettings",
    "Settings",
    "SetupSettings",
    "SubmoduleMode",
    "WorktreeSettings",
    "duration",
    "load",
    "merge",
    "of_project",
    "unknown_variables",
]
