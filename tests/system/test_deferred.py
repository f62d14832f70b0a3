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


MODULES = 167
"""Modules of ours that a plain session loads at most, packages included."""

BEFORE_CHECKOUT = 78
"""Modules of ours that it loads at most before git checks its worktree out. The others load meanwhile."""

PATTERNS = 14
"""Regular expressions of ours that it compiles at most."""

_FOUND_BY_PYTHON = ("ralph_wrap.__main__", "ralph_wrap.interfaces", "ralph_wrap.interfaces.module_finder")
"""Our modules that load before those that our own finder finds."""

_WATCHED = """
import atexit, gc, json, re, sys
patterns = []
compile_it = re._compiler.compile
def compile_and_note(pattern, flags=0):
    if sys._getframe(3).f_globals["__name__"].startswith("ralph_wrap."):
        patterns.append(str(pattern))
    return compile_it(pattern, flags)
re._compiler.compile = compile_and_note
def searched():
    ours = [module for name, module in sys.modules.items() if name.startswith("ralph_wrap.")]
    return [module.__name__ for module in ours if type(module.__loader__).__name__ != "BytecodeLoader"]
def loaded():
    return [name for name, module in sys.modules.items() if module.__spec__ or name == "__main__"]
before_checkout = []
def note_checkout(event, arguments):
    if event == "subprocess.Popen" and "read-tree" in arguments[1]:
        before_checkout.extend(loaded())
sys.addaudithook(note_checkout)
atexit.register(lambda: print(json.dumps([loaded(), before_checkout, patterns, gc.isenabled(), searched()])))
sys.argv = ["ralph-wrap", "run", "-n", "1", "--", "true"]
from ralph_wrap.__main__ import main
main()
"""


def _session(repo: Repo) -> tuple[set[str], set[str], set[str]]:
    """Run a plain session.

    Returns:
        The names of all loaded modules, of those before the checkout, and our patterns that were compiled.

    """
    command = (sys.executable, "-c", _WATCHED)
    ended = subprocess.run(command, cwd=repo.path, capture_output=True, text=True, check=True)
    loaded, before_checkout, patterns, collects, searched = json.loads(ended.stdout.splitlines()[-1])
    assert collects, "the garbage collector is disabled for the start alone"
    assert {*searched} == {*_FOUND_BY_PYTHON}, "no other folder of ours is searched"
    return set(loaded), set(before_checkout), set(patterns)


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
    loaded, before_checkout, patterns = _session(repo)
    assert {"ralph_wrap.session.session", "ralph_wrap.worktree.remove"} <= loaded
    assert {*deferred.FOR_SOME_COMMANDS.values(), *deferred.FOR_SOME_PROJECTS.values()} & loaded == set()
    slow = {"_hashlib", "asyncio", "dataclasses", "inspect", "ipaddress", "locale", "logging", "ntpath"}
    slow |= {"random", "ssl", "typing"}
    assert slow & loaded == set()
    # A session that needs less lowers these numbers. Each module takes 0.3 ms, each pattern 0.1 ms.
    assert len(_ours(loaded)) <= MODULES
    assert len(_ours(before_checkout)) <= BEFORE_CHECKOUT
    assert "datetime" not in before_checkout
    assert len(patterns) <= PATTERNS, sorted(patterns)


def _ours(names: set[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] == "ralph_wrap"}


def test_another_name_is_an_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'sqlite3'"):
        _ = deferred.sqlite3  # type: ignore[attr-defined]
