"""The modules that load at their first use."""

from __future__ import annotations

import ast
import json
import re
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


_FOUND_BY_PYTHON = ("ralph_wrap.__main__", "ralph_wrap.interfaces", "ralph_wrap.interfaces.module_finder")
"""Our modules that load before those that our own finder finds."""

_WATCHED = """
import atexit, gc, json, sys
def searched():
    ours = [module for name, module in sys.modules.items() if name.startswith("ralph_wrap.")]
    return [module.__name__ for module in ours if type(module.__loader__).__name__ != "BytecodeLoader"]
def loaded():
    found = sys.modules.items()  # typing.io of Python 3.11 has no __spec__
    return [name for name, module in found if getattr(module, "__spec__", None) or name == "__main__"]
atexit.register(lambda: print(json.dumps([loaded(), gc.isenabled(), searched()])))
sys.argv = ["ralph-wrap", "run", "-n", "1", "--", "true"]
from ralph_wrap.__main__ import main
main()
"""


def _session(repo: Repo) -> set[str]:
    """Run a plain session, and return the names of all loaded modules."""
    command = (sys.executable, "-c", _WATCHED)
    ended = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=True)
    loaded, collects, searched = json.loads(ended.stdout.splitlines()[-1])
    assert collects, "the garbage collector is disabled for the start alone"
    assert {*searched} == {*_FOUND_BY_PYTHON}, "no other folder of ours is searched"
    return set(loaded)


def test_a_pattern_is_compiled_once_at_its_first_use() -> None:
    """Until then even a wrong one is accepted."""
    numbers = deferred.pattern(r"[0-9]+")
    assert numbers.findall("1 and 22") == ["1", "22"]
    assert numbers.findall is numbers.findall
    wrong = deferred.pattern("[")
    with pytest.raises(re.error):
        wrong.search("")


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
    loaded = _session(repo)
    assert {"ralph_wrap.session.session", "ralph_wrap.worktree.remove"} <= loaded
    assert {*deferred.FOR_SOME_COMMANDS.values(), *deferred.FOR_SOME_PROJECTS.values()} & loaded == set()


def test_another_name_is_an_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'sqlite3'"):
        _ = deferred.sqlite3  # type: ignore[attr-defined]
