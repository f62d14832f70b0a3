"""``worktree create --sparse`` and ``--link``: for programs that know nothing of ralph-wrap's environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.repo import Repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def wide(repo: Repo) -> Repo:
    """Return a repository with several directories, and one that git ignores."""
    for path in ("crates/one/a", "crates/two/c", "docs/d"):
        repo.write(path, f"{path}\n")
    repo.write(".gitignore", "target/\n.ralph/worktrees/\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "wide")
    repo.write("target/built", "built\n")
    return repo


def called(cwd: Path, *arguments: str) -> tuple[int, Any]:
    """Run ``ralph-wrap worktree``; return its status, and the data or error of its envelope."""
    ended = command("worktree", *arguments, cwd=cwd)
    envelope = json.loads(ended.stdout)
    return ended.status, envelope["data" if ended.status == 0 else "error"]


def made(repo: Repo, *arguments: str) -> Repo:
    """Make a worktree and return it."""
    status, data = called(repo.path, "create", "Try it", *arguments)
    assert status == 0, data
    return Repo(repo.path / ".ralph" / "worktrees" / "quick-build-try-it")


def test_a_part_of_the_repository(wide: Repo) -> None:
    """For git, nothing is missing there, whatever it does next."""
    inside = made(wide, "--sparse", "docs/d", "--hooks", "on")
    assert sorted(path.name for path in inside.path.iterdir()) == [".git", ".gitignore", "docs", "file.txt"]
    assert inside.git("status", "--porcelain") == ""
    inside.git("switch", "-q", "-c", "other")
    inside.git("reset", "-q", "--hard", "main")
    assert not (inside.path / "crates").exists()


@pytest.mark.parametrize("hooks", ["on", "off"])
def test_a_link_is_not_added(wide: Repo, hooks: str) -> None:
    """``target/`` in .gitignore does not match it; it leads to the project's directory."""
    inside = made(wide, "--link", "target", "--hooks", hooks)
    assert (inside.path / "target" / "built").read_text() == "built\n"
    inside.write("new", "n\n")
    inside.git("add", "-A")
    assert inside.git("status", "--porcelain") == "A  new"


def test_nothing_of_it_stays(wide: Repo) -> None:
    """The shared configuration is the same, byte for byte, and the linked directory as it was."""
    before = (wide.path / ".git" / "config").read_bytes()
    inside = made(wide, "--link", "target", "--sparse", "crates/one")
    status, data = called(wide.path, "cleanup", str(inside.path), "--keep-branch=false")
    assert (status, data["removed"], data["branchDeleted"]) == (0, True, True)
    assert (wide.path / ".git" / "config").read_bytes() == before
    assert (wide.path / "target" / "built").read_text() == "built\n"


@pytest.mark.parametrize(
    "arguments", [("--sparse", "../x"), ("--sparse", "no/such"), ("--link", "/etc"), ("--link", "none")]
)
def test_a_place_that_is_not_there_or_leads_out(wide: Repo, arguments: tuple[str, str]) -> None:
    """Nothing is made."""
    before = wide.fingerprint()
    status, error = called(wide.path, "create", "Try it", *arguments)
    assert (status, error["code"]) == (2, "usage")
    assert wide.fingerprint() == before
