"""Our named tuples behave like those of ``typing``."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.system import named_tuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Standard(typing.NamedTuple):
    """The one to compare with."""

    name: str
    size: int = 0
    tags: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """A property of its own."""
        return not self.size


class Ours(named_tuple.NamedTuple):
    """The same fields."""

    name: str
    size: int = 0
    tags: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """A property of its own."""
        return not self.size


@pytest.fixture(params=[0, 1_000_000], ids=["compiled", "not compiled"], autouse=True)
def _constructor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the constructor compiled at its first use, or not at all."""
    monkeypatch.setattr(named_tuple, "_MANY", request.param)
    if "__new__" in vars(Ours):
        del Ours.__new__


def _matched(kind: Any) -> object:
    match kind("a", 1):
        case Standard(name, size) | Ours(name, size):
            return name, size
    return None


WAYS: dict[str, Callable[[Any], object]] = {
    "all by position": lambda kind: tuple(kind("a", 1, ("x",))),
    "defaults": lambda kind: tuple(kind("a")),
    "by name": lambda kind: tuple(kind(size=3, name="a")),
    "mixed": lambda kind: tuple(kind("a", tags=("x",))),
    "fields": lambda kind: [kind("a", 2).name, kind("a", 2).size, kind("a", 2)[1]],
    "unpacked": lambda kind: [*kind("a", 1)],
    "equal": lambda kind: (kind("a") == kind("a"), kind("a") == kind("b"), kind("a") == ("a", 0, ())),
    "hash": lambda kind: hash(kind("a")) == hash(("a", 0, ())),
    "ordered": lambda kind: [tuple(value) for value in sorted([kind("b"), kind("a", 2), kind("a")])],
    "replaced": lambda kind: tuple(kind("a", 1)._replace(size=5)),
    "as a dictionary": lambda kind: list(kind("a", 1)._asdict().items()),
    "shown": lambda kind: repr(kind("a", 1)).replace(kind.__name__, ""),
    "copied": lambda kind: (copy.copy(kind("a")) == kind("a"), type(copy.deepcopy(kind("a"))) is kind),
    "pickled": lambda kind: pickle.loads(pickle.dumps(kind("a"))) == kind("a"),  # noqa: S301 -- our own
    "a property": lambda kind: (kind("a").is_empty, kind("a", 1).is_empty),
    "matched": _matched,
    "no other attribute": lambda kind: hasattr(kind("a"), "__dict__"),
    "names": lambda kind: (kind._fields, kind._field_defaults),
    "types": typing.get_type_hints,
    "its class": type,
    "documented": lambda kind: bool(kind.__doc__),
}

FAULTS: dict[str, Callable[[Any], object]] = {
    "a field without a value": lambda kind: kind(),
    "a value without a field": lambda kind: kind("a", 1, (), 4),
    "an unknown name": lambda kind: kind("a", colour="red"),
    "a field with two values": lambda kind: kind("a", name="b"),
    "an unknown name for a field": lambda kind: kind(nam="a"),
    "all fields and an unknown name": lambda kind: kind("a", 1, (), more=2),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_it_behaves_like_the_one_of_typing(way: Callable[[Any], object]) -> None:
    """The same values, the same types."""
    assert way(Ours) == way(Standard)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("kind", [Ours, Standard])
def test_wrong_values(kind: type, fault: Callable[[Any], object]) -> None:
    """None is dropped, none is made up."""
    with pytest.raises(TypeError):
        fault(kind)


def test_a_constructor_is_compiled_for_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values before and after are the same."""
    monkeypatch.setattr(named_tuple, "_MANY", 10)

    class Counted(named_tuple.NamedTuple):
        number: int
        name: str = "a"

    assert [Counted(number) for number in range(50)] == [(number, "a") for number in range(50)]
    assert "__new__" in vars(Counted)


def test_an_unknown_field_cannot_be_replaced() -> None:
    """Its value would be lost."""
    with pytest.raises(TypeError, match="Ours has no field sise"):
        Ours("a")._replace(size=1, sise=2)  # type: ignore[call-arg]


def test_a_field_cannot_be_set() -> None:
    """Values do not change."""
    with pytest.raises(AttributeError):
        Ours("a").name = "b"  # type: ignore[misc]


def test_a_subclass_has_no_further_fields() -> None:
    """They would silently have no place in the tuple."""
    with pytest.raises(TypeError, match="cannot have more fields than Ours"):

        class More(Ours):
            more: int
