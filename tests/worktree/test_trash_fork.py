"""The fork of a session that deletes a worktree is a process of its own, which others recognise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.interfaces.init import processes
from ralph_wrap.worktree.trash import deletion
from tests.support.wait import eventually

if TYPE_CHECKING:
    from typing import Any

SESSION = "20260102T030405Z-f02c"
"""No other test has this id: for all processes, one that bears its name proves that the session lives."""

_SESSION = """
import fcntl, json, os, signal, sys, threading, time
from pathlib import Path
from ralph_wrap.system import delete_tree
from ralph_wrap.system.liveness import bear_name
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.worktree import trash
from ralph_wrap.worktree.trash import deletion

directory, lock, shown = map(Path, sys.argv[1:4])
signal.signal(signal.SIGUSR1, lambda *_: None)
bear_name("f02c")
held = lock.open("w")
fcntl.flock(held, fcntl.LOCK_EX)
high = fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, 200)  # it is closed late
close = os.close

def close_late(number):
    time.sleep(0.2 if number == high else 0)
    close(number)

def to_the_fork():
    os.close = close_late
    for number in (signal.SIGTSTP, signal.SIGTERM, signal.SIGUSR1):
        os.kill(os.getpid(), number)

def show(tree):
    names = ("cmdline", "environ", "comm", "status")
    facts = {name: Path("/proc/self", name).read_bytes().decode() for name in names}
    facts["cwd"] = os.getcwd()
    facts["leads"] = [os.getpid(), os.getsid(0), os.getpgid(0)]
    facts["files"] = {number: os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{number}")}
    facts["pid"] = os.getpid()
    facts["session has ended"] = os.getppid() != session
    shown.with_suffix(".new").write_text(json.dumps(facts))
    shown.with_suffix(".new").rename(shown)
    end = time.monotonic() + 60  # in a failed test it ends by itself
    while not shown.with_suffix(".seen").exists() and time.monotonic() < end:
        time.sleep(0.01)
    return run(tree)

session, deletion._PATIENCE = os.getpid(), 0.1 if "goes on" in sys.argv else 60
run, delete_tree.TreeDeletion.run = delete_tree.TreeDeletion.run, show
os.register_at_fork(after_in_child=to_the_fork)
if "thread" in sys.argv:
    threading.Thread(target=signal.pause, daemon=True).start()
with SignalHandlers():
    trash.discard(directory, directory.with_name("aside"), lambda read: True)
    held.close()
    os.close(high)
    with lock.open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the fork does not hold it
    while "goes on" in sys.argv and not shown.exists():
        time.sleep(0.01)
os._exit(0)
"""


def _delete(tmp_path: Path, *words: str) -> Path:
    directory = tmp_path / SESSION
    (directory / "inner").mkdir(parents=True)
    (directory / "inner/file").touch()
    arguments = [*map(os.fspath, (directory, tmp_path / "lock", tmp_path / "shown")), *words]
    # Its output comes through pipes, so it returns only if the fork has closed them.
    done = subprocess.run(
        (sys.executable, "-c", _SESSION, *arguments),
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "RALPH_SESSION_ID": "outer", "HOME": os.fspath(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return tmp_path / "aside"


def test_it_is_like_a_program_that_was_started(tmp_path: Path) -> None:
    """It has nothing of the session: no name, variable, signal handler, descriptor, directory or group."""
    aside = _delete(tmp_path)
    facts: dict[str, Any] = {}

    def shown() -> bool:
        if (tmp_path / "shown").exists():
            facts.update(json.loads((tmp_path / "shown").read_text()))
        return bool(facts)

    eventually(shown, "the deletion")
    assert facts["session has ended"]
    pid = facts["pid"]
    assert facts["cmdline"].rstrip("\0") == deletion.TITLE.decode()
    assert processes.is_deletion(pid)
    assert not processes.is_wrapper(pid)
    variables = facts["environ"].rstrip("\0").split("\0")
    assert {"RALPH_WRAP_OWN_COMMAND=1", f"HOME={tmp_path}"} < {*variables}
    assert [name for name in variables if name.startswith("RALPH_")] == ["RALPH_WRAP_OWN_COMMAND=1"]
    assert facts["comm"] == "ralph-wrap\n"
    assert facts["cwd"] == "/"
    assert {*facts["leads"]} == {pid}
    directories = [os.fspath(tmp_path), os.fspath(aside)]
    files = {file for file in facts["files"].values() if "pidfd" not in file}
    assert sorted(files - {f"/proc/{pid}/fd"}) == sorted(["/dev/null", *directories])
    status = dict(row.split(":\t") for row in facts["status"].splitlines() if ":\t" in row)
    assert int(status["SigBlk"], 16) == int(status["SigPnd"], 16) == int(status["ShdPnd"], 16) == 0
    assert int(status["SigCgt"], 16) == int(status["SigIgn"], 16) >> signal.SIGTERM - 1 & 1 == 0
    assert aside.exists()
    (tmp_path / "shown.seen").touch()
    eventually(lambda: not aside.exists(), "the deletion to end")


def test_a_session_that_goes_on_does_not_keep_it_waiting(tmp_path: Path) -> None:
    """A program that uses the library can run for days after it has removed a worktree."""
    aside = _delete(tmp_path, "goes on")
    assert not json.loads((tmp_path / "shown").read_text())["session has ended"]
    (tmp_path / "shown.seen").touch()
    eventually(lambda: not aside.exists(), "the deletion to end")


def test_beside_another_thread_a_program_deletes(tmp_path: Path) -> None:
    """A fork could wait for a lock that the thread holds."""
    aside = _delete(tmp_path, "thread")
    eventually(lambda: not aside.exists(), "the deletion to end")
    assert not (tmp_path / "shown").exists()
