"""Settings of a session: flags beat the environment beats ``.ralph/config.toml`` beats the defaults."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ralph_wrap import files
from ralph_wrap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONFIG = Path(".ralph/config.toml")
"""The configuration file, below the project root."""

PROMPT = Path("PROMPT.md")
"""The default prompt file, below the project root."""


class Isolation(Enum):
    """Whether a session gets a worktree."""

    PREFER = "prefer"
    REQUIRE = "require"
    OFF = "off"


class OnDirty(Enum):
    """What happens to uncommitted work at the end."""

    WIP = "wip"
    KEEP = "keep"


class Ignore(Enum):
    """Where the rule that hides the worktrees goes."""

    GITIGNORE = "gitignore"
    EXCLUDE = "exclude"
    OFF = "off"


class Orphans(Enum):
    """What a start does for dead sessions."""

    SWEEP = "sweep"
    REPORT = "report"


class Settings(NamedTuple):
    """Everything that decides how a session runs; times are seconds, 0 or ``None`` is no limit.

    Attributes:
        project: the directory that the session is for.
        command: the agent's command; ``command[0]`` as in ``execvp(3)``.
        agent: its name, for people and the record.
        prompt: text for the agent's standard input.
        prompt_file: read anew for each iteration, instead of *prompt*. Without either, the agent gets our
            standard input.
        max_iterations: end after so many iterations.
        max_failures: end after so many failing iterations in a row.
        max_stalls: end after so many iterations in a row that changed nothing.
        max_time: end after so long.
        iteration_timeout: cut an iteration short after so long.
        idle_timeout: cut an iteration short after so long without output.
        delay: wait between iterations.
        grace: between asking an agent to end and killing it.
        until: a line of the agent's answer that ends the loop; empty for none.
        isolation: whether a worktree is wanted.
        base: what a new branch starts from.
        branch: name of the branch; ``None`` is ``ralph/<id>``.
        sparse: directories, or files in them, that are checked out; empty for all.
        link: directories that are shared with the project by symlink.
        hooks: git hooks run in the agent's commits.
        on_dirty: what happens to uncommitted work.
        keep_worktree: never remove the worktree.
        drop_empty: delete the branch if the session left nothing at all.
        ignore: where the ignore rule goes.
        orphans: what the start does for dead sessions.
        copy: patterns of ignored files that the worktree gets a copy of.
        background: nobody waits for it; its worktree stays, saved, until ``ralph-wrap rm``.

    """

    project: Path
    command: tuple[str, ...]
    agent: str = ""
    prompt: str | None = None
    prompt_file: Path | None = None
    max_iterations: int = 100
    max_failures: int = 5
    max_stalls: int = 5
    max_time: float | None = None
    iteration_timeout: float | None = None
    idle_timeout: float | None = None
    delay: float = 0.0
    grace: float = 5.0
    until: str = "<promise>COMPLETE</promise>"
    isolation: Isolation = Isolation.PREFER
    base: str = "head"
    branch: str | None = None
    sparse: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    hooks: bool = False
    on_dirty: OnDirty = OnDirty.WIP
    keep_worktree: bool = False
    drop_empty: bool = False
    ignore: Ignore = Ignore.GITIGNORE
    orphans: Orphans = Orphans.SWEEP
    copy: tuple[str, ...] = ()
    background: bool = False


_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str) -> float:
    """Read ``90s``, ``15m``, ``2h``; a bare number is seconds, as in ``sleep(1)``.

    Returns:
        Seconds.

    Raises:
        ValueError: it is none of these.

    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", value)
    if not found:
        raise ValueError(f"{value!r} is no duration (90s, 15m, 2h)")
    return float(found[1]) * _UNITS[found[2]]


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError(f"{value!r} is no whole number of 0 or more")
    return int(value)


def _flag(value: str) -> bool:
    meaning = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if value.lower() not in meaning:
        raise ValueError(f"{value!r} is neither on nor off")
    return meaning[value.lower()]


def _text(value: str) -> str:
    return value


def _paths(value: str) -> tuple[str, ...]:
    return tuple(line for line in value.split("\n") if line)


_Choice = TypeVar("_Choice", bound=Enum)


def _choice(kind: type[_Choice]) -> Callable[[str], _Choice]:
    def read(value: str) -> _Choice:
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(member.value for member in kind)
            raise ValueError(f"{value!r} is none of {choices}") from None

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "agent": _text,
    "prompt": _text,
    "prompt_file": Path,
    "max_iterations": _count,
    "max_failures": _count,
    "max_stalls": _count,
    "max_time": duration,
    "iteration_timeout": duration,
    "idle_timeout": duration,
    "delay": duration,
    "grace": duration,
    "until": _text,
    "isolation": _choice(Isolation),
    "base": _text,
    "branch": _text,
    "sparse": _paths,
    "link": _paths,
    "hooks": _flag,
    "on_dirty": _choice(OnDirty),
    "keep_worktree": _flag,
    "drop_empty": _flag,
    "ignore": _choice(Ignore),
    "job": Path,
}
_FILE_ONLY: dict[str, Callable[[str], Any]] = {"orphans": _choice(Orphans), "copy": _paths}
LISTS = ("sparse", "link")
"""Options that can be given several times; one path a line, where they are one text."""
OPTIONS = tuple(name for name in _READERS if name != "job")
"""Every setting that is also ``RALPH_WRAP_<OPTION>`` and a key of the file; a job stands for several."""
KEYS = (*OPTIONS, *_FILE_ONLY)
"""Everything that can stand in the configuration file."""
_PREFIX = "RALPH_WRAP_"
_OTHERS = ("project", "stop_timeout")  # variables that are read elsewhere
_OWN = "OWN_COMMAND"  # set for git commands of ours, and so for whatever those start
OF_A_WORKTREE = ("base", "branch", "sparse", "link", "on_dirty", "keep_worktree", "drop_empty", "ignore")
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


def orphans(root: Path) -> Orphans:
    """Return what a start does for dead sessions.

    Arguments:
        root: the project root.

    Raises:
        UsageError: something in the configuration file is wrong.

    """
    return Orphans(_from_file(root / CONFIG).get("orphans", Orphans.SWEEP))


def _read_job(given: dict[str, Any], directory: Path) -> None:
    """Add what stands in the job that options name, if they name one; what stands beside it beats it."""
    if (path := given.pop("job", None)) is None:
        return
    from ralph_wrap import job as jobs  # noqa: PLC0415 -- seldom needed

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
    known = [name.upper() for name in (*_READERS, *_OTHERS)]
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
    names = {f"{_PREFIX}{name.upper()}": name for name in _READERS} | {
        "RALPH_KEEP_WORKTREES": "keep_worktree"
    }
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
        if key in {*LISTS, "copy"} and isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = "\n".join(value)  # noqa: PLW2901 -- as it would stand in the environment
        if not isinstance(value, str | int | float):
            raise UsageError(f"{place}: a single value is expected", "see ralph-wrap run --help")
        values[key] = _read(key, str(value), place)
    return values


def _line_of(key: str, content: bytes) -> int:
    pattern = re.compile(rb"\s*\[?\[?[\"']?" + re.escape(os.fsencode(key)) + rb"[\"']?\s*[=.\]]")
    lines = content.splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 1)


def _read(name: str, value: str, place: str) -> Any:
    try:
        return (_READERS | _FILE_ONLY)[name](value)
    except ValueError as error:
        raise UsageError(f"{place}: {error}", "see ralph-wrap run --help") from None
