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
        imports: full names of everything that it imports, at its top, in a function, or for type checkers
            alone. The full name of one of our modules as a text counts.
        ours: the modules of this package among them, by path.
        lines: how many it has.
        late: the imports inside its functions.
        attributes: the names that stand behind a dot in it.

    """

    path: str
    imports: frozenset[str]
    ours: frozenset[str]
    lines: int
    late: frozenset[str]
    attributes: frozenset[str]

    @property
    def parts(self) -> tuple[str, ...]:
        """Folder, and what is in it."""
        return tuple(self.path.removesuffix(".py").split("/"))


@cache
def modules(package: Path = PACKAGE) -> tuple[Module, ...]:
    """Read and parse every module, once for all tests."""
    paths = {
        path.relative_to(package.parent)
        .as_posix()
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", "."): path
        for path in sorted(package.rglob("*.py"))
    }
    return tuple(_read(path, package, paths) for path in paths.values())


def _read(path: Path, package: Path, paths: dict[str, Path]) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    imports, attributes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and node.value in paths and node.value != package.name:
            imports.add(node.value)
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
    found = (paths.get(name) or paths.get(name.rpartition(".")[0]) for name in imports)
    ours = frozenset(one.relative_to(package).as_posix() for one in found if one)
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
        ours=ours,
        lines=size,
        late=frozenset(late),
        attributes=frozenset(attributes),
    )
