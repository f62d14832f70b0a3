"""The modules that load at their first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import deferred
from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.support.package_modules import modules

if TYPE_CHECKING:
    from tests.support.repo import Repo


def _known_to_type_checkers() -> dict[str, str]:
    """Return the full name of each module that type checkers see, by its name in ``deferred``."""
    tree = ast.parse(Path(deferred.__file__).read_text())
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname: f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in block.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


def test_type_checkers_see_what_loads() -> None:
    """The two lists of the module are one."""
    assert _known_to_type_checkers() == deferred.MODULES


def test_each_module_has_a_user() -> None:
    """What nothing uses is not in the list."""
    used = {name for module in modules() for name in module.attributes}
    assert deferred.MODULES.keys() - used == set()


@pytest.mark.parametrize("name", deferred.MODULES)
def test_a_module_loads_at_its_first_use(name: str) -> None:
    """Under its own name."""
    assert getattr(deferred, name).__name__ == deferred.MODULES[name]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_session_loads_only_what_it_needs(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, log_format: str
) -> None:
    """Its project has no configuration file, and its messages go to no terminal."""
    monkeypatch.setenv(FORMAT_VARIABLE, log_format)
    command = (sys.executable, "-X", "importtime", "-m", "ralph_wrap", "run", "-n", "1", "--", "true")
    ended = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if "|" in line}
    assert {"ralph_wrap.session.session", "ralph_wrap.worktree.remove"} <= loaded
    assert {*deferred.FOR_SOME_COMMANDS.values(), *deferred.FOR_SOME_PROJECTS.values()} & loaded == set()


def test_another_name_is_an_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'sqlite3'"):
        _ = deferred.sqlite3  # type: ignore[attr-defined]
