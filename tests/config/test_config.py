"""Settings from flags, environment and file: which one wins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap import config
from ralph_wrap.config import (
    IgnoreLocation,
    Isolation,
    LogFormat,
    OnDirty,
    OnLeak,
    SandboxMode,
    Settings,
    duration,
)
from ralph_wrap.config.table import TYPED
from ralph_wrap.errors import UsageError
from ralph_wrap.system.process import OWN_COMMAND
from tests.config.configured_project import ConfiguredProject

OPTIONS = [row.name for row in Settings.options if TYPED in row.sources]
"""What can be typed, except a job, which stands for several, and the project."""

VALUES: dict[str, tuple[str, Any, str, Any]] = {
    "agent": ("one", "one", "two", "two"),
    "model": ("big", "big", "small", "small"),
    "agent_arg": ("--fast", ("--fast",), "--slow", ("--slow",)),
    "fallback": ("codex", ("codex",), "gemini", ("gemini",)),
    "prompt": ("do this", "do this", "do that", "do that"),
    "prompt_file": ("one.md", Path("one.md"), "two.md", Path("two.md")),
    "name": ("Login", "Login", "Logout", "Logout"),
    "preamble": ("on", True, "off", False),
    "raw": ("on", True, "off", False),
    "max_iterations": ("7", 7, "0", 0),
    "max_failures": ("7", 7, "0", 0),
    "max_stalls": ("7", 7, "0", 0),
    "max_time": ("2h", 7200.0, "90s", 90.0),
    "max_tokens": ("5000", 5000, "0", 0),
    "max_cost": ("0.5", 0.5, "12", 12.0),
    "iteration_timeout": ("15m", 900.0, "90s", 90.0),
    "idle_timeout": ("15m", 900.0, "90s", 90.0),
    "delay": ("1.5s", 1.5, "2", 2.0),
    "grace": ("250ms", 0.25, "1m", 60.0),
    "until": ("DONE", "DONE", "READY", "READY"),
    "blocked": ("HELP", "HELP", "ASK", "ASK"),
    "verify": ("make test", "make test", "npm test", "npm test"),
    "verify_each": ("on", True, "off", False),
    "verify_timeout": ("2h", 7200.0, "90s", 90.0),
    "remote": ("origin", "origin", "backup", "backup"),
    "isolation": ("off", Isolation.OFF, "require", Isolation.REQUIRE),
    "base": ("main", "main", "v1.0", "v1.0"),
    "branch": ("topic", "topic", "other", "other"),
    "sparse": ("docs", ("docs",), "src", ("src",)),
    "link": ("target", ("target",), "build", ("build",)),
    "hooks": ("on", True, "off", False),
    "on_leak": ("stop", OnLeak.STOP, "report", OnLeak.REPORT),
    "on_dirty": ("keep", OnDirty.KEEP, "wip", OnDirty.WIP),
    "keep_worktree": ("on", True, "off", False),
    "drop_empty": ("on", True, "off", False),
    "ignore": ("exclude", IgnoreLocation.EXCLUDE, "off", IgnoreLocation.OFF),
    "sandbox": ("bwrap", SandboxMode.BWRAP, "landlock", SandboxMode.LANDLOCK),
    "log_format": ("json", LogFormat.JSON, "text", LogFormat.TEXT),
    "quiet_terminal": ("on", True, "off", False),
}
"""Of each option: a value that is not the default, what it means, and another one, and what that means."""


@pytest.fixture
def same(tmp_path: Path) -> ConfiguredProject:
    """Return a project that is also typed in, with the prompt files of the table."""
    made = ConfiguredProject(tmp_path / "same", tmp_path / "same")
    made.root.mkdir()
    for name in ("one.md", "two.md"):
        (made.root / name).write_text(name)
    return made


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("0", 0.0), ("90", 90.0), ("90s", 90.0), ("0s", 0.0), ("1.5s", 1.5), ("0.25", 0.25)],
        *[("250ms", 0.25), ("15m", 900.0), ("2h", 7200.0), ("0.5h", 1800.0), ("365d", 31_536_000.0)],
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """With a unit, or without one as in ``sleep``."""
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "s", "-1s", "+1s", "1 s", " 1s", "1s ", "1s\n", "1S", "1sec", "1m30s", "1,5h"],
        *[".5s", "5.s", "1e3", "0x10", "inf", "nan", "soon", "1w"],
    ],
)
def test_anything_else_is_no_duration(text: str) -> None:
    """The message says what was given and what one looks like."""
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no duration (90s, 15m, 2h, 14d)")):
        duration(text)


# Precedence


def test_the_table_knows_every_option() -> None:
    """A new option must be tried against each source."""
    assert [*VALUES] == OPTIONS


def test_options_are_settings() -> None:
    """Whatever can be set has a place to go to."""
    plain = {"project", "command", "invocation", "background", "typed"}
    plain |= {
        "given",
        "stated",
        "replaced",
        "resumes",
        "takes_over",
        "agent_id",
        "patience",
        "patience_at_term",
        "task",
        "worktree_name",
        "message",
        "conversation",
        "others",
    }
    assert {row.name for row in Settings.options} == {*Settings._fields} - plain


@pytest.mark.parametrize("option", OPTIONS)
def test_the_file_beats_the_default(same: ConfiguredProject, option: str) -> None:
    """A key of the configuration file is used."""
    text, value, _, _ = VALUES[option]
    assert getattr(Settings(project=same.root, command=()), option) != value
    same.file(f'{option} = "{text}"\n')
    assert same.value(option) == value


@pytest.mark.parametrize("option", OPTIONS)
def test_the_environment_beats_the_file(same: ConfiguredProject, option: str) -> None:
    """RALPH_WRAP_<OPTION> is used, whatever the file says."""
    text, value, weaker, _ = VALUES[option]
    same.file(f'{option} = "{weaker}"\n')
    assert same.value(option, environ={f"RALPH_WRAP_{option.upper()}": text}) == value


@pytest.mark.parametrize("option", OPTIONS)
def test_a_flag_beats_environment_and_file(same: ConfiguredProject, option: str) -> None:
    """What was typed is used."""
    weaker, _, text, value = VALUES[option]
    same.file(f'{option} = "{weaker}"\n')
    environ = {f"RALPH_WRAP_{option.upper()}": weaker}
    assert same.value(option, environ=environ, flags={option: text}) == value


def test_nothing_given_is_the_default(configured: ConfiguredProject) -> None:
    """Flags that were not typed and variables that are empty are not given."""
    nothing = config.load(
        configured.root,
        configured.root,
        configured.cwd,
        dict.fromkeys(OPTIONS),
        {f"RALPH_WRAP_{option.upper()}": "" for option in OPTIONS},
        ("agent.sh", "--fast"),
    )
    assert nothing == Settings(project=configured.root, command=("agent.sh", "--fast"), given=())


@pytest.mark.parametrize(("flags", "agent"), [({}, ""), ({"agent": "three"}, "three")])
def test_a_command_that_was_typed_beats_an_agent_that_was_not(
    configured: ConfiguredProject, flags: dict[str, str], agent: str
) -> None:
    """If the user typed both, both stay, and a later check refuses them."""
    configured.file('agent = "one"\nuntil = "x"\n')
    loaded = configured.load(flags, {"RALPH_WRAP_AGENT": "two"})
    assert (loaded.command, loaded.agent, loaded.until) == (("agent.sh",), agent, "x")
    assert configured.load(flags, {"RALPH_WRAP_AGENT": "two"}, command=()).agent == (agent or "two")


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("max_iterations = 7", "max_iterations", 7),
        ("delay = 1.5", "delay", 1.5),
        ("keep_worktree = true", "keep_worktree", True),
        ("hooks = false", "hooks", False),
        ('"grace" = "2s"', "grace", 2.0),
    ],
)
def test_the_file_may_use_the_types_of_toml(
    configured: ConfiguredProject, line: str, option: str, value: object
) -> None:
    """A number or a boolean need not be quoted."""
    configured.file(f"{line}\n")
    assert getattr(configured.load(), option) == value


@pytest.mark.parametrize(("given", "value"), [("1", True), ("0", False), ("", False), ("yes", True)])
def test_worktrees_are_kept_by_the_variable_of_the_contract(
    configured: ConfiguredProject, given: str, value: object
) -> None:
    """RALPH_KEEP_WORKTREES has no WRAP in its name and is a plural."""
    assert configured.load(environ={"RALPH_KEEP_WORKTREES": given}).keep_worktree is value


@pytest.mark.parametrize(
    ("text", "patterns"),
    [('[".env*", "!.env.x"]', (".env*", "!.env.x")), ('".env*"', (".env*",)), ("[]", ())],
)
def test_the_copied_patterns_stand_in_the_file(
    configured: ConfiguredProject, text: str, patterns: tuple[str, ...]
) -> None:
    """Patterns; nowhere else, since what goes into a worktree belongs to the project."""
    configured.file(f"copy = {text}\n")
    assert configured.load(environ={"RALPH_WRAP_COPY": "other"}).copy == patterns
    assert "copy" not in OPTIONS


def test_what_becomes_of_submodules_stands_in_the_file(configured: ConfiguredProject) -> None:
    """Off, unless it says so."""
    assert configured.load().submodules is config.SubmoduleMode.OFF
    configured.file('submodules = "init"\n')
    assert configured.load(environ={"RALPH_WRAP_SUBMODULES": "off"}).submodules is config.SubmoduleMode.INIT


def test_a_wrong_word_for_submodules(configured: ConfiguredProject) -> None:
    """Is an error that names what there is."""
    configured.file("submodules = true\n")
    with pytest.raises(UsageError, match=r"toml: submodules: 'True' is none of off, init"):
        configured.load()


# Variables that no program reads


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("RALPH_WRAP_MAX_ITERATION", "RALPH_WRAP_MAX_ITERATIONS"),
        ("RALPH_WRAP_MAXITERATIONS", "RALPH_WRAP_MAX_ITERATIONS"),
        ("RALPH_WRAP_ISOLATE", "RALPH_WRAP_ISOLATION"),
        ("RALPH_WRAP_PROJEKT", "RALPH_WRAP_PROJECT"),
        ("RALPH_WRAP_until", None),
        ("RALPH_WRAP_ZZZ", None),
        ("RALPH_WRAP_", None),
    ],
)
def test_a_misspelt_variable_is_found(name: str, nearest: str | None) -> None:
    """With what it may have been meant to be."""
    assert config.unknown_variables({name: "3", "RALPH_WRAP_DELAY": "1s"}) == {name: nearest}


def test_variables_that_a_program_reads_or_sets_are_known() -> None:
    """Those of options, of other commands, and of our own git; empty ones count as not given."""
    known = {f"RALPH_WRAP_{option.upper()}": "x" for option in OPTIONS}
    others = {"RALPH_WRAP_PROJECT": "/x", "RALPH_WRAP_STOP_TIMEOUT": "8s", OWN_COMMAND: "1"}
    foreign = {"RALPH_WRAPPER": "x", "RALPH_AGENT_ID": "a3f2", "RALPH_WRAP_BRANHC": ""}
    assert config.unknown_variables({**known, **others, **foreign}) == {}


# Prompts


@pytest.mark.parametrize("stronger", ["environ", "flags"])
@pytest.mark.parametrize("kind", ["prompt", "prompt_file"])
def test_a_prompt_and_a_prompt_file_are_one_choice(same: ConfiguredProject, stronger: str, kind: str) -> None:
    """A stronger source that gives one of them takes the place of a weaker one that gives the other."""
    other = {"prompt": "prompt_file", "prompt_file": "prompt"}[kind]
    same.file(f'{other} = "two.md"\n')
    name = kind if stronger == "flags" else f"RALPH_WRAP_{kind.upper()}"
    given = {name: "one.md"}
    loaded = same.load(given) if stronger == "flags" else same.load(environ=given)
    expected = {"prompt": ("one.md", None), "prompt_file": (None, same.root / "one.md")}[kind]
    assert (loaded.prompt, loaded.prompt_file) == expected


@pytest.mark.parametrize("source", ["file", "environment", "flags"])
def test_one_source_gives_one_prompt(same: ConfiguredProject, source: str) -> None:
    """Both at once would leave one of them unread without a word."""
    if source == "file":
        same.file('prompt = "x"\nprompt_file = "one.md"\n')
    environ = {"RALPH_WRAP_PROMPT": "x", "RALPH_WRAP_PROMPT_FILE": "one.md"}
    flags = {"prompt": "x", "prompt_file": "one.md"}
    error = same.refused(flags if source == "flags" else {}, environ if source == "environment" else {})
    assert (error.message, error.hint) == (
        f"both a prompt and a prompt file are given ({source})",
        "give one of them",
    )


def test_relative_paths_belong_to_where_they_stand(configured: ConfiguredProject) -> None:
    """Typed ones to the directory that they are typed in, those of the file to the project root."""
    for directory in (configured.root, configured.cwd):
        (directory / "prompt.md").write_text("x")
    configured.file('prompt_file = "prompt.md"\n')
    found = [
        configured.load().prompt_file,
        configured.load(environ={"RALPH_WRAP_PROMPT_FILE": "prompt.md"}).prompt_file,
        configured.load({"prompt_file": "prompt.md"}).prompt_file,
        configured.load({"prompt_file": str(configured.root / "prompt.md")}).prompt_file,
    ]
    root, cwd = configured.root / "prompt.md", configured.cwd / "prompt.md"
    assert found == [root, cwd, cwd, root]


def test_the_default_prompt_is_in_the_project_root(configured: ConfiguredProject) -> None:
    """Only where neither a text nor a file is given."""
    (configured.root / "PROMPT.md").write_text("x")
    (configured.cwd / "PROMPT.md").write_text("not this one")
    assert configured.load().prompt_file == configured.root / "PROMPT.md"
    assert configured.load({"prompt": "x"}).prompt_file is None


@pytest.mark.parametrize(
    ("name", "reason"), [("absent", "No such file or directory"), (".", "Is a directory")]
)
def test_a_prompt_file_must_be_readable(configured: ConfiguredProject, name: str, reason: str) -> None:
    """Seen before anything is made."""
    error = configured.refused({"prompt_file": name})
    assert (error.message, error.hint) == (
        f"prompt file {configured.cwd / name} cannot be read: {reason}",
        "name a file that exists",
    )


def test_a_prompt_file_that_is_not_used_need_not_be_there(configured: ConfiguredProject) -> None:
    """What a stronger source has replaced is not looked at."""
    configured.file('prompt_file = "absent.md"\n')
    assert configured.load({"prompt": "x"}).prompt == "x"
