"""The house rules that a machine can check, over one syntax tree of each module."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.package_modules import PACKAGE, Module, modules

FOLDERS = (
    "interfaces",
    "commands",
    "session",
    "loop",
    "worktree",
    "branches",
    "state",
    "agents",
    "config",
    "git",
    "system",
)
"""The layers from the top to the bottom: an import points down this list, or stays in its folder."""

WORKTREE = (
    "own_rule",
    "user_checkout",
    "temporary",
    "retention",
    "leaks",
    "pool",
    "recover",
    "managed",
    "remove",
    "trash",
    "fingerprints",
    "restore",
    "save",
    "create",
    "warm",
    "ignore",
    "layout",
    "way_out",
    "git_file",
    "stale_locks",
    "register",
    "lock",
    "model",
    "ownership",
)
"""The same order inside ``worktree``: what saves work knows nothing of what removes it."""

OWNERS = {
    "subprocess": "system/process",
    "psutil": "system/process_table",
    "typer": "interfaces/cli",
    "structlog": "system/log",
    "slugify": "commands/worktree",
    "mcp": "interfaces/mcp",
    "mcp_types": "interfaces/mcp",
    "anyio": "interfaces/mcp",
    "starlette": "interfaces/web",
    "uvicorn": "interfaces/web",
    "jinja2": "interfaces/web",
    "markupsafe": "interfaces/web",
    "pygments": "interfaces/web",
    "yaml": "interfaces/fleet/kubernetes/cluster",
}
"""Modules that one place alone may import."""

LONGEST = 600
"""Lines of a module."""


def _layer(path: str) -> int:
    """Return how far up a module is; the package itself and its entry are above all folders."""
    order = ("errors", *reversed(FOLDERS), "__init__", "__main__")
    return order.index(path.removesuffix(".py").partition("/")[0])


def _is_below(path: str, folder: str) -> bool:
    return path == f"{folder}.py" or path.startswith(f"{folder}/")


def test_imports_point_down() -> None:
    """No module knows a folder above its own."""
    wrong = [
        f"{module.path} imports {other}"
        for module in modules()
        for other in sorted(module.ours)
        if _layer(other) > _layer(module.path)
    ]
    assert wrong == []


def test_imports_point_down_inside_worktree() -> None:
    """What decides about data is read from the bottom up, one module after the other."""
    wrong = [
        f"{module.path} imports {other}"
        for module in modules()
        if module.parts[0] == "worktree"
        for other in sorted(module.ours)
        if other.startswith("worktree/") and _floor(other) < _floor(module.path)
    ]
    assert wrong == []


def _floor(path: str) -> int:
    """Return how far down a module of ``worktree`` is; its folder itself imports nothing."""
    return ("__init__", *WORKTREE).index(path.removesuffix(".py").split("/")[1])


def test_each_entry_of_worktree_has_its_place() -> None:
    """A new module gets it on purpose."""
    entries = {name.removesuffix(".py") for name in _entries(PACKAGE / "worktree")}
    assert entries == {*WORKTREE, "__init__"}


def _circle(modules: tuple[Module, ...]) -> list[str]:
    """Return modules of which each is imported by the next, and the first one is the last."""
    try:
        TopologicalSorter({module.path: module.ours for module in modules}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_import_runs_in_a_circle() -> None:
    """A module can be read, and loaded, after all that it builds on; a late import is no way around."""
    assert _circle(modules()) == []


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        ("", []),
        ("from ralph_wrap.below import name", ["above.py", "below.py", "above.py"]),
        ("def late():\n    from ralph_wrap import below", ["above.py", "below.py", "above.py"]),
        ("if TYPE_CHECKING:\n    import ralph_wrap.below", ["above.py", "below.py", "above.py"]),
        ("import_module('ralph_wrap.below')", ["above.py", "below.py", "above.py"]),
        ("import ralph_wrap.above", ["above.py", "above.py"]),
    ],
)
def test_a_circle_is_found(tmp_path: Path, text: str, circle: list[str]) -> None:
    """The test above fails wherever the import that closes a circle stands."""
    package = tmp_path / "ralph_wrap"
    package.mkdir()
    (package / "above.py").write_text(text)
    (package / "below.py").write_text("from ralph_wrap.above import name")
    found = _circle(modules(package))
    assert sorted({*found}) == sorted({*circle})
    assert found[:1] == found[-1:]


@pytest.mark.parametrize(("folder", "but"), [("interfaces", {"cli"}), ("commands", set())])
def test_neighbours_do_not_know_each_other(folder: str, but: set[str]) -> None:
    """Interfaces and commands stand alone; the command line alone may start another interface."""
    wrong = [
        f"{module.path} imports {other}"
        for module in modules()
        if module.parts[0] == folder and module.parts[1] not in but
        for other in sorted(module.ours)
        if other.startswith(f"{folder}/")
        and other != f"{folder}/__init__.py"
        and not _is_below(other, f"{folder}/{module.parts[1]}")
    ]
    assert wrong == []


def test_each_entry_of_the_package_is_a_layer() -> None:
    """A new folder gets its place in the order on purpose."""
    assert _entries(PACKAGE) == {*FOLDERS, "errors.py", "__init__.py", "__main__.py"}


def _entries(folder: Path) -> set[str]:
    return {path.relative_to(folder).parts[0] for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    """Return all files; a folder that has moved leaves an empty one, which git does not know."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "py.typed"
    ]


def test_imports_stand_at_the_top() -> None:
    """What a command needs is loaded before it gives up root.

    An extra may not be installed, and of those who read the list of branches, few want a page.
    """
    late = {line.partition(":")[0] for module in modules() for line in module.late}
    extras = {"interfaces/fleet/kubernetes/cluster.py", "interfaces/cli/mcp.py"}
    assert late == {"__main__.py", "interfaces/cli/review.py", *extras}


@pytest.mark.parametrize(("module", "owner"), OWNERS.items())
def test_a_dependency_has_one_owner(module: str, owner: str) -> None:
    """A replacement of the dependency changes one place."""
    importing = {
        other.path for other in modules() if any(name.partition(".")[0] == module for name in other.imports)
    }
    assert importing
    assert {path for path in importing if not _is_below(path, owner)} == set()


def test_pid_1_stands_alone() -> None:
    """It stays small, and nothing that a session needs can break it."""
    init = [module for module in modules() if _is_below(module.path, "interfaces/init")]
    imported = {name for module in init for name in module.imports}
    ours = {name for name in imported if name.startswith("ralph_wrap")}
    assert {
        path for module in init for path in module.ours if not _is_below(path, "interfaces/init")
    } == set()
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
    assert folders == {*FOLDERS, *others}


def test_a_module_of_tests_fits_into_a_head() -> None:
    """Tests stay as short as modules."""
    lines = {path: len(path.read_text().splitlines()) for path in TESTS.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}
