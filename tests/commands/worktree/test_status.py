"""``worktree status`` and ``list``, as other programs call them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.commands.worktree.answers import create, data
from tests.support.repo import Repo
from tests.support.sessions import command

TASK = "fix auth"

BRANCH = "quick-build-fix-auth"


def test_status_in_the_main_checkout(repo: Repo) -> None:
    """One field."""
    assert data(command("worktree", "status", cwd=repo.path)) == {"isWorktree": False}


def test_status_in_a_worktree(repo: Repo) -> None:
    """In a sub-directory of it, too."""
    path = Path(create(repo, TASK)["path"])
    (path / "sub").mkdir()
    for cwd in (path, path / "sub"):
        assert data(command("worktree", "status", cwd=cwd)) == {
            "isWorktree": True,
            "path": os.fspath(path),
            "branch": BRANCH,
            "mainRepoPath": os.fspath(repo.path),
        }


def test_status_with_a_detached_head(repo: Repo) -> None:
    """Has no branch."""
    path = Path(create(repo, TASK)["path"])
    Repo(path).git("switch", "-q", "--detach")
    assert data(command("worktree", "status", cwd=path))["branch"] is None


def test_status_in_a_worktree_of_the_user(repo: Repo, tmp_path: Path) -> None:
    """It is a worktree, whatever program made it."""
    repo.git("worktree", "add", "-q", "-b", "feature", tmp_path / "feature")
    printed = data(command("worktree", "status", cwd=tmp_path / "feature"))
    assert (printed["isWorktree"], printed["mainRepoPath"]) == (True, os.fspath(repo.path))


def test_the_list(repo: Repo, tmp_path: Path) -> None:
    """The main checkout first, and which are ours."""
    repo.git("worktree", "add", "-q", "--detach", tmp_path / "theirs")
    repo.git("worktree", "lock", "--reason", "a disk", tmp_path / "theirs")
    repo.git("worktree", "add", "-q", "-b", "gone", tmp_path / "gone")
    subprocess.run(("rm", "-r", tmp_path / "gone"), check=True)
    path = create(repo, TASK)["path"]
    main, *rows = data(command("worktree", "list", cwd=repo.path))
    common = {"head": repo.head}
    assert main == {
        "path": os.fspath(repo.path),
        "branch": "main",
        "locked": None,
        "prunable": None,
        "ours": False,
        **common,
    }
    prunable = {row["path"]: row.pop("prunable") is not None for row in rows}
    assert prunable == {f"{tmp_path}/theirs": False, f"{tmp_path}/gone": True, path: False}
    reason = f"ralph-wrap worktree {BRANCH}"
    assert {row.pop("path"): row for row in rows} == {
        f"{tmp_path}/theirs": {"branch": None, "locked": "a disk", "ours": False, **common},
        f"{tmp_path}/gone": {"branch": "gone", "locked": None, "ours": False, **common},
        path: {"branch": BRANCH, "locked": reason, "ours": True, **common},
    }


def test_ours_is_known_without_its_lock(repo: Repo) -> None:
    """The mark says it."""
    path = create(repo, TASK)["path"]
    repo.git("worktree", "unlock", path)
    assert [row["ours"] for row in data(command("worktree", "list", cwd=repo.path))] == [False, True]
