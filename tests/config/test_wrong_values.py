"""How a wrong value is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralph_wrap import config
from ralph_wrap.config import Settings
from tests.config.configured_project import ConfiguredProject

HELP = "see ralph-wrap run --help"


# Wrong values

WRONG = {
    "max_iterations": ("-1", "'-1' is no whole number of 0 or more"),
    "max_failures": ("1.5", "'1.5' is no whole number of 0 or more"),
    "max_stalls": ("9999999999", "'9999999999' is no whole number of 0 or more"),
    "max_time": ("soon", "'soon' is no duration (90s, 15m, 2h, 14d)"),
    "max_tokens": ("1k", "'1k' is no whole number of 0 or more"),
    "max_cost": ("$5", "'$5' is no amount in US dollars (5, 0.50)"),
    "preamble": ("short", "'short' is neither on nor off"),
    "hooks": ("maybe", "'maybe' is neither on nor off"),
    "keep_worktree": ("2", "'2' is neither on nor off"),
    "on_leak": ("ask", "'ask' is none of report, stop"),
    "isolation": ("full", "'full' is none of prefer, require, clone, off"),
    "on_dirty": ("WIP", "'WIP' is none of wip, keep"),
    "ignore": ("no", "'no' is none of gitignore, exclude, off"),
}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_flag_is_named(configured: ConfiguredProject, option: str) -> None:
    """As it is typed."""
    text, reason = WRONG[option]
    error = configured.refused({option: text})
    assert (error.message, error.hint) == (f"--{option.replace('_', '-')}: {reason}", HELP)


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_variable_is_named(configured: ConfiguredProject, option: str) -> None:
    """As it stands in the environment."""
    text, reason = WRONG[option]
    variable = f"RALPH_WRAP_{option.upper()}"
    error = configured.refused(environ={variable: text})
    assert (error.message, error.hint) == (f"{variable}: {reason}", HELP)


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_key_of_the_file_is_named(configured: ConfiguredProject, option: str) -> None:
    """By file and key."""
    text, reason = WRONG[option]
    path = configured.file(f'# a comment\nuntil = "x"\n  {option} = "{text}"\n')
    error = configured.refused()
    assert (error.message, error.hint) == (f"{path}: {option}: {reason}", HELP)


@pytest.mark.parametrize(
    ("key", "value"),
    [("orphans", '"kill"'), ("pool", '"many"'), ("keep_dropped", "[1]"), ("max_output", '"3MB"')],
)
def test_a_wrong_key_that_is_no_option_is_explained_elsewhere(
    configured: ConfiguredProject, key: str, value: str
) -> None:
    """``run --help`` does not list it."""
    path = configured.file(f"{key} = {value}\n")
    error = configured.refused()
    assert error.message.startswith(f"{path}: {key}: ")
    assert error.hint == "see ralph-wrap config schema"


def test_the_other_variable_for_worktrees_is_named() -> None:
    """Not the one that is not set."""
    here = Path.cwd()
    error = ConfiguredProject(here, here).refused(environ={"RALPH_KEEP_WORKTREES": "perhaps"})
    assert error.message == "RALPH_KEEP_WORKTREES: 'perhaps' is neither on nor off"


@pytest.mark.parametrize("line", ["zebra = 1", "[zebra]\nx = 1", "[[zebra]]\nx = 1", "zebra.x = 1"])
def test_an_unknown_key_is_an_error(configured: ConfiguredProject, line: str) -> None:
    """A misspelt one would be ignored without a word; the hint lists those that exist."""
    path = configured.file(f'until = "x"\n{line}\n')
    error = configured.refused()
    assert (error.message, error.hint) == (
        f'{path}: unknown key "zebra"',
        f"known: {', '.join(config.KEYS)}",
    )


@pytest.mark.parametrize("line", ["[grace]\nx = 1", "grace = [1]", "grace = 2026-01-01", "grace.x = 1"])
def test_a_key_has_a_single_value(configured: ConfiguredProject, line: str) -> None:
    """No table, list or date."""
    path = configured.file(f"\n\n{line}\n")
    assert configured.refused().message == f"{path}: grace: a single value is expected"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'until = "x"\ngrace = \n', "Invalid value (at line 2, column 9)"),
        (b"grace", "Expected '=' after a key in a key/value pair (at end of document)"),
        (b"grace = 1\ngrace = 2\n", "Cannot overwrite a value (at line 2, column 10)"),
        (b'until = "\xff"', "'utf-8' codec can't decode byte 0xff in position 9: invalid start byte"),
    ],
)
def test_a_file_that_is_not_toml_is_named_with_its_line(
    configured: ConfiguredProject, content: bytes, reason: str
) -> None:
    """As far as the line is known."""
    path = configured.file(content)
    error = configured.refused()
    assert (error.message, error.hint) == (f"{path} is not valid TOML: {reason}", "see https://toml.io")


def test_a_file_that_is_too_deep_is_not_toml(configured: ConfiguredProject) -> None:
    """Whatever breaks its reader is the file's fault, not a bug of ours."""
    path = configured.file(b"grace = " + b"[" * 100_000)
    assert configured.refused().message.startswith(f"{path} is not valid TOML: ")


def test_a_file_that_cannot_be_read_is_an_error(configured: ConfiguredProject) -> None:
    """It may hold what must not be passed over, such as ``isolation = "require"``."""
    path = configured.root / ".ralph" / "config.toml"
    path.mkdir(parents=True)
    error = configured.refused()
    assert (error.message, error.hint) == (f"{path} cannot be read: not a regular file", "chmod or remove it")


def test_without_a_directory_for_it_there_is_no_file(configured: ConfiguredProject) -> None:
    """A ``.ralph`` that is a file is a reason to fall back, which is not decided here."""
    (configured.root / ".ralph").write_text("")
    assert configured.load() == Settings(project=configured.root, command=("agent.sh",), given=())


def test_no_key_at_the_end_of_a_long_file_is_lost(configured: ConfiguredProject) -> None:
    """Half a file can be valid: it is an error, and not obeyed without the rest."""
    configured.file(f"max_iterations = 9\n#{'x' * (1 << 20)}\nmax_stalls = 1\n")
    error = configured.refused()
    assert error.message.endswith("config.toml cannot be read: larger than 1048576 bytes")
