"""A lock that a process holds for ever is named, with its holder and what to do: row 25 of the attacks."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import LockedError
from ralph_wrap.system import files
from ralph_wrap.system.files.lock_holder import HeldLock, LockHolder, held_lock
from tests.interfaces.web.serving import pages
from tests.support.merging import branch
from tests.support.orphans import orphan, sweep
from tests.support.processes import state_of
from tests.support.sessions import Session, command, start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""

BEQUEATH = """
import fcntl, os, subprocess, sys
lock = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX)
print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, pass_fds=[lock]).pid)
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that holds the lock on a file or a directory until it is killed."""
    words = (sys.executable, "-c", HOLD, str(path))
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process as Ctrl-Z does, and wait until it is stopped."""
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: state_of(process.pid) == "T", "the stop")


def test_run_names_the_holder_and_gets_its_turn(repo: Repo) -> None:
    """A session names the process that it waits for. It goes on as soon as the lock is free."""
    with holder(repo.path / ".git") as process, Session(repo.path, "-n", "1", "--", "true") as session:
        event = session.wait_for("lock.waiting")
        process.kill()
        ended = session.finish()
    assert ended.ending == ("max-iterations", 1, 0)
    assert str(repo.path / ".git") in event["message"]
    assert f"process {process.pid} ({sys.executable} -c" in event["message"]
    assert event["hint"] == f"if it is stuck, end it: kill {process.pid}"
    assert [found["pid"] for found in event["holders"]] == [process.pid]


def test_a_stopped_holder_is_named_as_stopped(repo: Repo) -> None:
    """The hint has the command that lets it go on; after it, the session goes on too."""
    with holder(repo.path / ".git") as process, Session(repo.path, "-n", "1", "--", "true") as session:
        stop(process)
        event = session.wait_for("lock.waiting")
        process.kill()
        assert session.finish().status == 0
    assert "which is stopped" in event["message"]
    assert f"kill -CONT {process.pid}" in event["hint"]


@pytest.mark.parametrize("words", [("merge", "aaaa"), ("apply", "aaaa")])
def test_a_command_that_lands_names_the_holder(repo: Repo, words: tuple[str, ...]) -> None:
    """It waits for another merge without a limit, so it says at once which process that is."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("base")
    branch(repo, "aaaa", {"new.txt": "new\n"})
    branch(repo, "aaaa-wip", {"saved.txt": "saved\n"}, base="ralph/aaaa")
    with holder(repo.path / ".git" / "refs") as process:
        with start(*words, cwd=repo.path) as landing:
            assert landing.stderr is not None
            line = landing.stderr.readline().decode()
            process.kill()
            assert landing.wait(CAP) == 0
        assert f"process {process.pid} (" in line
        assert str(repo.path / ".git" / "refs") in line


def test_the_page_names_the_holder_at_once(repo: Repo) -> None:
    """A browser shows nothing while it waits, so the button does not wait for the end of another merge."""
    branch(repo, "aaaa", {"new.txt": "new\n"})
    site = pages(repo.path)
    with holder(repo.path / ".git" / "refs") as process:
        refused = site.note(site.post("merge", ("name", "ralph/aaaa")))
    assert f"another merge is at work in this repository: process {process.pid} (" in refused
    assert "has landed" in site.note(site.post("merge", ("name", "ralph/aaaa")))


def test_a_holder_that_does_nothing_ends_the_wait(tmp_path: Path) -> None:
    """The error names the lock and the process, and is no reason to work without a worktree."""
    with holder(tmp_path) as process:
        stop(process)
        with (
            pytest.raises(LockedError, match=f"process {process.pid} .* has locked") as caught,
            files.locked_directory(tmp_path, 0.1),
        ):
            pytest.fail("two processes have the lock")
    assert f"kill -KILL {process.pid}" in caught.value.hint


def test_a_child_that_inherited_a_lock_is_named(tmp_path: Path) -> None:
    """The kernel lists the process that took the lock, which has ended; its child still holds it."""
    words = (sys.executable, "-c", BEQUEATH, str(tmp_path))
    ended = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=CAP)
    pid = int(ended.stdout)
    try:
        assert [(found.pid, found.command) for found in held_lock(tmp_path).holders] == [(pid, "sleep 600")]
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_free_lock_has_no_holder(tmp_path: Path) -> None:
    """The counterpart: a process that holds another lock is not named."""
    (tmp_path / "other").mkdir()
    with holder(tmp_path / "other"):
        assert held_lock(tmp_path).holders == ()


def test_a_lock_file_of_git_is_named(repo: Repo) -> None:
    """A ``*.lock`` file that git or an agent left: the hint says how to take it away."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("base")
    branch(repo, "aaaa", {"new.txt": "new\n"})
    lock = repo.path / ".git" / "packed-refs.lock"
    lock.touch()
    ended = command("drop", "aaaa", "--force", cwd=repo.path)
    assert ended.status != 0
    assert f"rm {shlex.quote(str(lock))}" in ended.stderr
    with lock.open("ab"):
        opened = command("drop", "aaaa", "--force", cwd=repo.path)
    assert f"process {os.getpid()} (" in opened.stderr


def test_stop_names_a_session_that_stands_still(repo: Repo) -> None:
    """SIGSTOP on ralph-wrap: the command that waits for it says so, and how the session goes on."""
    with Session(repo.path, "-n", "1", "--", "sleep", "600") as session:
        session.wait_for("iteration.started")
        session.send(signal.SIGSTOP)
        with start("stop", "--all", cwd=repo.path) as waiting:
            assert waiting.stderr is not None
            lines = iter(waiting.stderr.readline, b"")
            assert any(b"session.stands_still" in line for line in lines)
            session.send(signal.SIGCONT)
            assert waiting.wait(CAP) == 0


def test_stop_names_a_process_that_imitates_a_session(repo: Repo) -> None:
    """It bears the name of a killed session, which counts as alive for that; then the session is dead."""
    left = orphan(repo, work="echo new > new")
    imitate = f"open('/proc/self/comm', 'w').write('ralph/{left.id}'); print(flush=True); input()"
    with subprocess.Popen(
        (sys.executable, "-c", imitate), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with start("stop", left.id, cwd=repo.path) as waiting:
            assert waiting.stderr is not None
            lines = iter(waiting.stderr.readline, b"")
            named = next(json.loads(line) for line in lines if b"session.named" in line)
            process.kill()
            assert waiting.wait(CAP) == 0
    assert named["pids"] == [process.pid]
    assert named["hint"].endswith(f"end it: kill {process.pid}")
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


def test_only_a_holder_that_stays_is_named() -> None:
    """Sessions that take turns are no reason for a message; a stopped one is, at once."""
    one, two = (LockHolder(pid, "ralph-wrap run", stopped=False) for pid in (1, 2))
    held = HeldLock(Path("lock"), (one,))
    assert not held.is_held_since(None)
    assert not held.is_held_since(HeldLock(Path("lock"), (two,)))
    assert held.is_held_since(HeldLock(Path("lock"), (two, one)))
    nowhere = HeldLock(Path("lock"), ())
    assert (nowhere.is_held_since(held), nowhere.is_held_since(nowhere)) == (False, True)
    assert HeldLock(Path("lock"), (one._replace(stopped=True),)).is_held_since(None)
