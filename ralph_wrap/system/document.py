"""JSON from a file that a crash, another release or an agent may have changed.

Any content is accepted: a function here returns what it means, or raises :class:`ValueError`.
The caller decides what a damaged file means: nothing, a warning, or a session that no command touches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_type_hints

from msgspec import ValidationError, convert

from ralph_wrap.system import files

T = TypeVar("T")
_Fields = TypeVar("_Fields", bound=NamedTuple)


class MisshapenError(ValueError):
    """The content is nested too deeply, or a part of it is missing or has the wrong type."""


def convert_fields(fields: Mapping[str, Any], kind: type[_Fields]) -> _Fields:
    """Return a value of a kind that has its fields from a JSON object, each of the type that the kind says.

    A field that the kind does not have is left out: another release may have written it. Nothing is turned
    into another type, but a list into a tuple, a whole number into a ``float``, and base64 into bytes.

    Raises:
        MisshapenError: a field is missing, or has another type.

    """
    values = []
    for name, annotation in _types(kind).items():
        if name in fields:
            try:
                values.append(convert(fields[name], annotation))
            except ValidationError as error:
                raise MisshapenError(f"{name}: {error}") from None
        elif name in kind._field_defaults:
            values.append(kind._field_defaults[name])
        else:
            raise MisshapenError(f"it lacks {name}")
    return kind._make(values)


@cache
def _types(kind: type[NamedTuple]) -> dict[str, Any]:
    return get_type_hints(kind)


def from_json(content: bytes | str) -> Any:
    """Return a JSON value.

    Raises:
        ValueError: the content is not valid JSON, or nested too deeply.

    """
    return parse(content, lambda value: value)


def parse(content: bytes | str, meaning: Callable[[Any], T]) -> T:
    """Return the meaning of a JSON value.

    Arguments:
        meaning: reads the value; it need not check that all parts are there and have the right type.

    Raises:
        ValueError: the content is not valid JSON, or has no meaning.

    """
    try:
        return meaning(json.loads(content))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MisshapenError(str(error)) from None


class DocumentFormat(NamedTuple):
    """How documents of one kind are written and read: JSON objects with a version.

    Attributes:
        version: the version that we write and read; a newer ralph-wrap writes a higher one.
        largest: number of bytes that a file may have; a larger one is not read.
        indent: number of spaces, for people who read the file; ``None`` writes one line.

    """

    version: int
    largest: int = 1 << 20
    indent: int | None = None

    def versioned(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole content of a document."""
        return {"version": self.version, **fields}

    def encode(self, fields: Mapping[str, Any], unknown: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """Return a document as it stands in its file.

        Arguments:
            unknown: fields that we do not know, and keep.

        """
        return json.dumps({**unknown, **self.versioned(fields)}, indent=self.indent).encode() + b"\n"

    def decode(self, content: bytes, meaning: Callable[[dict[str, Any]], T]) -> T:
        """Return the meaning of a document.

        Arguments:
            meaning: reads the fields; see :func:`parse`.

        Raises:
            ValueError: it is damaged, or of another version.

        """
        return parse(content, lambda loaded: meaning(self._fields_of(loaded)))

    def read(self, path: Path, meaning: Callable[[dict[str, Any]], T]) -> T:
        """Return the meaning of the document in a file.

        Arguments:
            meaning: reads the fields; see :func:`parse`.

        Raises:
            OSError: the file is not there, not readable, or not a regular file.
            ValueError: it is damaged, too large, or of another version.

        """
        content = files.read_beginning(path, self.largest + 1)
        if len(content) > self.largest:
            raise ValueError(f"it has more than {self.largest} bytes")
        return self.decode(content, meaning)

    def _fields_of(self, loaded: Any) -> dict[str, Any]:
        if not isinstance(loaded, dict):
            raise TypeError("no JSON object")
        version = loaded.pop("version")
        if version != self.version:
            raise ValueError(f"version {version}")
        return loaded
