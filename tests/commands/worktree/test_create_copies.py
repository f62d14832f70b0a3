"""``worktree create`` and ``enter`` copy ignored files, as a session does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap import Worktree
from tests.support.git_shim import shim_git
from tests.support.repo import Repo
from tests.support.sessions import command

pytestmark = pytest.mark.usefixtures("trusted")

CREATE = ("create", "Try it")
ENTER = ("enter", "try", "--session", "s")

each_tool = pytest.mark.parametrize("tool", [CREATE, ENTER], ids=["create", "enter"])


@pytest.fixture
def app(repo: Repo) -> Repo:
    """Return a repository that ignores secrets, and has some."""
    repo.write(".gitignore", ".env*\n.ralph/\n")
    repo.commit("rules")
    repo.write(".env", "KEY=secret\n")
    repo.write(".env.local", "PORT=1\n")
    repo.write(".ralph/config.toml", 'copy = [".env"]\n')
    return repo


def made(app: Repo, tool: tuple[str, ...]) -> tuple[Repo, list[dict[str, Any]]]:
    """Make a worktree; return it, and what was printed on stderr."""
    ended = command("worktree", *tool, cwd=app.path)
    assert ended.status == 0, ended.stdout
    return Repo(Path(json.loads(ended.stdout)["data"]["path"])), ended.narration


@each_tool
def test_what_the_configuration_names_is_copied(app: Repo, tool: tuple[str, ...]) -> None:
    """And nothing else; git sees none of it."""
    inside, printed = made(app, tool)
    assert sorted(path.name for path in inside.path.iterdir()) == [".env", ".git", ".gitignore", "file.txt"]
    assert (inside.path / ".env").read_text() == "KEY=secret\n"
    assert inside.git("status", "--porcelain") == ""
    assert [entry["count"] for entry in printed if entry["event"] == "files.copied"] == [1]


@each_tool
def test_what_the_file_of_patterns_names_is_copied(app: Repo, tool: tuple[str, ...]) -> None:
    """Beside the configuration."""
    app.write(".worktreeinclude", ".env.local\n")
    app.commit("include")
    inside, _ = made(app, tool)
    assert {path.name for path in inside.path.glob(".env*")} == {".env", ".env.local"}


@each_tool
def test_without_patterns_nothing_is_copied(app: Repo, tool: tuple[str, ...]) -> None:
    """Nor is a copy named."""
    (app.path / ".ralph" / "config.toml").unlink()
    inside, printed = made(app, tool)
    assert ([*inside.path.glob(".env*")], [entry for entry in printed if "cop" in entry["event"]]) == ([], [])


@each_tool
def test_a_failure_is_a_warning(app: Repo, tool: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worktree is there all the same, and the answer is that of every other time."""
    monkeypatch.setenv("PATH", shim_git(app.path.parent / "shim", '*" ls-files --others "*) exit 128 ;;'))
    inside, printed = made(app, tool)
    assert [*inside.path.glob(".env*")] == []
    assert [(entry["level"], entry["event"]) for entry in printed if entry["event"].startswith("files.")] == [
        ("warning", "files.not_copied")
    ]


def test_copies_do_not_keep_a_worktree(app: Repo) -> None:
    """They go with the worktree, without being asked for."""
    inside, _ = made(app, CREATE)
    ended = command("worktree", "cleanup", inside.path, cwd=app.path)
    assert (ended.status, json.loads(ended.stdout)["data"]["removed"]) == (0, True)
    inside, _ = made(app, ENTER)
    ended = command("worktree", "exit", "--action", "remove", "--session", "s", cwd=app.path)
    assert (ended.status, inside.path.exists()) == (0, False)
    assert (app.path / ".env").read_text() == "KEY=secret\n"


def test_a_program_copies_for_itself(app: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Worktree`` gives what git gives."""
    monkeypatch.chdir(app.path)
    with Worktree("feature", cleanup=True) as tree:
        assert [*tree.path.glob(".env*")] == []
