"""The quick reader of a command line understands what Typer does, or leaves it to Typer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from ralph_wrap import config
from ralph_wrap.interfaces.cli import fast_parser
from ralph_wrap.interfaces.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN: Any = get_command(app).commands["run"]  # type: ignore[attr-defined]
_OPTIONS = {name: option for option in _RUN.params for name in option.opts if name.startswith("-")}
_TYPED = st.sampled_from([*_OPTIONS, "--help", "-h", "--", "-", "-n5", "-x", "--delay=1s", "--drop-empty=x"])
_WORD = st.one_of(_TYPED, st.sampled_from(["agent.sh", "5", "", "-1", "a b", "--max-iter", "=", "ä"]))


def _by_typer(arguments: Sequence[str]) -> fast_parser.Typed | None:
    """Return what Typer reads, ``None`` if it refuses that or shows the help."""
    try:
        context = _RUN.make_context("run", [*arguments])
    except Exception:  # noqa: BLE001 -- whatever it says, it is no session
        return None
    values = dict(context.params)
    command = tuple(values.pop("command") or ())
    project = Path(values.pop("project"))  # Typer makes it one later
    flags = {name: _flag(value) for name, value in values.items() if value or isinstance(value, str)}
    return fast_parser.Typed("run", project, flags, command)


def _flag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(value)
    return "on" if value is True else str(value)


@given(st.lists(_WORD, max_size=7))
def test_both_read_the_same(words: list[str]) -> None:
    """Whatever is typed: what the quick one reads, Typer reads as well."""
    read = fast_parser.read(["run", *words], {})
    assert read is None or read == _by_typer(words)


@pytest.mark.parametrize("option", _OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_is_known(option: Any) -> None:
    """In each of its spellings."""
    value = [] if option.is_flag else ["./value"]
    for name in option.opts:
        read = fast_parser.read(["run", name, *value, "--", "agent"], {})
        assert read is not None, name
        assert read == _by_typer([name, *value, "--", "agent"])


def test_spawn_has_the_same_options() -> None:
    """Whatever run understands."""
    spawn: Any = get_command(app).commands["spawn"]  # type: ignore[attr-defined]
    assert [option.opts for option in spawn.params] == [option.opts for option in _RUN.params]
    read = fast_parser.read(["spawn", "-n", "3", "agent"], {})
    assert read == fast_parser.Typed("spawn", Path(), {"max_iterations": "3"}, ("agent",))


def test_every_option_of_the_configuration_is_an_option() -> None:
    """And nothing else but the project, a job that names several of them, and the help."""
    assert {option.name for option in _OPTIONS.values()} == {"project", "job", *config.OPTIONS}


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
