"""The program that deletes a worktree in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph_wrap.interfaces.init import processes
from ralph_wrap.system import delete_tree
from ralph_wrap.worktree import trash
from tests.support.wait import eventually

if TYPE_CHECKING:
    import pytest

SESSION = "20260102T030405Z-f02c"
"""No other test has this id: for all processes, one that bears its name proves that the session lives."""

_SESSION = """
import fcntl, signal, sys
from pathlib import Path
from ralph_wrap.system import delete_tree
from ralph_wrap.system.liveness import bear_name
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.worktree import trash

directory, lock, delete_tree.__file__ = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
bear_name("f02c")
held = lock.open("w")
fcntl.flock(held, fcntl.LOCK_EX)
with SignalHandlers():
    trash.discard(directory, directory.with_name("aside"), lambda read: True)
held.close()
with lock.open("w") as again:
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the program does not hold it
"""

_PROGRAM = """
import json, os, runpy, sys, time
shown, program = {shown!r}, {program!r}
facts = {{name: open("/proc/self/" + name).read() for name in ("cmdline", "environ", "comm", "status")}}
facts["cwd"] = os.getcwd()
facts["leads"] = [os.getpid(), os.getsid(0), os.getpgid(0)]
facts["files"] = [os.readlink("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd")
    if os.path.lexists("/proc/self/fd/" + number)]
with open(shown + ".new", "w") as file:
    json.dump(facts, file)
os.rename(shown + ".new", shown)
end = time.monotonic() + 60  # in a failed test it ends by itself
while not os.path.exists(shown + ".seen") and time.monotonic() < end:
    time.sleep(0.01)
runpy.run_path(program, run_name="__main__")
"""
"""Shows what it is, waits, and does what the real program does."""


def _directory(path: Path) -> Path:
    (path / "inner").mkdir(parents=True)
    (path / "inner/file").touch()
    return path


def test_it_has_nothing_of_the_session(tmp_path: Path) -> None:
    """No name, variable, signal handler, descriptor, lock, directory or group; nobody waits for it."""
    directory, shown = _directory(tmp_path / SESSION), tmp_path / "shown"
    program = tmp_path / "delete_tree.py"
    program.write_text(_PROGRAM.format(shown=os.fspath(shown), program=delete_tree.__file__))
    # Its output comes through pipes, so it returns only if the program does not hold them.
    done = subprocess.run(
        (sys.executable, "-c", _SESSION, directory, tmp_path / "lock", program),
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "RALPH_SESSION_ID": "outer", "HOME": os.fspath(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    eventually(shown.exists, "the deletion")
    facts: dict[str, Any] = json.loads(shown.read_text())
    pid, aside = facts["leads"][0], tmp_path / "aside"
    assert processes.is_deletion(pid)
    assert not processes.is_wrapper(pid)
    variables = facts["environ"].rstrip("\0").split("\0")
    assert {"RALPH_WRAP_OWN_COMMAND=1", f"HOME={tmp_path}"} < {*variables}
    assert [name for name in variables if name.startswith("RALPH_")] == ["RALPH_WRAP_OWN_COMMAND=1"]
    assert "ralph/" not in facts["comm"]
    assert facts["cwd"] == "/"
    assert {*facts["leads"]} == {pid}
    files = {file for file in facts["files"] if not file.startswith("/proc/")}
    assert files == {"/dev/null", os.fspath(tmp_path), os.fspath(aside)}
    status = dict(row.split(":\t") for row in facts["status"].splitlines() if ":\t" in row)
    assert int(status["SigBlk"], 16) == 0
    assert [int(status[name], 16) >> signal.SIGTERM - 1 & 1 for name in ("SigCgt", "SigIgn")] == [0, 0]
    assert aside.exists()
    shown.with_name("shown.seen").touch()
    eventually(lambda: not aside.exists(), "the deletion to end")


def test_without_the_program_the_session_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after root was given up, if its Python is in a directory of root's."""
    directory = _directory(tmp_path / SESSION)
    monkeypatch.setattr(delete_tree, "__file__", os.fspath(tmp_path / "absent.py"))
    trash.discard(directory, tmp_path / "aside", lambda _read: True)
    assert not directory.exists()
    assert not (tmp_path / "aside").exists()
