"""Documents that a crash, another release or an agent has changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.system.document import DocumentFormat, MisshapenError, convert_fields, from_json, parse

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = DocumentFormat(version=2, largest=200)

DAMAGED = {
    "empty": b"",
    "zeros": b"\0" * 50,
    "no JSON": b"version 2",
    "half": b'{"version": 2, "na',
    "not UTF-8": b'{"version": 2, "name": "\xff"}',
    "long number": b'{"version": 2, "name": ' + b"1" * 5000 + b"}",
}
MISSHAPEN = {
    "list": (b'["version", 2]', "no JSON object"),
    "text": (b'"version"', "no JSON object"),
    "no version": (b'{"name": "x"}', "'version'"),
    "no name": (b'{"version": 2}', "'name'"),
    "wrong type": (b'{"version": 2, "name": 7}', "'int' object has no attribute 'encode'"),
    "no text": (b'{"version": 2, "name": ["x"]}', "'list' object has no attribute 'encode'"),
}


def _name(fields: dict[str, Any]) -> bytes:
    name: str = fields["name"]
    return name.encode()


def _read(path: Path, content: bytes, form: DocumentFormat = FORMAT) -> bytes:
    path.write_bytes(content)
    return form.read(path, _name)


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Negative control of the tests below; fields that this version does not know do no harm."""
    content = FORMAT.encode({"name": "x", "more": [1]})
    assert content == b'{"version": 2, "name": "x", "more": [1]}\n'
    assert _read(tmp_path / "file", content) == b"x"


def test_people_can_read_a_document_with_an_indent() -> None:
    """Unknown fields stand first, and never replace a field of ours."""
    form = DocumentFormat(version=1, indent=1)
    content = form.encode({"name": "x"}, unknown={"later": 7, "name": "y"})
    assert content == b'{\n "later": 7,\n "name": "x",\n "version": 1\n}\n'


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    """A caller has one kind of error to handle."""
    with pytest.raises(ValueError, match=r"."):
        _read(tmp_path / "file", content, DocumentFormat(version=2))


@pytest.mark.parametrize(("content", "reason"), MISSHAPEN.values(), ids=MISSHAPEN)
def test_a_missing_part_is_a_value_error(tmp_path: Path, content: bytes, reason: str) -> None:
    """The function that reads the fields need not check for each of them."""
    with pytest.raises(MisshapenError) as error:
        _read(tmp_path / "file", content)
    assert str(error.value) == reason


@pytest.mark.parametrize("version", ["1", "3", '"2"', "null", "[2]"])
def test_another_version_is_refused(tmp_path: Path, version: str) -> None:
    """What a newer release means by its fields is unknown."""
    with pytest.raises(ValueError, match=r"^version "):
        _read(tmp_path / "file", b'{"version": %s, "name": "x"}' % version.encode())


def test_a_file_that_is_too_large_is_damaged(tmp_path: Path) -> None:
    """An agent cannot make us read a file without end; one byte less is read."""
    content = FORMAT.encode({"name": "x"}).rstrip()
    whole = b" " * (FORMAT.largest - len(content)) + content
    assert _read(tmp_path / "file", whole) == b"x"
    with pytest.raises(ValueError, match=r"^it has more than 200 bytes$"):
        _read(tmp_path / "file", b" " + whole)


@pytest.mark.parametrize("content", [b"[" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_a_value_error(content: bytes | str) -> None:
    """The parser raises an error of another kind for it."""
    with pytest.raises(MisshapenError):
        from_json(content)


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    """Callers treat these differently."""
    with pytest.raises(FileNotFoundError):
        FORMAT.read(tmp_path / "file", _name)


@given(st.one_of(st.binary(), st.text()))
def test_any_content_has_a_meaning_or_a_value_error(content: bytes | str) -> None:
    """No other error comes out."""
    with contextlib.suppress(ValueError):
        parse(content, _name)


class _Kind(NamedTuple):
    name: str
    number: int = 1
    paths: tuple[str, ...] = ()
    seconds: float = 0.0


def test_fields_become_a_value() -> None:
    """A list is a tuple, a whole number may be a ``float``; unknown fields do no harm."""
    fields = {"name": "x\udcff", "paths": ["a"], "seconds": 2, "later": []}
    assert convert_fields(fields, _Kind) == _Kind("x\udcff", 1, ("a",), 2.0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "it lacks name"),
        ({"name": None}, "name: Expected `str`, got `null`"),
        ({"name": "x", "number": "1"}, "number: Expected `int`, got `str`"),
        ({"name": "x", "number": True}, "number: Expected `int`, got `bool`"),
        ({"name": "x", "number": 1.0}, "number: Expected `int`, got `float`"),
        ({"name": "x", "paths": ["a", 7]}, "paths: Expected `str`, got `int` - at `$[1]`"),
    ],
)
def test_a_field_of_another_type_is_misshapen(fields: dict[str, Any], reason: str) -> None:
    """Nothing is guessed: the error names the field."""
    with pytest.raises(MisshapenError) as error:
        convert_fields(fields, _Kind)
    assert str(error.value) == reason
