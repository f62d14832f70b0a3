"""A process of a dead session's agent that has dropped the variables of the session."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.support.sessions import Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


def test_a_worktree_stays_while_an_unseen_process_of_the_agent_lives(repo: Repo, tmp_path: Path) -> None:
    """It carries no mark, but the lock that agents inherit; once it has ended, its work is saved."""
    pid_file = tmp_path / "pid"
    unseen = f'env -i /bin/sh -c "echo \\$\\$ > {pid_file}; exec sleep 1000"'
    with Session(repo.path, "--", "sh", "-c", f"echo x > new; ({unseen} &) ; sleep 1000") as session:
        eventually(lambda: pid_file.exists() and pid_file.read_text().strip(), "the unseen process")
        directory = session.directory
        session.send(signal.SIGKILL)
        session.process.wait()
    pid = int(pid_file.read_text())
    worktree = repo.path / ".ralph" / "worktrees" / directory.name
    try:
        swept = command("sweep", cwd=repo.path)
        assert (swept.status, (worktree / "new").read_text()) == (5, "x\n")
        assert f"a process of its agent may still run: process {pid} (" in swept.stderr
        assert f"kill {pid}" in swept.stderr
        assert not (directory / "record.json").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: command("sweep", cwd=repo.path).status == 0, "the kernel to free the lock")
    assert not worktree.exists()
    assert repo.show(f"ralph/{directory.name[-4:]}-wip:new") == b"x\n"


def test_the_lock_is_gone_after_a_session(repo: Repo) -> None:
    """No agent outlives its session, and nothing is left of the lock."""
    with Session(repo.path, "-n", "1", "--", "true") as session:
        result = session.finish()
    assert result.directory is not None
    assert sorted(path.name for path in result.directory.iterdir()) == [
        "events.jsonl",
        "output.log",
        "record.json",
        "report.json",
        "start.json",
    ]
