"""The table of options, and the values that are made from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.config import ROWS, Settings
from ralph_wrap.config.parsers import COUNT, FLAG, written
from ralph_wrap.config.table import ENVIRONMENT, KEY, TYPED, Table, option


class Sizes(Table, group="first"):
    """A small table."""

    name: str
    size: int = option(default=3, kind=COUNT, help="How large.", short="-s")
    is_deep: bool = option(default=False, kind=FLAG, help="Deep.", sources=(KEY,), is_switch=True)
    note: str = "plain"


class Walls(Table, group="second"):
    """Another table."""

    height: int = option(default=1, kind=COUNT, help="How high.")


class House(Walls, Sizes):
    """A table of both."""

    door: str = "oak"


def test_a_table_has_the_fields_of_its_groups() -> None:
    """The last group first; each option keeps its group, and the whole is a value of each group."""
    assert House._fields == ("name", "size", "is_deep", "note", "height", "door")
    assert [(row.name, row.group) for row in House.options] == [
        ("size", "first"),
        ("is_deep", "first"),
        ("height", "second"),
    ]
    house: Sizes = House("x", height=2)
    assert (house.name, house.size, house) == ("x", 3, House(name="x", height=2, door="oak"))


def test_a_field_has_its_default() -> None:
    """Whether it is an option or not; what has none has to be given."""
    assert [*Sizes("x")] == ["x", 3, False, "plain"]
    assert Sizes._field_defaults == {"size": 3, "is_deep": False, "note": "plain"}


@pytest.mark.parametrize(("given", "problem"), [({}, "name"), ({"name": "x", "seize": 4}, "seize")])
def test_a_wrong_field_is_refused(given: Any, problem: str) -> None:
    """One that is missing, and one that is not there."""
    with pytest.raises(TypeError, match=problem):
        Sizes(**given)


def test_a_value_does_not_change() -> None:
    """A changed copy is another value."""
    one: Any = Sizes("x")
    other = one._replace(size=4)
    assert (one.size, other.size, other.name) == (3, 4, "x")
    with pytest.raises(AttributeError):
        one.size = 4
    with pytest.raises(AttributeError):
        del one.size


def test_equal_values_are_equal() -> None:
    """However they were given; those of another type are others."""
    assert Sizes("x") == Sizes(name="x", size=3)
    assert hash(Sizes("x")) == hash(Sizes(name="x", size=3))
    assert Sizes("x") != Sizes("x", 4)
    assert Sizes("x") != tuple(Sizes("x"))


def test_an_option_knows_its_names() -> None:
    """On the command line, and in the environment if it can stand there."""
    size, is_deep = Sizes.options
    assert (size.words, size.variables) == (("--size", "-s"), ("RALPH_WRAP_SIZE",))
    assert (is_deep.words, is_deep.variables) == (("--is-deep",), ())


@pytest.mark.parametrize("row", Settings.options, ids=lambda row: row.name)
def test_a_row_is_complete(row: Any) -> None:
    """It has a group, a help in sentences, and stands where people can give it."""
    assert row.group in {"agent", "loop", "worktree", "sandbox", "pool", "landing", "output"}
    assert re.fullmatch(r"[A-Za-z].*\.", row.help)
    assert row.sources in {(TYPED, ENVIRONMENT, KEY), (KEY,)}


@pytest.mark.parametrize(
    "row", [row for row in Settings.options if row.default not in {None, ()}], ids=lambda row: row.name
)
def test_a_default_is_read_as_it_is_written(row: Any) -> None:
    """Of each option that has one."""
    assert row.kind.read(written(row.default, row.kind)) == row.default


def test_no_two_options_have_one_name() -> None:
    """As they are typed, and in the environment."""
    words = [word for row in ROWS.values() if TYPED in row.sources for word in row.words]
    variables = [variable for row in ROWS.values() for variable in row.variables]
    assert (len(words), len(variables)) == (len({*words}), len({*variables}))


def test_settings_name_a_directory() -> None:
    """Everything else has a default, or is the command."""
    assert {*Settings._fields} - Settings._field_defaults.keys() == {"project", "command"}
    assert Settings(project=Path("x"), command=()).project == Path("x")
