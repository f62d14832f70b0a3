"""A daemon that outlives a killed session, without its variables, descriptors, directory and parent."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import needs_pid_namespaces
from tests.support.pid1 import NAMESPACE
from tests.support.sessions import PROGRAM
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = needs_pid_namespaces

HIDDEN = """
for fd in $(ls /proc/self/fd); do eval "exec $fd>&-"; done
"""
DAEMON = """
cd /
exec -a "$1" sleep 600
"""

LIFE = """
"$PROGRAM" run -- sh -c "$AGENT" &
wrapper=$!
until [ -e up ] && grep -qs "$AWAITED" /proc/[0-9]*/cmdline; do sleep 0.05; done
kill -KILL $wrapper
wait $wrapper
"$PROGRAM" sweep
grep -ls "$AWAITED" /proc/[0-9]*/cmdline
true
"""
"""What PID 1 does: it kills a session, and sweeps."""


def _swept(repo: Repo, agent: str, awaited: str) -> subprocess.CompletedProcess[str]:
    """Kill a session in a pid namespace once a program runs there, and sweep there."""
    return subprocess.run(
        (*NAMESPACE, "bash", "-c", LIFE),
        cwd=repo.path,
        env=os.environ | {"PROGRAM": PROGRAM, "AGENT": agent, "AWAITED": awaited},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("innocent", ""),
        ("innocent", "RALPH_SESSION_ID=20260101T000000Z-abcd"),
        ("innocent", "RALPH_WRAP_OWN_COMMAND=1"),
        ("ralph-wrap", ""),
    ],
)
def test_a_sweep_in_a_container_names_the_daemon(repo: Repo, name: str, variable: str) -> None:
    """Nothing tells it from a daemon of the user, so it runs on; the warning has the command to end it.

    It can also name itself after our program, or name a session that has ended.
    """
    script = repo.path.parent / "daemon"
    script.write_text(HIDDEN + DAEMON)
    agent = f"touch ../../../up; (setsid env -i {variable} bash {script} {name} &); sleep 600"
    done = _swept(repo, agent, f"^{name}")
    [path] = [line for line in done.stdout.splitlines() if line.startswith("/proc/")]
    pid = Path(path).parent.name
    [warning] = [line for line in done.stderr.splitlines() if "processes.unknown" in line]
    assert f"lost their parent: {pid} (sleep); perhaps its agent left them" in warning
    assert f"to end them: kill {pid}" in warning


def test_a_daemon_with_a_descriptor_of_its_session_is_named(repo: Repo) -> None:
    """It holds a lock of the session, and nothing else proves where it comes from: the worktree stays."""
    script = repo.path.parent / "daemon"
    script.write_text(DAEMON)
    done = _swept(
        repo, f"touch ../../../up; (setsid env -i bash {script} innocent &); sleep 600", "^innocent"
    )
    [path] = [line for line in done.stdout.splitlines() if line.startswith("/proc/")]
    pid = Path(path).parent.name
    assert f"a process of its agent may still run: process {pid} (innocent 600) has locked " in done.stderr
    assert f"if it is stuck, end it: kill {pid}" in done.stderr


def test_a_daemon_with_the_id_of_its_session_is_ended(repo: Repo) -> None:
    """Counterpart: its variables prove which session has started it, and no process is only named."""
    done = _swept(repo, "touch ../../../up; (setsid sleep 600 &); sleep 600", "^sleep")
    assert "session.swept" in done.stderr
    assert "processes.unknown" not in done.stderr


FIRST = """
"$PROGRAM" run -- sh -c 'touch ../../../up; exec sleep 600' &
until [ -e up ]; do sleep 0.05; done
"""
"""The first life of a container: its end kills the session."""

SECOND = """
sleep 600 &
"$PROGRAM" sweep
kill %1
"""
"""The next one, with a main process that has nothing to do with the session."""


def test_a_sweep_after_a_restart_names_no_process_of_the_container(repo: Repo) -> None:
    """All that the session has left ended with its container: what runs now is the user's."""
    _life(repo, FIRST)
    ended = time.time()
    eventually(lambda: time.time() > ended + 3, "a later second: a session id has no parts of one")
    done = _life(repo, SECOND)
    assert "session.swept" in done.stderr
    assert "processes.unknown" not in done.stderr


def _life(repo: Repo, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*NAMESPACE, "bash", "-c", script),
        cwd=repo.path,
        env=os.environ | {"PROGRAM": PROGRAM},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
