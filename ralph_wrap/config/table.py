"""What a row of the table of options is, and a value whose fields are the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

from ralph_wrap.config.parsers import FLAG, ValueKind, written

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPED = "flags"
ENVIRONMENT = "environment"
KEY = "file"
EVERYWHERE = (TYPED, ENVIRONMENT, KEY)
"""The places where an option can stand."""

PREFIX = "RALPH_WRAP_"
"""How the variables of options begin."""

_Default = TypeVar("_Default")


class Option:
    """A row of the table: everything there is to say about an option.

    Attributes:
        name: as Python has it; a key of the configuration file.
        default: its value if it is given nowhere.
        kind: what its value can be.
        group: the options that it belongs to.
        help: what it does, in a sentence or two.
        where: the places where it can stand.
        short: a second, short spelling on the command line.
        metavar: stands for a value in the help.
        unset: what happens by default, in words; empty if the default says it.
        is_switch: takes no value on the command line.
        needs_worktree: changes nothing in a session without a worktree.
        variables: the environment variables that give it.

    """

    __slots__ = (
        *("default", "group", "help", "is_switch", "kind", "metavar", "name"),
        *("needs_worktree", "short", "unset", "variables", "where"),
    )

    def __init__(
        self,
        default: Any,
        kind: ValueKind,
        group: str,
        help: str,  # noqa: A002 -- the name of that column
        *,
        name: str = "",
        where: tuple[str, ...] = EVERYWHERE,
        short: str = "",
        metavar: str = "",
        unset: str = "",
        is_switch: bool = False,
        needs_worktree: bool = False,
        variable: str = "",
    ) -> None:
        self.default, self.kind, self.group, self.help, self.where = default, kind, group, help, where
        self.short, self.metavar, self.unset = short, metavar or kind.metavar, unset
        self.is_switch, self.needs_worktree = is_switch, needs_worktree
        self.variables: tuple[str, ...] = (variable,) if variable else ()
        self.named(name)

    def named(self, name: str) -> None:
        """Give the option its name, and the variable that follows from it."""
        self.name = name
        if name and ENVIRONMENT in self.where:
            self.variables = (PREFIX + name.upper(), *self.variables)

    @property
    def word(self) -> str:
        """How it is spelt on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def words(self) -> tuple[str, ...]:
        """All its spellings on the command line."""
        return (self.word, self.short) if self.short else (self.word,)

    @property
    def default_text(self) -> str:
        """What people read of the default: empty if it is that nothing happens."""
        if self.unset:
            return self.unset
        if self.is_switch or (self.default in {None, "", 0, ()} and self.kind is not FLAG):
            return ""
        return written(self.default, self.kind) or ""

    @property
    def full_help(self) -> str:
        """What it does, and its default."""
        return f"{self.help} (default: {self.default_text})" if self.default_text else self.help


def option(*, default: _Default, kind: ValueKind, group: str, help: str, **more: Any) -> _Default:  # noqa: A002 -- as above
    """Declare a field of a :class:`Table` as an option; more arguments are those of :class:`Option`."""
    row: Any = Option(default, kind, group, help, **more)
    return row  # type: ignore[no-any-return]  # the class has the default in its place


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
class Table:
    """An immutable value whose class declares its fields, each with type and default, as options or plainly.

    It has the interface of a named tuple. That would compile the annotation of each field at every start.
    """

    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[dict[str, Any]]
    options: ClassVar[tuple[Option, ...]]

    def __init_subclass__(cls) -> None:
        """Give each option its name, and put its default where instances find it."""
        cls._fields = tuple(cls.__annotations__)
        declared = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
        rows = {name: row for name, row in declared.items() if isinstance(row, Option)}
        for name, row in rows.items():
            row.named(name)
            setattr(cls, name, row.default)
        cls.options = tuple(rows.values())
        cls._field_defaults = {name: vars(cls)[name] for name in declared}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._fields, values, strict=False)) | named
        if unknown := given.keys() - {*self._fields}:
            raise TypeError(f"no such field: {', '.join(sorted(unknown))}")
        if missing := {*self._fields} - given.keys() - self._field_defaults.keys():
            raise TypeError(f"no value is given for: {', '.join(sorted(missing))}")
        vars(self).update(given)

    def _replace(self, **changed: Any) -> Self:
        return type(self)(**(vars(self) | changed))

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({shown})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be changed")
