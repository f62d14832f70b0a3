"""PID 1 and its children, in a pid namespace of its own, as in a container."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ralph_wrap.interfaces import init
from ralph_wrap.interfaces.init.processes import is_deletion
from tests.support.needs import needs_pid_namespaces
from tests.support.pid1 import NAMESPACE, Container, children, zombies
from tests.support.processes import running
from tests.support.sessions import command
from tests.support.wait import CAP, eventually, never

# -- children --


@needs_pid_namespaces
def test_zombies_are_reaped(inside: Container, tmp_path: Path) -> None:
    """Orphans of an exec'd process, without a parent that waits, are gone when they have ended."""
    end = tmp_path / "end"
    os.mkfifo(end)
    inside.execute("sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do (read line < '{end}' &) ; done").wait(CAP)
    eventually(lambda: len(children(inside.pid)) == 8, "eight orphans")
    end.write_text("")
    eventually(lambda: not children(inside.pid), "them to be reaped")


@needs_pid_namespaces
def test_zombies_stay_without_it(project: Path) -> None:
    """Under a PID 1 that does not wait, the same leaves eight; so the test above can fail."""
    sleeper = ("sh", "-c", "exec sleep 600")
    with subprocess.Popen((*NAMESPACE, *sleeper), cwd=project) as outer:
        try:
            first = eventually(lambda: next(iter(children(outer.pid)), None), "PID 1")
            enter = ("nsenter", "--target", str(first), "--pid", "--mount")
            orphans = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.2 &) ; done"
            subprocess.run((*enter, "sh", "-c", orphans), check=True)
            eventually(lambda: zombies(first) == 8, "eight zombies")
        finally:
            outer.kill()


@needs_pid_namespaces
def test_it_is_small(inside: Container) -> None:
    """Less than 12 MB when idle (proportional set size; ``proc(5)``: smaps_rollup)."""
    rows = Path(f"/proc/{inside.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB$", rows, re.MULTILINE)
    assert found
    assert int(found[1]) < 12_000


@needs_pid_namespaces
def test_one_sweep_at_a_time(project: Path) -> None:
    """HUP during a sweep starts one more after it, however often it came."""
    with Container(project) as container:
        [first] = eventually(container.sweeps, "the first sweep")
        os.kill(first, signal.SIGSTOP)
        container.send(signal.SIGHUP)
        never(lambda: container.sweeps() != [first], "another sweep beside it")
        container.send(signal.SIGHUP)
        os.kill(first, signal.SIGCONT)
        [second] = eventually(lambda: [pid for pid in container.sweeps() if pid != first], "the second sweep")
        eventually(lambda: second not in children(container.pid), "its end")
        never(lambda: children(container.pid), "a third sweep")


@needs_pid_namespaces
def test_hup_sweeps_again(inside: Container) -> None:
    """Also long after the first one."""
    inside.send(signal.SIGHUP)
    eventually(inside.sweeps, "another sweep")


@needs_pid_namespaces
def test_a_failing_sweep_is_logged(project: Path) -> None:
    """And nothing else comes of it."""
    with Container(project, env={"RALPH_WRAP_PROJECT": "/does/not/exist"}) as container:
        container.rest()
        assert len(container.log) == 1
        assert re.fullmatch(r"the sweep ended with status \d+", container.log[0])
        container.send(signal.SIGTERM)
        assert container.wait() == 0


def test_a_sweep_runs_nothing_that_stands_in_the_project(project: Path) -> None:
    """A module of the project is not taken for one of ours."""
    module = project / "ralph_wrap" / "__main__.py"
    module.parent.mkdir()
    module.write_text("open('run by the sweep', 'w')")
    module.with_name("__init__.py").touch()
    assert command("init", "true", cwd=project).status == 0
    assert [path.name for path in project.iterdir()] == ["ralph_wrap"]


# -- errors of its own --


def test_an_error_does_not_end_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It is said, and PID 1 goes on: its end would kill every session."""

    class Failing:
        status, over, turns = 7, False, 0

        def __init__(self, *_: object, **_options: object) -> None:
            pass

        def turn(self) -> None:
            self.turns += 1
            if self.turns == 1:
                raise MemoryError("none left")
            self.over = True

    monkeypatch.setattr(init, "Supervisor", Failing)
    assert init.run(init.InitOptions(8.0, ())) == 7
    printed = "ralph-wrap init: internal error, continuing: MemoryError('none left')\n"
    assert capfd.readouterr().err == printed


# -- deletions in the background --

LEFT = "20260102T030405Z-beef"

_DELETION = """
import os, signal, sys, time
name = sys.argv[1]
def note(number, _):
    with open(f"{name}.signals", "a") as file:
        print(signal.Signals(number).name, file=file)
for each in ("TERM", "HUP", "INT", "QUIT"):
    signal.signal(getattr(signal, f"SIG{each}"), note)
open(f"{name}.pid", "w").close()
while not os.path.exists(f"{name}.go"):
    time.sleep(0.01)
"""


@needs_pid_namespaces
def test_a_deletion_has_the_rest_of_the_time(project: Path) -> None:
    """It gets no signal, and PID 1 ends when it has ended."""
    program = project / "delete_tree.py"
    program.write_text(_DELETION)
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.execute(sys.executable, "-I", "-S", "-X", "utf8", os.fspath(program), "deletion")
        eventually((project / "deletion.pid").exists, "the deletion")
        container.listen("session", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: "finished: " in "".join(container.log), "the session to end")
        assert (container.heard("session"), container.heard("deletion")) == (["SIGTERM"], [])
        (project / "deletion.go").touch()
        assert container.wait() == 0
        assert container.heard("deletion") == []
        assert [line for line in container.log if line.startswith("waiting for: ")]
        assert "(deletes a removed worktree), after " in container.log[-1]


@needs_pid_namespaces
def test_the_next_start_logs_a_deletion_that_was_not_done_in_time(project: Path, home: Path) -> None:
    """Which goes on with it."""
    removed = project / ".ralph/run/trash" / LEFT
    (project / ".ralph/run/agents").mkdir(parents=True)
    removed.mkdir(parents=True)
    for number in range(30_000):
        os.close(os.open(removed / str(number), os.O_CREAT | os.O_WRONLY))
    (removed / ".ralph-wrap-trash").write_text(LEFT)
    with Container(project, "--stop-timeout=1s") as container:
        deletion = eventually(lambda: _deletions(home), "the deletion")[0]
        os.kill(deletion, signal.SIGSTOP)
        eventually(lambda: not container.sweeps(), "the sweep to end")
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert re.fullmatch(r"not finished: .*removed worktree\), killed", container.log[-1])
    assert removed.exists()
    with Container(project) as container:
        container.rest()
        eventually(lambda: not removed.exists(), "the rest to be deleted")
    log = project.with_name(f"{project.name}.log").read_text()
    assert "1 removed worktree in " in log


def _deletions(home: Path) -> list[int]:
    return [pid for pid in running(home) if is_deletion(pid)]
