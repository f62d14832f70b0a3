"""What the processes of a session use, as ``ralph-wrap ps`` shows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ralph_wrap.system import process_table
from tests.support.processes import end_all
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")


MB = 1 << 20
HELD = 100 * MB
BURNT = 1.0  # processor seconds

HOLD = f"held = bytearray({HELD}); held[::4096] = b'x' * len(held[::4096])"
BURN = f"import time\nwhile time.process_time() < {BURNT}: pass"
WAIT = "print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def agent(tmp_path: Path, script: Callable[[str], str]) -> Iterator[Callable[[str, str], str]]:
    """Return a function that makes an agent of a Python program and the shell command that runs it."""

    def make(program: str, shell: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(program)
        return script(shell.replace("PROGRAM", f"{sys.executable} {path}"))

    yield make
    end_all(tmp_path / "home")


def _row(repo: Repo, *options: str) -> dict[str, Any]:
    (row,) = json.loads(command("ps", "--json", *options, cwd=repo.path).stdout)["data"]
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize(
    "shell",
    ["exec PROGRAM", "(setsid sh -c 'PROGRAM &' &); exec sleep 600"],
    ids=["the agent", "a process that it has left"],
)
def test_a_session_uses_what_its_processes_use(
    repo: Repo, agent: Callable[[str, str], str], shell: str
) -> None:
    """Processor time and memory of all of them, wherever they are below the session."""
    with Session(repo.path, "--", agent(f"{HOLD}\n{BURN}\n{WAIT}", shell)) as session:
        log = session.directory / "output.log"
        eventually(lambda: log.exists() and b"ready" in log.read_bytes(), "the program")
        row = _row(repo)
    assert BURNT <= row["cpu_seconds"] < 60
    assert 0 < row["cpu_percent"] < 200
    assert HELD < row["memory_bytes"] < HELD + 100 * MB
    assert row["processes"] in {2, 3}


def test_a_watch_shows_the_use_of_now(repo: Repo, agent: Callable[[str, str], str]) -> None:
    """Nothing, where an iteration that has ended used it all; a single look shows the average."""
    shell = 'test "$RALPH_ITERATION" = 2 && exec sleep 600; PROGRAM'
    with Session(repo.path, "-n", "2", "--", agent(BURN, shell)) as session:
        session.wait_for("agent.started", 2)
        row = _row(repo)
        with Terminal(PROGRAM, "ps", "--watch", cwd=repo.path) as terminal:
            eventually(lambda: re.search(rb"running .* 0% +\d+M", terminal.read()), "an idle session")
    assert row["cpu_seconds"] >= BURNT
    assert row["cpu_percent"] >= 1


def test_a_finished_session_uses_nothing_that_is_known(repo: Repo) -> None:
    """Its processes are gone, and the report has none of it."""
    run(repo.path, "-n", "1", "--", "true")
    row = _row(repo, "--all")
    assert [row[name] for name in process_table.ResourceUsage._fields] == [None] * 4


def test_an_orphan_is_known_by_its_environment() -> None:
    """Without a subreaper it is below nothing of the session any more; the same process counts once."""
    one, two = (f"usage-{os.getpid()}-{number}" for number in (1, 2))  # other workers see these processes
    environ = {**os.environ, "RALPH_SESSION_ID": one}
    wait = f"{HOLD}; print('ready', flush=True); input()"
    with (
        subprocess.Popen(("cat",), stdin=subprocess.PIPE) as owner,
        subprocess.Popen(
            (sys.executable, "-c", wait), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        ) as orphan,
    ):
        assert orphan.stdout is not None
        assert orphan.stdout.readline() == b"ready\n"
        used = process_table.usage({one: owner.pid, two: orphan.pid})
        orphan.communicate(b"\n")
    assert [used[session].processes for session in (one, two)] == [2, 1]
    assert all(one.memory_bytes > HELD for one in used.values())


def test_an_owner_that_has_ended_uses_nothing_that_is_known() -> None:
    """It may end between two looks."""
    with subprocess.Popen("true") as owner:
        pass
    assert process_table.usage({"check-00000001": owner.pid}) == {}
    assert process_table.usage({}) == {}


def test_memory_that_the_kernel_does_not_add_up_is_the_resident_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a process that was root once, as in a container."""

    def refuse(self: psutil.Process) -> None:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "memory_full_info", refuse)
    used = process_table.usage({"check-00000001": os.getpid()})
    assert used["check-00000001"].memory_bytes >= psutil.Process().memory_info().rss // 2
