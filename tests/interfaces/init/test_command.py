"""The command that PID 1 runs."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.needs import needs_pid_namespaces
from tests.support.pid1 import NAMESPACE, PROMPT, Container, children, heard_by, listener
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import eventually, never

# -- the command --


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("--", "sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
        (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
        (("no-such-command",), 127),
        (("/etc/passwd",), 126),
        (("/",), 126),
    ],
)
def test_status_of_the_command(project: Path, words: tuple[str, ...], status: int) -> None:
    """Its own, or that of a shell."""
    assert command("init", *words, cwd=project).status == status


@needs_pid_namespaces
@pytest.mark.parametrize("name", ["HUP", "USR1", "USR2", "WINCH", "CONT", "TERM", "INT", "QUIT"])
def test_signals_are_passed_on(project: Path, name: str) -> None:
    """To the command, as they are."""
    with Container(project, *listener(project, "command")) as container:
        eventually((project / "command.pid").exists, "the command to listen")
        container.send(signal.Signals[f"SIG{name}"])
        eventually(lambda: heard_by(project, "command"), "the signal")
        if name in {"TERM", "INT", "QUIT", "HUP"}:  # which this command ends by
            assert container.wait() == 0
        assert [heard for heard in heard_by(project, "command") if heard != "SIGCONT" or name == "CONT"] == [
            f"SIG{name}"
        ]


def test_the_command_starts_as_any_program_does(project: Path) -> None:
    """With no signal blocked or ignored, in a process group of its own, and with three descriptors."""
    look = "import os, signal\n" + textwrap.dedent("""
        status = open("/proc/self/status").read().split()
        print([status[status.index(f"Sig{mask}:") + 1].strip("0") for mask in ("Blk", "Ign")])
        print(os.getpgrp() == os.getpid(), os.listdir("/proc/self/fd")[:-1])
    """)
    # Python itself ignores two signals, so another program looks.
    shown = command("init", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status", cwd=project).stdout.decode()
    _, blocked, _, ignored = shown.split()
    # 32 and 33 are the C library's own (nptl(7)), and inherited from the parent process.
    assert (int(blocked, 16), int(ignored, 16) & ~(0b11 << 31)) == (0, 0)
    shown = command("init", sys.executable, "-c", look, cwd=project).stdout.decode()
    assert shown.splitlines()[1] == "True ['0', '1', '2']"


@needs_pid_namespaces
def test_the_end_of_the_command_ends_the_sessions(project: Path) -> None:
    """They get SIGTERM, init waits for them, and the status stays the command's."""
    words = ("sh", "-c", "until [ -e go ]; do sleep 0.01; done; exit 7")
    with Container(project, *words) as container:
        container.listen("session", program="ralph-wrap")
        (project / "go").touch()
        assert (container.wait(), container.heard("session")) == (7, ["SIGTERM"])


@needs_pid_namespaces
def test_term_reaches_sessions_beside_the_command(project: Path) -> None:
    """Both have it, the command once."""
    with Container(project, "--stop-timeout=60s", *listener(project, "command", 2)) as container:
        eventually((project / "command.pid").exists, "the command to listen")
        container.listen("session", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session") and container.heard("command"), "both to get SIGTERM")
        never(lambda: container.heard("command") != ["SIGTERM"], "the command got a second SIGTERM")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM"])


@needs_pid_namespaces
def test_a_command_that_holds_out_is_killed(project: Path) -> None:
    """And the status says so."""
    with Container(project, "--stop-timeout=0.5s", *listener(project, "command", 0)) as container:
        eventually((project / "command.pid").exists, "the command to listen")
        container.send(signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGKILL


@needs_pid_namespaces
def test_ctrl_c_reaches_the_command_once(project: Path) -> None:
    """It owns the terminal of ``docker run -it``."""
    words = (*NAMESPACE, PROGRAM, "init", "--", *listener(project, "command", 2))
    with Terminal(*words, cwd=project) as terminal:
        eventually((project / "command.pid").exists, "the command to listen")
        terminal.type(CTRL_C)
        eventually(lambda: heard_by(project, "command"), "the key")
        never(lambda: heard_by(project, "command") != ["SIGINT"], "it came twice")
        terminal.type(CTRL_C)
        assert terminal.finish() == 0


@needs_pid_namespaces
def test_ctrl_z_does_not_lose_the_command(project: Path) -> None:
    """There is no shell above that could continue it."""
    words = (*NAMESPACE, PROGRAM, "init", "--", "sh", "-c", "echo ready; read line; echo got $line")
    with Terminal(*words, cwd=project) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_Z)
        terminal.type(b"it\n")
        terminal.wait_for("got it")
        assert terminal.finish() == 0


@needs_pid_namespaces
def test_job_control_in_a_shell(project: Path) -> None:
    """A shell as the command stops and continues its own jobs."""
    with Terminal(*NAMESPACE, PROGRAM, "init", "--", *shell("here> "), cwd=project) as terminal:
        terminal.wait_for("here> ")
        terminal.type(b"sh -c 'echo up; read line; echo got $line'\n")
        terminal.wait_for("up")
        terminal.type(CTRL_Z)
        terminal.wait_for("[1]+  Stopped")
        terminal.type(b"fg\n")
        terminal.type(b"it\n")
        terminal.wait_for("got it")
        terminal.type(b"exit 3\n")
        assert terminal.finish() == 3


@needs_pid_namespaces
def test_a_shell_on_the_terminal_ends_at_once(project: Path) -> None:
    """Interactive shells ignore TERM, which ``docker stop`` sends."""
    with Terminal(*NAMESPACE, PROGRAM, "init", "--", *shell("here> "), cwd=project) as terminal:
        terminal.wait_for("here> ")
        begun = time.monotonic()
        first = next(iter(children(terminal.process.pid)))
        os.kill(first, signal.SIGTERM)
        assert terminal.finish() == 128 + signal.SIGHUP
        assert time.monotonic() - begun < PROMPT
