"""The modules of the package, each read and parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent.parent / "ralph_wrap"


class Module(NamedTuple):
    """What the rules ask of a module.

    Attributes:
        path: below the package.
        imports: full names of everything that it imports, at its top or in a function.
        lines: how many it has.
        late: the imports inside its functions.
        attributes: the names that stand behind a dot in it.

    """

    path: str
    imports: frozenset[str]
    lines: int
    late: frozenset[str]
    attributes: frozenset[str]


@cache
def modules(package: Path = PACKAGE) -> tuple[Module, ...]:
    """Read and parse every module, once for all tests."""
    return tuple(_read(path, package) for path in sorted(package.rglob("*.py")))


def _read(path: Path, package: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    imports, attributes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
    name, size = path.relative_to(package).as_posix(), len(text.splitlines())
    late = {
        f"{name}: {ast.unparse(node)}"
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return Module(
        path=name,
        imports=frozenset(imports),
        lines=size,
        late=frozenset(late),
        attributes=frozenset(attributes),
    )
