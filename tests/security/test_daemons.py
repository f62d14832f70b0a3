"""A daemon that outlives a killed session, without its variables, descriptors, directory and parent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pid1 import NAMESPACE
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")

DAEMON = """
for fd in $(ls /proc/self/fd); do eval "exec $fd>&-"; done
cd /
exec -a innocent sleep 600
"""

LIFE = """
"$PROGRAM" run -- sh -c "$AGENT" &
wrapper=$!
until [ -e up ] && grep -qs "$AWAITED" /proc/[0-9]*/cmdline; do sleep 0.05; done
kill -KILL $wrapper
wait $wrapper
"$PROGRAM" sweep
grep -ls ^innocent /proc/[0-9]*/cmdline
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


def test_a_sweep_in_a_container_names_the_daemon(repo: Repo) -> None:
    """Nothing tells it from a daemon of the user, so it runs on; the warning has the command to end it."""
    script = repo.path.parent / "daemon"
    script.write_text(DAEMON)
    agent = f"touch ../../../up; (setsid env -i bash {script} &); sleep 600"
    done = _swept(repo, agent, "^innocent")
    [path] = [line for line in done.stdout.splitlines() if line.startswith("/proc/")]
    pid = Path(path).parent.name
    [warning] = [line for line in done.stderr.splitlines() if "processes.unknown" in line]
    assert f"lost their parent: {pid} (sleep); perhaps its agent left them" in warning
    assert f"to end them: kill {pid}" in warning


def test_a_daemon_with_the_id_of_its_session_is_ended(repo: Repo) -> None:
    """Counterpart: its variables prove which session has started it, and no process is only named."""
    done = _swept(repo, "touch ../../../up; (setsid sleep 600 &); sleep 600", "^sleep")
    assert "session.swept" in done.stderr
    assert "processes.unknown" not in done.stderr
