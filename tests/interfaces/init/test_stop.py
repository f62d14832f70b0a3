"""PID 1 stops the sessions: which processes get a signal, and for how long it waits."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.needs import PID_NAMESPACES, PROGRAM_FOR_OTHERS, needs, needs_pid_namespaces
from tests.support.pid1 import NAMESPACE, Container, heard_by, listener
from tests.support.processes import status_of
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually, never

# -- which processes get SIGTERM --


@needs_pid_namespaces
@pytest.mark.parametrize(
    "more", [(), ('record={"session": "20260102T030405Z-abcd"}',)], ids=["", "registered"]
)
@pytest.mark.parametrize("program", ["listener", "ralph-wrap"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_each_process_gets_term(
    inside: Container, more: tuple[str, ...], program: str, number: signal.Signals
) -> None:
    """A session, registered or not, and any other process gets TERM once; then the container ends with 0."""
    inside.listen("one", 1, *more, program=program)
    inside.listen("two")
    inside.send(number)
    assert (inside.wait(), inside.heard("one"), inside.heard("two")) == (0, ["SIGTERM"], ["SIGTERM"])
    printed = [re.sub(r"(: )\d+ |\d\.\d", r"\1", line) for line in inside.log]
    session = " (session 20260102T030405Z-abcd)" if more else ""
    assert printed[0] == f"{number.name}: stopping all sessions and processes"
    assert sorted(printed[1:]) == sorted(
        [
            f"asked to end: python{session}",
            "asked to end: python",
            f"finished: python{session}, after  s",
            "finished: python, after  s",
        ]
    )


_OBEYED_AT_ONCE = """
import select, signal

send = signal.pidfd_send_signal

def send_and_wait(pidfd, number):
    send(pidfd, number)
    if number == signal.SIGTERM:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll()

signal.pidfd_send_signal = send_and_wait
"""


@needs_pid_namespaces
def test_a_process_that_ends_at_once_has_got_term(project: Path, tmp_path: Path) -> None:
    """Also if it has ended before the CONT that comes with TERM."""
    (tmp_path / "sitecustomize.py").write_text(_OBEYED_AT_ONCE)
    with Container(project, env={"PYTHONPATH": os.fspath(tmp_path)}) as container:
        container.rest()
        container.listen("one")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("one")) == (0, ["SIGTERM"])
        assert [line.split(":")[0] for line in container.log] == ["SIGTERM", "asked to end", "finished"]


@needs_pid_namespaces
@pytest.mark.parametrize(
    ("more", "program"),
    [(("record={}",), "listener"), ((), "ralph-wrap")],
    ids=["registered", "command line"],
)
def test_what_a_session_has_started_gets_no_term(
    inside: Container, more: tuple[str, ...], program: str
) -> None:
    """It is the session's own business: TERM in the middle of its ``git add`` would hurt the save."""
    inside.listen("session", 2, "child=git", *more, program=program)
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("session"), "the session to get SIGTERM")
    never(lambda: heard_by(inside.project, "git"), "its child got SIGTERM")
    inside.send(signal.SIGTERM)
    assert (inside.wait(), heard_by(inside.project, "git")) == (0, [])


@needs_pid_namespaces
def test_what_other_processes_have_started_gets_term(inside: Container) -> None:
    """Only sessions end what is below them; so the test above can fail."""
    inside.listen("server", 2, "child=worker")  # which kills it at its own end
    inside.send(signal.SIGTERM)
    assert eventually(lambda: inside.heard("worker"), "the worker to get SIGTERM") == ["SIGTERM"]
    inside.send(signal.SIGTERM)
    assert inside.wait() == 0


@needs_pid_namespaces
@pytest.mark.parametrize("is_command", [True, False], ids=["the command", "docker exec"])
def test_a_session_below_another_program_gets_one_term(project: Path, *, is_command: bool) -> None:
    """That program passes on what it gets, and a second TERM would take the grace of the agent away."""
    words = ("timeout", "600", *listener(project, "session", 2, program="ralph-wrap"))
    with Container(project, "--stop-timeout=60s", *(("--", *words) if is_command else ())) as container:
        if not is_command:
            container.execute(*words)
        eventually((project / "session.pid").exists, "the session")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session"), "the session to get SIGTERM")
        never(lambda: len(container.heard("session")) > 1, "a second SIGTERM came")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM"] * 2)


@needs_pid_namespaces
@pytest.mark.parametrize("rest", ["sleep 600", "while :; do {session}; done"], ids=["other work", "again"])
def test_a_program_that_goes_on_after_its_session_gets_term(project: Path, rest: str) -> None:
    """It has other work to do, or starts the next session."""
    session = shlex.join(listener(project, "session", 1, program="ralph-wrap"))
    script = f"{session}; {rest.format(session=session)}"
    with Container(project, "--stop-timeout=60s", "--", "sh", "-c", script) as container:
        eventually((project / "session.pid").exists, "the session")
        container.send(signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGTERM


@needs_pid_namespaces
def test_what_a_killed_session_leaves_gets_term(project: Path) -> None:
    """No other process is there to end it."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        session = container.listen("session", 2, "child=git", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session"), "the session to get SIGTERM")
        os.kill(session, signal.SIGKILL)
        eventually(lambda: container.heard("git"), "its child to get SIGTERM")


@needs_pid_namespaces
def test_a_late_process_gets_term(project: Path) -> None:
    """Although no process has ended in the meantime."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.listen("slow", 2)
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("slow"), "it to get SIGTERM")
        container.listen("late")
        eventually(lambda: container.heard("late"), "the other one to get SIGTERM")
        assert container.heard("slow") == ["SIGTERM"]


@needs_pid_namespaces
def test_a_stopped_process_is_woken(inside: Container) -> None:
    """A session that was suspended (Ctrl-Z) would not see TERM, nor save."""
    suspended = inside.listen("suspended")
    outer = status_of(suspended, "PPid")
    os.kill(suspended, signal.SIGSTOP)
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("suspended") == ["SIGTERM"], "it to get SIGTERM")
    os.kill(outer, signal.SIGCONT)  # nsenter stops with its child, which no other process can reap
    assert inside.wait() == 0


@needs_pid_namespaces
def test_a_process_that_ignores_term_is_hung_up(inside: Container) -> None:
    """So a shell of ``docker exec -it`` that is still open does not hold up the end."""
    inside.listen("shell", 1, "deaf=1")
    inside.send(signal.SIGTERM)
    assert (inside.wait(), inside.heard("shell")) == (0, ["SIGHUP"])


@needs(PID_NAMESPACES, PROGRAM_FOR_OTHERS)
def test_a_process_that_it_may_not_signal(project: Path) -> None:
    """The init of a user logs that it may not signal a session of root, and waits as long as it can."""
    under = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    with Container(project, "--stop-timeout=0.5s", under=under) as container:
        container.listen("root", program="ralph-wrap")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("root")) == (0, [])
        pid = (project / "root.pid").read_text().strip()
        assert f"cannot signal {pid} python: Operation not permitted" in container.log
        assert f"not finished: {pid} python, killed" in container.log


# -- for how long --


@needs_pid_namespaces
def test_hold_outs_get_a_second_term(project: Path) -> None:
    """After a part of the time: to a session it means that there is none left for the agent."""
    with Container(project, "--stop-timeout=2s") as container:
        container.rest()
        container.listen("session", 2, program="ralph-wrap")
        begun = time.monotonic()
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM", "SIGTERM"])
        assert time.monotonic() - begun > 0.7


@needs_pid_namespaces
def test_a_second_signal_is_passed_on(project: Path) -> None:
    """A user in a hurry need not wait for that part."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.listen("session", 2, program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session"), "it to get SIGTERM")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM", "SIGTERM"])


@needs_pid_namespaces
def test_a_signal_at_the_start_is_not_lost(project: Path, tmp_path: Path) -> None:
    """The kernel discards a signal for a PID 1 that has no handler yet, unless it is blocked."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if os.getpid() == 1 and 'ralph_wrap.interfaces.init' in sys.orig_argv:\n"
        "    os.kill(1, signal.SIGTERM)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.fspath(tmp_path)}
    ended = subprocess.run(
        (*NAMESPACE, PROGRAM, "init"),
        cwd=project,
        env=environ,
        stderr=subprocess.PIPE,
        timeout=CAP,
        check=False,
    )
    assert (ended.returncode, b"SIGTERM: stopping" in ended.stderr) == (0, True)


@needs_pid_namespaces
def test_it_gives_up(project: Path) -> None:
    """It ends before docker kills it, and names the processes that did not."""
    with Container(project, "--stop-timeout=1s") as container:
        container.rest()
        container.listen("deaf", 0)
        begun = time.monotonic()
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert 1 <= time.monotonic() - begun < 8  # docker kills after 10 s
        pid = (project / "deaf.pid").read_text().strip()
        assert container.heard("deaf") == ["SIGTERM", "SIGTERM"]
        assert container.log[-1] == f"not finished: {pid} python, killed"
