"""A docstring names the parameters and attributes that are there."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.package_modules import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _rows(docstring: str, section: str) -> list[str]:
    """Return the names of the rows of a section."""
    found = re.search(rf"^{section}:\n((?: +.*\n?|\n)*)", docstring, re.MULTILINE)
    return re.findall(r"^    (\w+): ", found[1], re.MULTILINE) if found else []


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    of = function.args
    every = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
    return {each.arg for each in every if each is not None}


def _attributes(class_: ast.ClassDef) -> set[str]:
    """Return fields and members, and what is set on ``self``."""
    nodes = list(ast.walk(class_))
    fields = {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    own = {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    values = {
        target.id
        for node in class_.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return fields | own | values | {node.name for node in class_.body if isinstance(node, FUNCTIONS)}


def _stale(source: str) -> Iterator[str]:
    """Yield each row that names no parameter or attribute."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) or not (text := ast.get_docstring(node)):
            continue
        if isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, FUNCTIONS) and each.name == "__init__"]
            known = _parameters(made[0]) if made else _attributes(node)
            yield from (
                f"{node.name}: {row}" for row in _rows(text, "Attributes") if row not in _attributes(node)
            )
        else:
            known = _parameters(node)
        yield from (f"{node.name}: {row}" for row in _rows(text, "Arguments") if row not in known)


def test_every_row_names_something() -> None:
    """A row stays behind when a parameter gets another name."""
    stale = {
        path.relative_to(PACKAGE).as_posix(): [*_stale(path.read_text())] for path in PACKAGE.rglob("*.py")
    }
    assert {path: rows for path, rows in stale.items() if rows} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def f(a: int) -> int:\n    """Add.\n\n    Arguments:\n        b: one.\n\n    """\n', ["f: b"]),
        ('def f(a: int) -> int:\n    """Add.\n\n    Arguments:\n        a: one.\n\n    """\n', []),
        ('class C:\n    """Hold.\n\n    Attributes:\n        b: one.\n\n    """\n\n    a: int\n', ["C: b"]),
        ('class C:\n    """Hold.\n\n    Attributes:\n        a: one.\n\n    """\n\n    a: int\n', []),
    ],
)
def test_a_stale_row_is_found(source: str, found: list[str]) -> None:
    """In functions and in classes."""
    assert [*_stale(source)] == found


ARTICLES = frozenset({"the", "a", "an", "its", "our", "their"})


def _repeating(source: str) -> list[str]:
    """Return the rows whose text is their name."""
    return [
        f"{name}: {text}"
        for name, text in re.findall(r"^ {4,}(\w+): (.+)\.$", source, re.MULTILINE)
        if [word for word in text.lower().split() if word not in ARTICLES] == name.split("_")
    ]


def test_no_row_repeats_its_name() -> None:
    """A reader of the name learns nothing from it."""
    found = {
        path.relative_to(PACKAGE).as_posix(): _repeating(path.read_text()) for path in PACKAGE.rglob("*.py")
    }
    assert {path: rows for path, rows in found.items() if rows} == {}


@pytest.mark.parametrize(
    ("row", "is_found"),
    [
        ("project: the project", True),
        ("exit_status: its exit status", True),
        ("project: where it runs", False),
        ("directory: the directory of the project", False),
    ],
)
def test_a_row_that_repeats_its_name_is_found(row: str, is_found: bool) -> None:
    """With or without an article; a row that says more is none."""
    assert _repeating(f'"""Run.\n\n    Arguments:\n        {row}.\n"""') == [row] * is_found
