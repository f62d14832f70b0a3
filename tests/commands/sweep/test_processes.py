"""``ralph-wrap sweep``: several at once, and processes that a dead session has left running."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.blocking_git import Gate
from tests.support.git_shim import shim_git
from tests.support.orphans import orphan, orphans, sweep
from tests.support.processes import running
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, Session, start
from tests.support.wait import eventually

# Several at once


@pytest.mark.parametrize("moment", ["status --porcelain=v2", "write-tree", "rev-list --count"])
def test_two_sweeps_at_once(repo: Repo, tmp_path: Path, moment: str) -> None:
    """One finishes the orphan, the other one leaves it alone, wherever the first one is."""
    left = orphan(repo)
    with Gate(tmp_path / "gate", moment) as gate:
        first = subprocess.Popen(
            (PROGRAM, "sweep"), cwd=repo.path, env={**os.environ, **gate.env}, stdout=subprocess.PIPE
        )
        with first:
            gate.wait()
            second = sweep(repo)
            assert (second.status, second.stdout) == (0, b"")
            gate.open()
            answer, _ = first.communicate()
    assert (first.returncode, answer.decode()) == (0, f"{left.session}  crashed  finished  {left.wip}\n")
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert repo.git("fsck", "--no-dangling") == ""


def test_many_sweeps_at_once(repo: Repo) -> None:
    """Each orphan is finished by exactly one of them."""
    left = {one.session for one in orphans(repo, *["echo new > new"] * 4)}
    started = [start("sweep", cwd=repo.path) for _ in range(6)]
    answers = [process.communicate()[0].decode() for process in started]
    assert [process.wait() for process in started] == [0] * 6
    rows = [row.split("  ") for answer in answers for row in answer.splitlines()]
    assert sorted(row[0] for row in rows if row[2] == "finished") == sorted(left)
    assert {row[2] for row in rows} <= {"finished", "left"}  # the one that came too late says so


# Processes that a dead session has left running


def _asleep(mark: Path) -> str:
    return f"echo new > new; (setsid sh -c 'echo $$ > {mark}; exec sleep 1000' &); while :; do sleep 1; done"


def _pid(mark: Path) -> int:
    return int(eventually(lambda: mark.read_text().strip() if mark.exists() else None, "a process"))


def test_what_a_dead_session_left_running_is_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """Its agent, and what the agent has detached, before anything is saved; no process of another session."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    with (
        Session(repo.path, "--", "sh", "-c", _asleep(mine)) as dead,
        Session(repo.path, "--", "sh", "-c", _asleep(other)) as alive,
    ):
        pids = _pid(mine), _pid(other)
        dead.send(signal.SIGKILL)
        dead.process.wait()
        assert {*pids} <= {*running(home)}
        assert sweep(repo).status == 0
        assert {*pids} & {*running(home)} == {pids[1]}
        assert alive.process.poll() is None
        assert repo.show(f"ralph/{dead.directory.name[-4:]}-wip:new") == b"new\n"


def test_the_git_of_a_dead_session_is_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """It was about to delete the worktree, which comes back to be saved once more."""
    mark = tmp_path / "mark"
    held = f'*" worktree remove "*) echo $$ > {mark}; kill -9 $PPID; exec sleep 1000 ;;'
    env = {"PATH": shim_git(tmp_path / "shim", held)}
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "echo new > new", env=env) as dead:
        git = _pid(mark)
        dead.process.wait()
        assert git in running(home)
        assert sweep(repo).status == 0
        assert git not in running(home)
    assert repo.show(f"ralph/{dead.directory.name[-4:]}-wip:new") == b"new\n"
    assert repo.worktrees() == []


def test_a_process_without_the_mark_is_not_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """It is the user's own, although its environment names another session."""
    left = orphan(repo)
    another = f"{left.session[:-4]}{'beef' if left.session[-4:] != 'beef' else 'feed'}"
    environ = {**os.environ, "RALPH_SESSION_ID": another}
    with subprocess.Popen(("sleep", "1000"), env=environ, cwd=tmp_path) as process:
        assert sweep(repo).status == 0
        assert process.pid in running(home)
        process.kill()
    assert not left.worktree.exists()


def test_a_nested_session_saves_its_own_work(repo: Repo, tmp_path: Path) -> None:
    """It lives and gets SIGTERM; whichever is finished first, both works are saved."""
    inner = tmp_path / "inner.sh"
    inner.write_text(f"#!/bin/sh\necho inner > inner\ntouch {tmp_path}/ready\nexec sleep 1000\n")
    inner.chmod(0o755)
    outer = f"echo outer > outer; {PROGRAM} run -- {inner}"
    with Session(repo.path, "--", "sh", "-c", outer) as session:
        eventually((tmp_path / "ready").exists, "the inner agent")
        session.send(signal.SIGKILL)
        session.process.wait()
    eventually(
        lambda: sweep(repo).status == 0 and not [*(repo.path / ".ralph" / "run" / "agents").iterdir()],
        "both to be finished",
    )
    saved = [branch for branch in repo.branches() if branch.endswith("-wip")]
    found = {name for branch in saved for name in repo.git("ls-tree", "--name-only", branch).splitlines()}
    kept = {path.name for path in repo.path.glob(".ralph/worktrees/*/*")}
    assert {"inner", "outer"} <= found | kept
