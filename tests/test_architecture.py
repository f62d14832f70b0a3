"""The house rules that a machine can check, over one syntax tree of each module."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.package_modules import PACKAGE, Module, modules, names_of, texts_of

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

LOAD_NOTHING = (
    "interfaces",
    "interfaces/api",
    "commands",
    "session",
    "state",
    "system",
    "state/audit",
    "worktree",
    "worktree/create",
    "worktree/leaks",
    "worktree/managed",
    "worktree/pool",
    "worktree/save",
)
"""Folders without a name of their own: importers name the module."""
FORMS = {
    "state/ids.py": r"\[0-9a-f\]\{4\}|\{6\}Z|%H%M%SZ",
    "git/index.py": r"\b160000\b|\[a-zS\]",
    "git/oid.py": r"\{(40|64)\}",
    "git/pointer.py": r"gitdir: ",
    "worktree/model.py": r"\[0-9a-f\]\{8\}|\b(land|warm)-",
}
"""How agent ids and session ids, submodules and hidden files in an index, object ids, ``.git`` files and
names of worktrees are written or recognised. Only the code of one module has each."""

HANDLED_ONCE = {
    # JSON of a file that another program may have changed
    "RecursionError": {
        "system/document.py",
        "agents/output/__init__.py",  # the lines of an agent, which another parser reads faster
        "config/file.py",  # TOML
        "interfaces/fleet/kubernetes/cluster.py",  # YAML
    },
    # SIGTERM, a grace, SIGKILL
    "SIGKILL": {
        "system/process_tree.py",
        "system/process.py",  # git, which must remove its locks: SIGPIPE instead of SIGTERM
        "loop/supervise.py",  # only the exit status
    },
}
"""Names, and the modules that may use them: a further one handles the same case a second time."""

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


@pytest.mark.parametrize("folder", LOAD_NOTHING)
def test_a_folder_loads_nothing(folder: str) -> None:
    """Its modules are loaded one by one: a start, and PID 1 above all, loads few of them."""
    [module] = [module for module in modules() if module.path == f"{folder}/__init__.py"]
    assert module.imports == frozenset()


def test_one_module_says_what_loads_late() -> None:
    """An import inside a function is for the command line alone, which loads one command of many."""
    late = [
        line
        for module in modules()
        if module.path != "__main__.py" and not _is_below(module.path, "interfaces/cli")
        for line in sorted(module.late)
    ]
    assert late == []


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


@pytest.mark.parametrize(("owner", "form"), FORMS.items())
def test_a_form_stands_in_one_module(owner: str, form: str) -> None:
    """Two copies would drift apart; PID 1, which stands alone, has its own."""
    holding = {
        module.path
        for module in modules()
        if not _is_below(module.path, "interfaces/init")
        if any(re.search(form, text) for text in module.texts)
    }
    assert holding == {owner}


@pytest.mark.parametrize(
    ("owner", "code"),
    [
        ("state/ids.py", 'X = re.compile(r"[0-9a-f]{4}")'),
        ("state/ids.py", 'X = re.compile(rb"/([0-9a-f]{4})-wip")'),
        ("state/ids.py", 'X = re.compile(r"\\d{8}T\\d{6}Z-.*")'),
        ("state/ids.py", 'x = f"{now:%Y%m%dT%H%M%SZ}-{agent_id}"'),
        ("git/index.py", 'X = re.compile(rb"(?:\\A|\\0)160000 ([0-9a-f]+) 0\\t")'),
        ("git/index.py", 'x = mode == "160000"'),
        ("git/index.py", 'X = re.compile(rb"(?:\\A|\\0)[a-zS] ")'),
        ("git/oid.py", 'X = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\\n")'),
        ("git/pointer.py", 'x = f"gitdir: {registration}"'),
        ("git/pointer.py", 'x = content.removeprefix(b"gitdir: ")'),
        ("worktree/model.py", 'x = f"land-{digits}"'),
        ("worktree/model.py", 'X = {r"warm-[0-9a-f]{8}": "pool"}'),
    ],
)
def test_a_second_copy_of_a_form_is_found(owner: str, code: str) -> None:
    """However it is quoted; prose about it is none."""
    assert any(re.search(FORMS[owner], text) for text in texts_of(ast.parse(code)))
    assert texts_of(ast.parse(f"def x():\n    {code.partition(' = ')[2]!r}")) == frozenset()


@pytest.mark.parametrize(("name", "places"), HANDLED_ONCE.items())
def test_a_case_is_handled_in_one_place(name: str, places: set[str]) -> None:
    """Its details are easy to forget; PID 1, which stands alone, has its own."""
    using = {
        module.path
        for module in modules()
        if not _is_below(module.path, "interfaces/init")
        if name in module.names
    }
    assert using == places


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RecursionError", "try:\n    x()\nexcept (ValueError, RecursionError):\n    pass"),
        ("SIGKILL", "group.signal(signal.SIGKILL)"),
        ("SIGKILL", "from signal import SIGKILL as HARD"),
    ],
)
def test_a_second_place_is_found(name: str, code: str) -> None:
    """However it is imported; prose about it is none."""
    assert name in names_of(ast.parse(code))
    assert name not in names_of(ast.parse(f"def x():\n    {code!r}"))


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
