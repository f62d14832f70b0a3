"""A row of the table of options, and a class of values whose fields are the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

from ralph_wrap.config.parsers import FLAG, ValueKind, written

_Default = TypeVar("_Default")

TYPED = "flags"
ENVIRONMENT = "environment"
KEY = "file"
EVERYWHERE = (TYPED, ENVIRONMENT, KEY)
"""The sources that can give an option."""

PREFIX = "RALPH_WRAP_"
"""The beginning of each variable of an option."""


class Option:
    """A row of the table: all facts of an option.

    Attributes:
        name: the name in Python and in the configuration file.
        default: the value if no source gives one.
        kind: the possible values.
        group: the heading of the option in the help; empty for an option that is no setting.
        help: what the option does, in a sentence or two.
        sources: the sources that can give it.
        short: a second, short spelling on the command line.
        metavar: stands for a value in the help.
        unset: the default in words; empty if the value itself is clear.
        is_switch: the option takes no value on the command line.
        needs_worktree: the option has no effect in a session without a worktree.
        variables: the environment variables of the option.

    """

    __slots__ = (
        *("default", "group", "help", "is_switch", "kind", "metavar", "name"),
        *("needs_worktree", "short", "sources", "unset", "variables"),
    )

    def __init__(
        self,
        default: Any,
        kind: ValueKind,
        help: str,  # noqa: A002 -- the name of the column
        *,
        name: str = "",
        sources: tuple[str, ...] = EVERYWHERE,
        short: str = "",
        metavar: str = "",
        unset: str = "",
        is_switch: bool = False,
        needs_worktree: bool = False,
        variable: str = "",
    ) -> None:
        self.default, self.kind, self.help, self.sources = default, kind, help, sources
        self.short, self.metavar, self.unset = short, metavar or kind.metavar, unset
        self.is_switch, self.needs_worktree = is_switch, needs_worktree
        self.variables: tuple[str, ...] = (variable,) if variable else ()
        self.named(name, "")

    def named(self, name: str, group: str) -> None:
        """Give the option its name, its variable, and its group."""
        self.name, self.group = name, group
        if name and ENVIRONMENT in self.sources:
            self.variables = (PREFIX + name.upper(), *self.variables)

    @property
    def word(self) -> str:
        """The long spelling on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def words(self) -> tuple[str, ...]:
        """All spellings on the command line."""
        return (self.word, self.short) if self.short else (self.word,)

    @property
    def default_text(self) -> str:
        """The default as the help shows it; empty if nothing happens by default."""
        if self.unset:
            return self.unset
        if self.is_switch or (self.default in {None, "", 0, ()} and self.kind is not FLAG):
            return ""
        return written(self.default, self.kind) or ""

    @property
    def full_help(self) -> str:
        """The help text with the default."""
        return f"{self.help} (default: {self.default_text})" if self.default_text else self.help


def option(*, default: _Default, kind: ValueKind, help: str, **more: Any) -> _Default:  # noqa: A002 -- as above
    """Declare a field of a :class:`Table` as an option; more arguments are those of :class:`Option`."""
    row: Any = Option(default, kind, help, **more)
    return row  # type: ignore[no-any-return]  # the class replaces the row with its default


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
class Table:
    """An immutable value whose class declares its fields with type and default, as options or plain fields.

    It has the interface of a named tuple, and can be derived from: a subclass has the fields of all its
    bases, the last base first, and then its own.
    """

    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[dict[str, Any]]
    options: ClassVar[tuple[Option, ...]]

    def __init_subclass__(cls, group: str = "") -> None:
        """Give each option its name and its group, and set its default as an attribute of the class."""
        bases = [base for base in reversed(cls.__bases__) if issubclass(base, Table) and base is not Table]
        own = tuple(cls.__annotations__)
        declared = {name: vars(cls)[name] for name in own if name in vars(cls)}
        rows = {name: row for name, row in declared.items() if isinstance(row, Option)}
        for name, row in rows.items():
            row.named(name, group)
            setattr(cls, name, row.default)
        cls._fields = (*(name for base in bases for name in base._fields), *own)
        cls.options = (*(row for base in bases for row in base.options), *rows.values())
        cls._field_defaults = {
            name: value for base in bases for name, value in base._field_defaults.items()
        } | {name: vars(cls)[name] for name in declared}

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
