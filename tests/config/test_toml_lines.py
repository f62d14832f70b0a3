"""The line of each key in a TOML document."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.config.toml_lines import of_keys

DOCUMENTS: dict[str, tuple[str, dict[str, int]]] = {
    "nothing": ("", {}),
    "keys": ("a = 1\n\n  b = 2\n", {"a": 1, "b": 3}),
    "no last newline": ("a = 1\nb = 2", {"a": 1, "b": 2}),
    "Windows": ("a = 1\r\nb = 2\r\n", {"a": 1, "b": 2}),
    "a comment with a key": ("# a = 1\nb = 2 # c = 3\n", {"b": 2}),
    "a text with a key": ('a = "b = 1 # \\" c = 2"\nd = \'e = "\'\n', {"a": 1, "d": 2}),
    "lines with a key": ('a = """\nb = 1\n\\""" "" c = 2"""\nd = 1\n', {"a": 1, "d": 4}),
    "plain lines with a key": ("a = '''\nb = 1\n\\''''\nc = 1\n", {"a": 1, "c": 4}),
    "lines that end in quotes": ('a = """x"""""\nb = 1\n', {"a": 1, "b": 2}),
    "empty texts": ('a = ""\nb = \'\'\nc = """"""\nd = 1\n', {"a": 1, "b": 2, "c": 3, "d": 4}),
    "a list of lines": ('a = [\n "b = 1", # c\n [2, 3],\n]\nd = 1\n', {"a": 1, "d": 5}),
    "a table": ("\n[a]\nb = 1\n[c]\nb = 1\n", {"a": 2, "a.b": 3, "c": 4, "c.b": 5}),
    "a nested table": ("[a.b]\nc = 1\n[ a . d ]\n", {"a": 1, "a.b": 1, "a.b.c": 2, "a.d": 3}),
    "dotted keys": ("a.b = 1\na . c = 2\n", {"a": 1, "a.b": 1, "a.c": 2}),
    "quoted keys": ('"a" = 1\n\'b\' = 2\n"\\u0063".d = 3\n', {"a": 1, "b": 2, "c": 3, "c.d": 3}),
    "an inline table": (
        "a = { b = 1, c.d = [{ e = 2 }] }\nf = 1\n",
        {"a": 1, "f": 2} | dict.fromkeys(("a.b", "a.c", "a.c.d", "a.c.d.e"), 1),
    ),
    "an empty inline table": ("a = {}\nb = [{}, { c = 1 }]\n", {"a": 1, "b": 2, "b.c": 2}),
    "tables in a list": ("[[a]]\nb = 1\n[[a]]\nb = 2\nc = 3\n", {"a": 1, "a.b": 2, "a.c": 5}),
    "numbers and dates": ("a = 1.5e3\nb = 2026-01-02 03:04:05.6Z\nc = -inf\n", {"a": 1, "b": 2, "c": 3}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_is_found_in_its_line(name: str) -> None:
    """Of one that stands there often, the first; what only looks like a key is none."""
    text, lines = DOCUMENTS[name]
    assert {".".join(keys): line for keys, line in of_keys(text).items()} == lines


def test_a_quoted_key_is_one_name() -> None:
    """A dot or a bracket in quotes parts nothing."""
    assert of_keys('["a.b".c]\n"d]" = 1\n') == {("a.b",): 1, ("a.b", "c"): 1, ("a.b", "c", "d]"): 2}


def test_a_deep_list_is_passed_over() -> None:
    """As deep as ``tomllib`` reads, from any depth of our own."""
    text = f"a = {'[' * 150}{']' * 150}\nb = 1\n"
    assert tomllib.loads(text)["b"] == of_keys(text)[("a",)] == 1
    assert of_keys(f"a = {'[' * 100_000}{']' * 100_000}\nb = 1\n")[("b",)] == 2


def _paths(table: Any, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the full names of everything in a table."""
    if isinstance(table, list):
        return {path for entry in table for path in _paths(entry, above)}
    if not isinstance(table, dict):
        return set()
    return {path for key, value in table.items() for path in ((*above, key), *_paths(value, (*above, key)))}


_NAMES = st.sampled_from(["a", "b-c", "1", "d e", "f.g", "[h]", "i = 1", '"', "'", "#", "ä", ""])
_TEXTS = st.sampled_from(
    ['"x"', "'y = 1'", '"""\nz = 1\n[t]\n"""', "'''\nz = 1\n'''", '"""a"b""c"""', '"\\"]}"', "1.5", "true"]
)


def _list(values: list[str]) -> str:
    return "[\n" + "".join(f"{value}, # ]\n" for value in values) + "]"


_VALUES = st.recursive(
    _TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_list),
        st.dictionaries(_NAMES, inner, max_size=3).map(
            lambda table: f"{{ {', '.join(f'{json.dumps(key)} = {value}' for key, value in table.items())} }}"
        ),
    ),
    max_leaves=5,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), st.dictionaries(_NAMES, _VALUES, max_size=3))
def test_every_key_that_is_read_is_found(first: dict[str, str], second: dict[str, str]) -> None:
    """And nothing else; where a document is cut before the line of a key, the key is gone."""
    head = [f"{json.dumps(key)} = {value}" for key, value in first.items()]
    tail = [f"{json.dumps(key)}.k = {value} # c" for key, value in second.items()]
    text = "\n".join([*head, "[table.'in']", *tail, ""])
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a line break in an inline table, or a key of the same name
        return
    lines = of_keys(text)
    assert {*lines} == _paths(read)
    for key, line in lines.items():
        if len(key) == 1:
            above = "\n".join(text.split("\n")[: line - 1])
            assert key[0] not in tomllib.loads(above)
