"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ralph_wrap"

LAYERS = [
    {"errors"},
    {
        "process",
        "git",
        "github",
        "files",
        "liveness",
        "config",
        "container",
        "job",
        "tmux",
        "lastline",
        "log",
        "relay",
        "user",
        "offspring",
        "occupancy",
        "watch",
    },
    {"loop", "worktree", "registry", "report", "request", "signals", "agents", "trust"}
    | {"checkout", "checks"},
    {"project", "prospect", "supply", "workspace", "push", "handover", "inventory"},
    {"remains", "branches", "trial"},
    {"session", "context", "sweep", "stop", "logs", "doctor", "rm", "pool", "toolbox", "landing", "apply"}
    | {"review", "pullrequest", "diff", "drop"},
    {"cli", "init", "mcp", "web", "__main__", "__init__"},
]
"""Rooms from the bottom to the top; imports point downwards."""

INSIDE_A_LAYER = {
    ("git", "process"),
    ("github", "git"),
    ("github", "process"),
    ("offspring", "process"),
    ("log", "lastline"),
    ("relay", "files"),
    ("relay", "lastline"),
    ("config", "files"),
    ("config", "job"),
    ("tmux", "process"),
    ("loop", "agents"),
    ("loop", "request"),
    ("loop", "signals"),
    ("report", "agents"),
    ("report", "registry"),
    ("report", "worktree"),
    ("worktree", "registry"),
    ("inventory", "project"),
    ("prospect", "project"),
    ("supply", "project"),
    ("workspace", "project"),
    ("workspace", "supply"),
    ("handover", "push"),
    ("handover", "workspace"),
    ("__main__", "cli"),
    ("__main__", "init"),
    ("cli", "init"),
    ("cli", "mcp"),
    ("cli", "web"),
}
"""The only imports between rooms of one layer."""

OWNERS = {
    "subprocess": "process",
    "psutil": "liveness",
    "typer": "cli",
    "structlog": "log",
    "slugify": "toolbox",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "anyio": "mcp",
    "starlette": "web",
    "uvicorn": "web",
    "jinja2": "web",
    "markupsafe": "web",
    "pygments": "web",
}
"""Modules that one room alone may import."""

LONGEST = 400
"""Lines of a module."""


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Return the full names of everything that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _rooms_imported(path: Path) -> set[str]:
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("ralph_wrap.")}
    return ours - {_room(path)}


def _layer(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


def test_every_room_has_a_layer() -> None:
    """A new room must be put somewhere on purpose."""
    assert {_room(path) for path in _modules()} == set().union(*LAYERS)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    """No room knows the ones above it, and few know their neighbours."""
    room = _room(path)
    wrong = {
        other
        for other in _rooms_imported(path)
        if _layer(other) > _layer(room)
        or (_layer(other) == _layer(room) and (room, other) not in INSIDE_A_LAYER)
    }
    if room == "__init__":
        wrong -= set().union(*LAYERS[3:-1])
    assert wrong == set()


def test_exceptions_inside_a_layer_are_used() -> None:
    """An exception that nobody needs any more is taken off the list."""
    used = {(_room(path), other) for path in _modules() for other in _rooms_imported(path)}
    assert used >= INSIDE_A_LAYER


@pytest.mark.parametrize(("module", "owner"), OWNERS.items())
def test_a_dependency_has_one_owner(module: str, owner: str) -> None:
    """Whoever wants to replace a dependency finds it in one room."""
    importing = {
        _room(path) for path in _modules() for name in _imports(path) if name.partition(".")[0] == module
    }
    assert importing == {owner}


def test_pid_1_stands_alone() -> None:
    """It stays small, and nothing that a session needs can break it."""
    imported = {
        name.partition(".")[0] if not name.startswith("ralph_wrap.init.") else "init"
        for path in _modules()
        if _room(path) == "init"
        for name in _imports(path)
    }
    assert imported - {"init"} <= sys.stdlib_module_names - {"subprocess", "pathlib"}


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_fits_into_a_head(path: Path) -> None:
    """Modules stay short."""
    assert len(path.read_text().splitlines()) <= LONGEST


def test_no_module_changes_directory() -> None:
    """Paths are absolute and passed in; the working directory is the user's."""
    calls = {
        str(path)
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"chdir", "fchdir"}
    }
    assert calls == set()
