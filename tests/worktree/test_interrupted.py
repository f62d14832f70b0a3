"""A creation or a removal that was interrupted is finished, or taken back, by the next command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.git_shim import have_git_register, shim_git
from tests.support.orphans import sweep
from tests.support.processes import end_all
from tests.support.repo import Repo
from tests.support.sessions import command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TRASH = Path(".ralph/run/trash")


@pytest.fixture(autouse=True)
def _ended(_sealed: None, tmp_path: Path) -> Iterator[None]:
    yield
    end_all(tmp_path / "home")


@pytest.mark.parametrize("pointer", ["written by git", "missing"])
def test_a_session_that_was_killed_while_git_added_its_worktree_is_finished_at_another_path(
    repo: Repo, tmp_path: Path, pointer: str
) -> None:
    """The project was moved, or is mounted elsewhere. The worktree holds no file but git's ``.git``."""
    have_git_register(repo.path)
    path = shim_git(tmp_path / "shim", '*" worktree add "*) "$REAL" "$@"; kill -KILL $PPID; exit 1 ;;')
    command("run", "--isolation", "require", "-n", "1", "--", "true", cwd=repo.path, env={"PATH": path})
    (worktree,) = (repo.path / ".ralph/worktrees").iterdir()
    if pointer == "missing":
        (worktree / ".git").unlink()
    moved = Repo(repo.path.rename(tmp_path / "elsewhere"))
    swept = sweep(moved)
    assert swept.status == 0, swept.stdout
    assert [*(moved.path / ".ralph/worktrees").iterdir()] == []
    assert [*moved.path.glob(".git/worktrees/*")] == []


def test_a_session_that_was_killed_while_git_added_its_worktree_to_reftables_is_finished(
    repo: Repo, tmp_path: Path
) -> None:
    """HEAD of the worktree is in a table, and the file says nothing."""
    have_git_register(repo.path)
    path = shim_git(tmp_path / "shim", '*" worktree add "*) "$REAL" "$@"; kill -KILL $PPID; exit 1 ;;')
    command("run", "--isolation", "require", "-n", "1", "--", "true", cwd=repo.path, env={"PATH": path})
    (head,) = repo.path.glob(".git/worktrees/*/HEAD")
    head.write_text("ref: refs/heads/.invalid\n")
    swept = sweep(repo)
    assert swept.status == 0, swept.stdout
    assert [*(repo.path / ".ralph/worktrees").iterdir()] == []
    assert [*repo.path.glob(".git/worktrees/*")] == []


def test_a_worktree_that_a_user_moved_stays_registered(repo: Repo, tmp_path: Path) -> None:
    """Its new path ends like the old one, where an empty directory lies: no other mount explains that."""
    have_git_register(repo.path)
    path = shim_git(tmp_path / "shim", '*" worktree add "*) "$REAL" "$@"; kill -KILL $PPID; exit 1 ;;')
    command("run", "--isolation", "require", "-n", "1", "--", "true", cwd=repo.path, env={"PATH": path})
    (worktree,) = (repo.path / ".ralph/worktrees").iterdir()
    moved = tmp_path / "other/.ralph/worktrees" / worktree.name
    moved.parent.mkdir(parents=True)
    repo.git("worktree", "move", "-f", "-f", worktree, moved)
    worktree.mkdir()
    before = listing(repo.path / ".git/worktrees"), listing(moved)
    assert sweep(repo).status == 5
    assert (listing(repo.path / ".git/worktrees"), listing(moved)) == before


def test_a_session_that_was_killed_while_git_dropped_its_worktree_is_finished_at_another_path(
    repo: Repo, tmp_path: Path
) -> None:
    """Git has deleted the session's mark, and not yet the path that the worktree had."""
    drop = '*" worktree remove "*) rm worktrees/*/ralph-wrap-session; kill -KILL $PPID; exit 1 ;;'
    path = shim_git(tmp_path / "shim", drop)
    command("run", "-n", "1", "--", "sh", "-c", "echo new > new", cwd=repo.path, env={"PATH": path})
    assert len([*(repo.path / TRASH).iterdir()]) == 1
    moved = Repo(repo.path.rename(tmp_path / "elsewhere"))
    swept = sweep(moved)
    assert swept.status == 0, swept.stdout
    eventually(lambda: not [*(moved.path / TRASH).iterdir()], "the deletion to end")
    assert [*moved.path.glob(".git/worktrees/*")] == []


def test_ctrl_c_after_a_worktree_was_moved_aside_brings_it_back(repo: Repo) -> None:
    """Its registration is not dropped yet, so it is in its place again, whatever the removal was doing."""
    created = command("worktree", "create", "task", cwd=repo.path)
    path = Path(json.loads(created.stdout)["data"]["path"])
    words = (sys.executable, "-c", _INTERRUPTED, "worktree", "cleanup", os.fspath(path))
    subprocess.run(words, cwd=repo.path, capture_output=True, check=False)
    assert path.is_dir()
    assert [*(repo.path / TRASH).iterdir()] == []


_INTERRUPTED = """
import sys
from ralph_wrap.worktree import remove
looks = remove.names_registration

def interrupted(directory, registration, *, path=None):
    if path is not None:
        raise KeyboardInterrupt
    return looks(directory, registration)

remove.names_registration = interrupted
sys.argv[0] = "ralph-wrap"
from ralph_wrap.__main__ import main
main()
"""
