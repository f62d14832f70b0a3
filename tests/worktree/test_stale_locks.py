"""Lock files that a killed git has left: they go with the end of their session, on proof alone."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.orphans import orphan, sweep
from tests.support.sessions import command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo

LOCKS = ("refs/heads/{branch}.lock", "refs/heads/{branch}-wip.lock", "worktrees/{session}/index.lock")


@pytest.fixture
def git_at_work(repo: Repo) -> Iterator[None]:
    """Have a git of the user that works in the project, and holds nothing open there."""
    with subprocess.Popen(
        ("git", "cat-file", "--batch"), cwd=repo.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        eventually(lambda: _name(process.pid) == "git", "git to run")
        yield
        process.stdin.close()


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm", encoding="ascii") as name:  # noqa: PTH123 -- not a path of ours
        return name.read().strip()


@pytest.mark.parametrize("name", LOCKS)
def test_a_sweep_takes_them_away(repo: Repo, name: str) -> None:
    """The work is saved, and the branch can be changed again."""
    left = orphan(repo)
    lock = repo.path / ".git" / name.format(branch=left.branch, session=left.session)
    lock.touch()
    assert sweep(repo).status == 0
    assert not lock.exists()
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert command("drop", "--force", left.id, cwd=repo.path).status == 0


@pytest.mark.usefixtures("git_at_work")
def test_the_lock_of_a_git_that_may_hold_it_stays(repo: Repo) -> None:
    """A git works in the project: nobody knows what it has locked."""
    left = orphan(repo)
    lock = repo.path / ".git" / "refs" / "heads" / f"{left.branch}.lock"
    lock.touch()
    sweep(repo)
    assert lock.exists()


def test_a_lock_that_another_program_holds_stays(repo: Repo) -> None:
    """A program with a git library of its own is not named git, and its working directory is elsewhere."""
    left = orphan(repo)
    lock = repo.path / ".git" / "refs" / "heads" / f"{left.branch}.lock"
    with lock.open("w") as held, subprocess.Popen(("sleep", "600"), cwd="/", stdout=held) as holder:
        sweep(repo)
        holder.kill()
    assert lock.exists()


def test_the_next_iteration_can_commit(repo: Repo, script: Callable[[str], str]) -> None:
    """The agent's git has left the lock in the first one."""
    agent = script(
        '[ "$RALPH_ITERATION" = 1 ] || exec git commit -q --allow-empty -m second\n'
        ': > "$(git rev-parse --git-common-dir)/refs/heads/$RALPH_BRANCH.lock"'
    )
    ended = run(repo.path, "-n", "2", "--", agent)
    assert (ended.ending, ended.report["commits"]) == (("max-iterations", 2, 0), 1), ended.stderr
    assert "lock.removed" in ended.names


@pytest.mark.parametrize(("seconds", "stays"), [(0, True), (2 * 3600, False)])
def test_the_lock_of_a_maintenance_goes_after_an_hour(repo: Repo, seconds: int, *, stays: bool) -> None:
    """A younger one may be of a git in another container."""
    lock = repo.path / ".git" / "objects" / "maintenance.lock"
    lock.touch()
    os.utime(lock, (time.time() - seconds,) * 2)
    sweep(repo)
    assert lock.exists() is stays
