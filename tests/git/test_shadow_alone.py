"""What looks at branches works on objects alone, in a shadow git directory."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

import ralph_wrap.git.shadow
from tests.support.package_modules import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOKING = [
    *("branches/**/*.py", "commands/diff.py", "commands/drop/*.py", "commands/resume.py"),
    *("commands/review.py", "interfaces/cli/*.py", "interfaces/web/*.py"),
]
"""The modules that only look. What moves a checkout or a worktree is not among them."""

MOVING = {"branches/intake.py", "commands/drop/remote.py"}
"""These modules move refs: to commits of a private clone, and on a remote."""

WITHOUT_GIT = {
    "is_oid",
    "root_of",
    "scratch_directory",
    "size_of",
    "decode",
    "checkout_of",
    "parse",
    "DiffStat",
    "CommitGraph",
    "RefChange",
}
"""Names of the package that start no git."""


def _asked() -> dict[str, str]:
    """Return what the docstring allows to ask the repository itself, with the reasons."""
    text = ralph_wrap.git.shadow.__doc__ or ""
    return dict(re.findall(r"^    (\w+) {2,}(\S.*)$", text, re.MULTILINE))


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the functions of git that a module calls, each with its first argument."""
    tree = ast.parse(path.read_text())
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"ralph_wrap\.git\b", node.module or ""):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = ast.unparse(node.func).split(".")
        if called[0] in names:
            yield names[called[0]] if len(called) == 1 else called[-1], ast.unparse(node.args[0])


def _is_on_objects(argument: str) -> bool:
    return argument.rpartition(".")[2].lstrip("_") == "objects"


def _real(path: Path) -> set[str]:
    """Return the functions of git that a module does not call on objects alone."""
    return {
        name for name, argument in _calls(path) if name not in WITHOUT_GIT and not _is_on_objects(argument)
    }


def test_only_a_short_list_is_asked_of_the_repository() -> None:
    """Everything else that looks is called on ``objects``; nothing stands on the list in vain."""
    paths = {path for pattern in LOOKING for path in PACKAGE.glob(pattern)} - {
        PACKAGE / one for one in MOVING
    }
    used = {path.relative_to(PACKAGE).as_posix(): _real(path) for path in paths}
    allowed = {*_asked()}
    assert {name: calls - allowed for name, calls in used.items() if calls - allowed} == {}
    assert allowed <= {name for calls in used.values() for name in calls}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from ralph_wrap.git.compare import merges\nmerges(objects, [])", set()),
        ("from ralph_wrap.git.compare import merges\nmerges(self._objects, [])", set()),
        ("from ralph_wrap.git.compare import merges\nmerges(git, [])", {"merges"}),
        ("from ralph_wrap.git import compare as c\nc.merges(project.git, [])", {"merges"}),
        ("from ralph_wrap.git import run_git as run\nrun(git, 'diff')", {"run_git"}),
    ],
)
def test_a_call_on_the_repository_is_found(tmp_path: Path, text: str, found: set[str]) -> None:
    """The test above fails however the function is imported."""
    path = tmp_path / "module.py"
    path.write_text(text)
    assert _real(path) == found
