"""What the page on cleaning up promises: nothing of ours is left, and no unmerged work goes by mistake."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.documents import ALL
from tests.support.sessions import PROGRAM, command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")

END, FORGET = (
    block.text for block in ALL if block.page == "docs/cleanup.md" and "test_cleanup" in block.mark
)


def _paste(repo: Repo, text: str) -> int:
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    words = ("bash", "-euo", "pipefail", "-c", text)
    return subprocess.run(words, cwd=repo.path, env={**os.environ, "PATH": path}, check=False).returncode


@pytest.fixture
def used(repo: Repo) -> Repo:
    """Return a project in which a session has landed, and another one has unmerged work and a worktree."""
    landed = run(repo.path, "-n", "1", "--", "sh", "-c", "echo a > a; git add .; git commit -qm a")
    assert command("merge", landed.report["id"], cwd=repo.path).status == 0
    agent = "echo b > b; git add .; git commit -qm b; echo c > c"
    spawned = command("spawn", "-n", "1", "--", "sh", "-c", agent, cwd=repo.path)
    assert command("wait", spawned.stdout.decode().strip(), cwd=repo.path).status == 0
    return repo


def test_unmerged_work_stays(used: Repo) -> None:
    """The first block ends with an error then, and has removed what loses nothing."""
    assert _paste(used, END) == 5
    assert used.worktrees() == []
    kept = [name for name in used.branches() if name.startswith("ralph/")]
    assert len(kept) == 2
    assert kept[1] == f"{kept[0]}-wip"


def test_nothing_of_ours_is_left(used: Repo) -> None:
    """After both blocks, with --force for the unmerged work: no ref, no file, no line."""
    assert _paste(used, END.replace("drop --all", "drop --all --force")) == 0
    assert _paste(used, FORGET) == 0
    assert used.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert used.worktrees() == []
    assert (used.path / ".gitignore").read_text() == ""
    assert {path.name for path in used.path.iterdir()} == {".git", ".gitignore", ".ralph", "a", "file.txt"}
    assert [*(used.path / ".ralph").iterdir()] == []
