"""The house rules that a machine can check, over one syntax tree of each module.

What may import what, ``lint-imports`` proves by the contracts of ``pyproject.toml``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.package_modules import PACKAGE, modules

LONGEST = 600
"""Lines of a module."""


def test_imports_stand_at_the_top() -> None:
    """What a command needs is loaded before it gives up root.

    An extra may not be installed, and of those who read the list of branches, few want a page.
    """
    late = {line.partition(":")[0] for module in modules() for line in module.late}
    extras = {"interfaces/fleet/kubernetes/cluster.py", "interfaces/cli/mcp.py"}
    assert late == {"__main__.py", "interfaces/cli/review.py", *extras}


def test_pid_1_stands_alone() -> None:
    """It stays small, and nothing that a session needs can break it."""
    init = [module for module in modules() if module.path.startswith("interfaces/init/")]
    imported = {name for module in init for name in module.imports}
    ours = {name for name in imported if name.startswith("ralph_wrap")}
    assert {name for name in ours if not name.startswith("ralph_wrap.interfaces.init.")} == set()
    roots = {name.partition(".")[0] for name in imported - ours}
    assert roots <= sys.stdlib_module_names - {"subprocess", "pathlib"}


def test_a_module_fits_into_a_head() -> None:
    """Modules stay short."""
    assert {module.path: module.lines for module in modules() if module.lines > LONGEST} == {}


def test_no_module_changes_directory() -> None:
    """Paths are absolute and passed in; the working directory is the user's."""
    assert [module.path for module in modules() if module.attributes & {"chdir", "fchdir"}] == []


TESTS = Path(__file__).parent


def test_tests_stand_beside_what_they_test() -> None:
    """Each folder of tests is a folder of the package, or one of the nine that belong to no folder."""
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    others = {"container", "crash", "docs", "gits", "golden", "kubernetes", "machines", "security", "support"}
    assert folders == {path.name for path in PACKAGE.iterdir() if any(path.rglob("*.py"))} | others


def test_a_module_of_tests_fits_into_a_head() -> None:
    """Tests stay as short as modules."""
    lines = {path: len(path.read_text().splitlines()) for path in TESTS.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}
