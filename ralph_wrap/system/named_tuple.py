"""Named tuples whose classes are made quickly: a start makes dozens of them before its agent works.

``typing.NamedTuple`` compiles a constructor for each class, and the annotation of each field. This module
compiles no annotation (measured: 11 microseconds for a class instead of 101). It compiles a constructor only
for a class with many values: a session makes one or two values of most classes. A type checker sees the one
of ``typing``, so that unpacked values have types.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414, TID251 -- others import it from here
else:
    try:
        from _collections import _tuplegetter as field_getter
    except ImportError:  # not CPython
        from operator import itemgetter

        def field_getter(index: int, doc: str | None) -> property:
            """Return a property that reads one value of a tuple."""
            return property(itemgetter(index), doc=doc)

    _MANY = 10  # values of a class: to compile its constructor takes as long as to make them without one

    def _compile_constructor(cls: type) -> None:
        fields = ", ".join(cls._fields)
        code = f"lambda _cls, {fields}: _new(_cls, ({fields},))"
        constructor = eval(code, {"_new": tuple.__new__, "__builtins__": {}})  # noqa: S307 -- names alone
        constructor.__name__ = constructor.__qualname__ = f"{cls.__name__}.__new__"
        constructor.__defaults__ = tuple(cls._field_defaults.values())
        cls.__new__ = staticmethod(constructor)

    class _Definition(type):
        """Makes a class with an attribute for each annotated field.

        That class has no metaclass. With one, ``isinstance`` takes twice as long. Each line of an agent's
        output needs it several times.
        """

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace.get("__annotations__", ()))
            namespace["_field_defaults"] = {
                field: namespace.pop(field) for field in fields if field in namespace
            }
            namespace["_fields"] = namespace["__match_args__"] = fields
            namespace |= {field: field_getter(index, None) for index, field in enumerate(fields)}
            namespace["__slots__"] = ()
            return type(name, (_Values,), namespace)

    NamedTuple = type.__new__(_Definition, "NamedTuple", (), {})

    class _Values(tuple):
        """The parts of :class:`typing.NamedTuple` that this package uses.

        Raises:
            TypeError: a field has no value, a value has no field, or a field has two values.

        """

        __slots__ = ()
        _made = 0

        def __new__(cls, *values: Any, **named: Any) -> Self:
            cls._made += 1
            if cls._made > _MANY:
                _compile_constructor(cls)
                return cls(*values, **named)
            left = cls._fields[len(values) :]
            if named or left or len(values) > len(cls._fields):
                if len(values) > len(cls._fields) or not named.keys() <= {*left}:
                    raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, each once")
                given = {**cls._field_defaults, **named}
                if missing := [field for field in left if field not in given]:
                    raise TypeError(f"{cls.__name__} needs a value for {', '.join(missing)}")
                values += tuple(given[field] for field in left)
            return tuple.__new__(cls, values)

        def __init_subclass__(cls) -> None:
            if cls.__base__ is not _Values and cls.__annotations__:
                raise TypeError(f"{cls.__name__} cannot have more fields than {cls.__base__.__name__}")

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            fields = (f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({', '.join(fields)})"

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changed: Any) -> Self:
            replaced = tuple.__new__(type(self), map(changed.pop, self._fields, self))
            if changed:
                raise TypeError(f"{type(self).__name__} has no field {', '.join(changed)}")
            return replaced
