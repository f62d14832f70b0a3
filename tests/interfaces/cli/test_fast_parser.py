"""The quick reader of a command line understands what Typer does, or leaves it to Typer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from ralph_wrap import config
from ralph_wrap.config.table import TYPED
from ralph_wrap.interfaces.cli import fast_parser
from ralph_wrap.interfaces.cli.app import app
from tests.config.test_config import VALUES
from tests.config.test_wrong_values import WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RUN: Any = get_command(app).commands["run"]  # type: ignore[attr-defined]
_OPTIONS = {name: option for option in _RUN.params for name in option.opts if name.startswith("-")}
_TYPED = st.sampled_from([*_OPTIONS, "--help", "-h", "--", "-", "-n5", "-x", "--delay=1s", "--drop-empty=x"])
_WORD = st.one_of(_TYPED, st.sampled_from(["agent.sh", "5", "", "-1", "a b", "--max-iter", "=", "ä"]))


def _by_typer(arguments: Sequence[str]) -> fast_parser.CommandLine | str | None:
    """Return what Typer reads, what is wrong with a value, or ``None`` for other mistakes and the help."""
    try:
        context = _RUN.make_context("run", [*arguments])
    except typer.BadParameter as error:
        return error.message
    except Exception:  # noqa: BLE001 -- whatever it says, it is no session
        return None
    values = dict(context.params)
    command = tuple(values.pop("command") or ())
    project = Path(values.pop("project"))  # Typer makes it one later
    flags = {name: _flag(value) for name, value in values.items() if value or isinstance(value, str)}
    return fast_parser.CommandLine("run", project, flags, command)


def _flag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(value)
    return "on" if value is True else str(value)


def _wrong(read: fast_parser.CommandLine) -> Iterator[str]:
    """Yield what is wrong with the values that the quick one passes on, by the table of options."""
    for name, text in read.flags.items():
        try:
            config.ROWS[name].kind.read(text)
        except ValueError as error:
            yield str(error)


@given(st.lists(_WORD, max_size=7))
def test_both_read_the_same(words: list[str]) -> None:
    """Whatever is typed: what the quick one reads, Typer reads as well, or refuses for the same reason."""
    read = fast_parser.read(["run", *words], {})
    if read is not None:
        expected: tuple[object, ...] = tuple(_wrong(read)) or (read,)
        assert _by_typer(words) in expected


@pytest.mark.parametrize("option", WRONG)
def test_typer_names_the_form_of_a_value(option: str) -> None:
    """In the words that every other source has."""
    text, reason = WRONG[option]
    if not config.ROWS[option].is_switch:
        assert _by_typer([f"{config.ROWS[option].word}={text}", "agent"]) == reason


@pytest.mark.parametrize("option", _OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_is_known(option: Any) -> None:
    """In each of its spellings."""
    value = [] if option.is_flag else [VALUES[option.name][0] if option.name in VALUES else "./value"]
    for name in option.opts:
        read = fast_parser.read(["run", name, *value, "--", "agent"], {})
        assert read is not None, name
        assert read == _by_typer([name, *value, "--", "agent"])


def test_spawn_has_the_same_options() -> None:
    """Whatever run understands."""
    spawn: Any = get_command(app).commands["spawn"]  # type: ignore[attr-defined]
    assert [option.opts for option in spawn.params] == [option.opts for option in _RUN.params]
    read = fast_parser.read(["spawn", "-n", "3", "agent"], {})
    assert read == fast_parser.CommandLine("spawn", Path(), {"max_iterations": "3"}, ("agent",))


def test_every_option_of_the_configuration_is_an_option() -> None:
    """Each row of the table that can be typed, and nothing else."""
    assert {option.name for option in _OPTIONS.values()} == {
        row.name for row in config.ROWS.values() if TYPED in row.sources
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ps"],
        ["--version"],
        ["run", "--help"],
        ["run", "-h"],
        ["run", "--max-iterations"],
        ["run", "--max-iter", "5", "agent"],
        ["run", "--drop-empty=yes", "agent"],
    ],
)
def test_the_rest_is_left_to_typer(arguments: list[str]) -> None:
    """Other commands, questions, mistakes, abbreviations."""
    assert fast_parser.read(arguments, {}) is None


def test_the_environment_may_name_the_project(tmp_path: Path) -> None:
    """Unless it was typed."""
    environ = {"RALPH_WRAP_PROJECT": str(tmp_path)}
    named, typed = (fast_parser.read(["run", *words, "x"], environ) for words in ([], ["-C", "y"]))
    assert named is not None
    assert typed is not None
    assert (named.project, str(typed.project)) == (tmp_path, "y")
