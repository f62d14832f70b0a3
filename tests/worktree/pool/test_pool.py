"""The pool: sessions that start in a warm worktree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.blocking_git import Gate
from tests.support.needs import needs_pid_namespaces
from tests.support.pid1 import Container
from tests.support.processes import left
from tests.support.sessions import PROGRAM, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
from tests.worktree.pool.filling import configure, fill, run, settle, warm

pytestmark = pytest.mark.usefixtures("trusted")


def test_a_session_starts_in_a_warm_worktree(project: Repo) -> None:
    """The very directory, under the session's name, as a worktree that was made for it would be."""
    (there,) = warm(project)
    inode, file = there.stat().st_ino, (there / "same").stat().st_ino
    script = """
stat -c %i . same; cat .git; git symbolic-ref HEAD; git status --porcelain --ignored
git worktree list --porcelain | grep locked; cat "$(git rev-parse --git-dir)/gitdir"
"""
    result = run(project, script)
    (report,) = project.path.glob(".ralph/run/sessions/*/report.json")
    printed = json.loads(report.read_text())
    session = printed["session"]
    assert result.stdout.decode().splitlines() == [
        str(inode),
        str(file),
        f"gitdir: ../../../.git/worktrees/{session}",
        f"refs/heads/{printed['branch']}",
        f"locked ralph-wrap session {session}",
        f"{project.path}/.ralph/worktrees/{session}/.git",
    ]
    assert printed["base"] == project.git("rev-parse", "HEAD")


def test_only_the_difference_is_checked_out(project: Repo) -> None:
    """Where the base has moved on, what is the same stays the same file."""
    (there,) = warm(project)
    kept = (there / "same").stat().st_ino
    project.write("changed", "by now\n")
    project.write("new", "new\n")
    project.git("rm", "-q", "removed")
    project.commit("moved on")
    result = run(project, "stat -c %i same; ls; cat changed; git status --porcelain; git log -1 --format=%s")
    same, *rest = result.stdout.decode().splitlines()
    assert int(same) == kept
    assert rest == ["changed", "dir", "file.txt", "new", "same", "by now", "moved on"]


def test_a_branch_is_continued_in_a_warm_worktree(project: Repo) -> None:
    """Whatever commit it is at."""
    project.git("branch", "topic", "HEAD^")
    (there,) = warm(project)
    inode = there.stat().st_ino
    result = run(project, "stat -c %i .; ls; git symbolic-ref HEAD", "--branch", "topic")
    assert result.stdout.decode().splitlines() == [str(inode), "file.txt", "refs/heads/topic"]


@pytest.mark.parametrize("options", [("--sparse", "dir"), ("--base", "fresh")])
def test_a_sparse_session_takes_none(project: Repo, options: tuple[str, ...]) -> None:
    """It wants less than what is there."""
    there = warm(project)
    assert run(project, "true", *options).status == 0
    assert warm(project) == there


def test_sessions_at_once_take_each_its_own(project: Repo, tmp_path: Path) -> None:
    """And a session that finds none left makes a worktree as usual."""
    configure(project, "pool = 2")
    inodes = {Path(entry["path"]).stat().st_ino for entry in fill(project)}
    assert len(inodes) == 2
    words = (PROGRAM, "run", "--isolation", "require", "-n", "1", "--", "sh", "-c", "stat -c %i .; sleep 0.5")
    sessions = [
        subprocess.Popen(words, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    answers = [session.communicate()[0] for session in sessions]
    assert [session.returncode for session in sessions] == [0] * 4
    found = {int(answer) for answer in answers}
    assert len(found) == 4
    settle(tmp_path)


def test_it_is_filled_again_after_a_session(project: Repo, tmp_path: Path) -> None:
    """In the background: no session waits for it."""
    before = warm(project)
    assert run(project, "true").status == 0
    settle(tmp_path)
    after = warm(project)
    assert len(after) == 1
    assert after != before


def test_it_is_full_although_a_session_took_one_meanwhile(project: Repo, tmp_path: Path) -> None:
    """The fill of that session found the lock held, and has left the work to the first one."""
    configure(project, "pool = 2")
    words = (PROGRAM, "pool", "--fill")
    with (
        Gate(tmp_path / "gate", "reset --hard") as gate,
        subprocess.Popen(words, cwd=project.path, env={**os.environ, **gate.env}) as filling,
    ):
        gate.wait()
        before = {*left(tmp_path / "home")}
        assert run(project, "true").status == 0
        eventually(lambda: {*left(tmp_path / "home")} <= before, "the fill of the session to end", 60)
        gate.open()
        assert filling.wait() == 0
    settle(tmp_path)
    assert len(warm(project)) == len(("one", "two"))


@needs_pid_namespaces
def test_it_is_filled_at_the_start_of_a_container(project: Repo) -> None:
    """PID 1 has it done with its sweep, and reaps it."""
    configure(project, "pool = 2")
    with Container(project.path) as container:
        eventually(lambda: len(warm(project)) == 2, "the pool to be filled", 30)
        container.rest()
        assert [entry["ready"] for entry in json.loads(_listed(project))["data"]] == [True, True]


def _listed(repo: Repo) -> bytes:
    return command("pool", "--json", cwd=repo.path).stdout


def test_a_session_that_term_ends_fills_nothing(
    project: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """The user wants everything to end."""
    result = command(
        "run", "--isolation", "require", "--", script("kill -TERM $PPID; sleep 60"), cwd=project.path
    )
    assert result.status == 128 + signal.SIGTERM
    settle(tmp_path)
    assert warm(project) == []


def test_without_a_pool_none_is_made(repo: Repo, tmp_path: Path) -> None:
    """It is off by default."""
    assert run(repo, "true").status == 0
    settle(tmp_path)
    assert not (repo.path / ".ralph/run/pool").exists()
