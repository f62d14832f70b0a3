"""Children: what they hear of signals, and what a key typed at the wrong moment does to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.system import process
from tests.support.processes import hear_signals, running
from tests.support.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

FOR_GROUPS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM}
"""What terminals and programs send to process groups."""

PROMPT = "the-shell> "

KINDS = {
    "git's": "running()",
    "of its own session": "running(with_terminal=False)",
    "an agent": "agent()",
    "left alone": "process.detach(PRINT, cwd=Path('/'), env=os.environ)",
}
"""How a command is started, by what kind of child it is."""

START = """
import os, signal, sys
from pathlib import Path
from ralph_wrap.system import process
from ralph_wrap.system.signals import SignalHandlers

PRINT = ("cp", "/proc/self/status", "{tmp}/said")  # a shell would clear its mask
FAILED, DONE = Path("{tmp}/failed"), Path("{tmp}/done")  # what is printed is flushed by a key (termios(3))

def running(**options):
    with process.RunningCommand(PRINT, cwd=Path("/"), env=os.environ, **options) as running:
        if status := running.wait().status:
            FAILED.touch()

def agent():
    streams = process.StandardStreams(None, 1, 2)
    group = process.ProcessGroup(process.ProcessSpec(PRINT, Path("/"), os.environ, streams, inherited=1))
    while (status := group.poll()) is None:
        pass
    if status:
        FAILED.touch()
"""

TYPED_AT = """
with SignalHandlers():
    print("ready", flush=True)
    for _ in range(150):
        {kind}
    DONE.touch()
    os.read(0, 1)
"""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("key", [CTRL_C, CTRL_Z, CTRL_BACKSLASH], ids=["Ctrl-C", "Ctrl-Z", "Ctrl-backslash"])
def test_a_key_never_hits_a_child_that_is_being_started(kind: str, key: bytes, tmp_path: Path) -> None:
    """Killed before it has a group of its own it would fail for no reason; stopped it would hold us up.

    As a job of a shell: in an orphaned process group the kernel ignores Ctrl-Z.
    """
    program = tmp_path / "program.py"
    program.write_text((START + TYPED_AT).format(kind=kind, tmp=tmp_path))
    with Terminal(*shell(PROMPT), cwd=tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{sys.executable} {program}\n".encode())
        terminal.wait_for("ready")
        typed = 0

        def done() -> bool:
            nonlocal typed
            terminal.type(key)
            typed += 1
            return terminal.read() is not None and (tmp_path / "done").exists()

        eventually(done, "the last command")
        terminal.type(b"\n")
        terminal.wait_for(PROMPT, 2)
        terminal.type(b"echo status=$?\n")
        terminal.wait_for("status=0\r\n")
        assert not (tmp_path / "failed").exists()
        assert typed > 5


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP], ids=lambda number: number.name
)
def test_tests_hear_signals_also_in_the_background(number: signal.Signals) -> None:
    """A shell makes a job in the background ignore SIGINT and SIGQUIT, ``nohup`` makes it ignore SIGHUP."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        hear_signals()
        heard = "import signal, sys; sys.exit(signal.getsignal(int(sys.argv[1])) is signal.SIG_IGN)"
        subprocess.run((sys.executable, "-c", heard, str(int(number))), check=True)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_a_child_hears(kind: str, tmp_path: Path) -> None:
    """Only we end our own git commands; everybody else hears what we hear."""
    said = tmp_path / "said"
    program = (START + "\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{kind}\n").format(
        kind=kind, tmp=tmp_path
    )
    subprocess.run((sys.executable, "-c", program), check=True)
    eventually(lambda: said.exists() and "SigCgt" in said.read_text(), "what it hears")
    masks = dict(line.split(":\t") for line in said.read_text().splitlines() if ":\t" in line)

    def among(mask: str) -> set[int]:
        return {number for number in FOR_GROUPS if int(masks[mask], 16) >> (number - 1) & 1}

    assert among("SigBlk") == (FOR_GROUPS if kind == KINDS["git's"] else set())
    assert among("SigIgn") == {signal.SIGHUP}
    assert int(masks["SigPnd"], 16) == int(masks["ShdPnd"], 16) == 0


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_starting_a_child_leaves_our_own_signals_as_they_were(kind: str, tmp_path: Path) -> None:
    """Also where it cannot be started."""
    program = (
        START
        + """
before = signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})
handlers = {{number: signal.getsignal(number) for number in signal.valid_signals()}}
{kind}
PRINT = ("/nowhere",)
try:
    {kind}
except FileNotFoundError:
    print("not there")
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before | {{signal.SIGUSR1}}
assert {{number: signal.getsignal(number) for number in signal.valid_signals()}} == handlers
"""
    )
    ended = subprocess.run(
        (sys.executable, "-c", program.format(kind=kind, tmp=tmp_path)),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert ended.stdout == b"not there\n"


# How it ends


def test_a_second_wait_goes_on_with_the_input(tmp_path: Path) -> None:
    """The first wait ended before the command had read a large input: it gets all of it."""
    go = tmp_path / "go"
    os.mkfifo(go)
    words = ("sh", "-c", f"read word < {go}; cat | wc -c")
    large = b"x" * (1 << 21)
    with process.RunningCommand(words, cwd=tmp_path, env=os.environ, stdin=large) as running:
        with pytest.raises(TimeoutError):
            running.wait(0.1)
        go.write_text("go\n")
        assert int(running.wait(CAP).stdout) == len(large)


def _started(tmp_path: Path, *argv: str, **environ: str) -> process.RunningCommand:
    """Start a command of ours, and wait until it has made its mark."""
    mark = tmp_path / "mark"
    started = process.RunningCommand(
        argv, cwd=tmp_path, env={**os.environ, "MARK": os.fspath(mark), **environ}
    )
    eventually(mark.exists, "the mark")
    return started


def test_git_that_is_ended_leaves_no_lock(repo: Repo, tmp_path: Path) -> None:
    """It has one while its user edits a message, and the next git command would fail."""
    repo.write("file.txt", "changed\n")
    editor = "touch $MARK; exec sleep 600 #"
    with _started(tmp_path, "git", "-C", os.fspath(repo.path), "commit", "-a", GIT_EDITOR=editor) as git:
        assert (repo.path / ".git/index.lock").exists()
        git.end()
    assert git.wait().status == -signal.SIGPIPE
    assert [*repo.path.glob(".git/**/*.lock")] == []


@pytest.mark.parametrize(
    "who", ["trap '' PIPE; $WORK", "(trap '' PIPE; $WORK) & exec sleep 600"], ids=["it", "a child"]
)
@pytest.mark.usefixtures("ended")
def test_what_does_not_end_is_killed(tmp_path: Path, home: Path, who: str) -> None:
    """With all of its group, deaf processes too."""
    work = who.replace("$WORK", "touch $MARK; while :; do sleep 0.05; done")
    with _started(tmp_path, "sh", "-c", work, HOME=os.fspath(home)):
        assert running(home)
    eventually(lambda: not running(home), "all of it to be gone")


@pytest.mark.parametrize("taker", ["main thread", "another thread"])
def test_a_key_during_the_start_of_an_agent_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taker: str
) -> None:
    """Where signals raise, the caller gets no group that it could end: no agent may be left."""
    popen, started = subprocess.Popen, []

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*arguments, **options)
        started.append(child)
        if taker == "main thread":
            signal.raise_signal(signal.SIGINT)
        else:
            _let_another_thread_take(signal.SIGINT)
        return child

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    streams = process.StandardStreams(None, None, None)
    spec = process.ProcessSpec(("sleep", "600"), tmp_path, os.environ, streams, inherited=1)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    if taker == "another thread":  # one is there before the agent starts
        other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            process.ProcessGroup(spec)
    finally:
        over.set()
    (child,) = started
    assert child.returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_stopped_agent_can_end_by_itself(tmp_path: Path) -> None:
    """It handles SIGTERM when it goes on."""
    work = "trap 'exit 3' TERM; kill -STOP $$; while :; do sleep 0.05; done"
    streams = process.StandardStreams(None, None, None)
    spec = process.ProcessSpec(("sh", "-c", work), tmp_path, os.environ, streams, inherited=1)
    group = process.ProcessGroup(spec)
    eventually(group.stopped, "the agent to stop")
    group.end()
    assert group.poll() == 3


def _let_another_thread_take(number: int) -> None:
    """Return when a thread with another mask has taken a signal, as Python noted it for the main thread."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(writing)
    taken = threading.Event()

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_kill(threading.get_ident(), number)
        taken.set()

    try:
        thread = threading.Thread(target=take)
        thread.start()
        assert taken.wait(CAP)
        thread.join()
        assert os.read(reading, 1) == bytes((number,))
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
