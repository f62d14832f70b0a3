"""PID 1: in a pid namespace of its own, as in a container, and as a process that must hold back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import config
from ralph_wrap.interfaces import init
from ralph_wrap.interfaces.init.processes import runs_session
from tests.support.pid1 import NAMESPACE, Container, children, heard_by, listener, zombies
from tests.support.processes import running, status_of
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import CAP, eventually, never

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory that git knows nothing of."""
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def inside(project: Path) -> Iterator[Container]:
    """Return a container that idles."""
    with Container(project) as container:
        container.rest()
        yield container


# -- the command line --


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (8.0, ())),
        ("--", (8.0, ())),
        ("sh -c true", (8.0, ("sh", "-c", "true"))),
        ("-- sh -c true", (8.0, ("sh", "-c", "true"))),
        ("-- -x", (8.0, ("-x",))),
        ("--stop-timeout 55s", (55.0, ())),
        ("--stop-timeout=1.5m sh --stop-timeout 3", (90.0, ("sh", "--stop-timeout", "3"))),
        ("--stop-timeout 3 -- --", (3.0, ("--",))),
        ("--stop-timeout", None),
        ("--stop-timeout soon", None),
        ("--stop-timeout -1s", None),
        ("--help", None),
        ("-h sh", None),
        ("--stop", None),
    ],
)
def test_command_line(words: str, expected: tuple[float, tuple[str, ...]] | None) -> None:
    """The command begins with the first word that is no option of ours; a mistake is left to Typer."""
    assert init.read(words.split(), {}) == expected


def test_time_out_from_the_environment() -> None:
    """As every option; what is typed is stronger."""
    environ = {"RALPH_WRAP_STOP_TIMEOUT": "55s"}
    assert init.read([], environ) == (55.0, ())
    assert init.read(["--stop-timeout=3"], environ) == (3.0, ())
    assert init.read([], {"RALPH_WRAP_STOP_TIMEOUT": "soon"}) is None


@pytest.mark.parametrize(
    "text", ["8", "90s", "1.5m", "2h", "1d", "10ms", "", "s", "-1", "1e3", "inf", "٣", "8 "]
)
def test_durations_are_those_of_every_option(text: str) -> None:
    """Written twice, read the same."""

    def read(reader: Callable[[str], float]) -> float | str:
        try:
            return reader(text)
        except ValueError as error:
            return str(error)

    assert read(init.duration) == read(config.duration)


def test_help(project: Path) -> None:
    """It is Typer's, and names the option."""
    result = command("init", "--help", cwd=project)
    assert (result.status, result.stderr) == (0, "")
    assert b"--stop-timeout" in result.stdout


def test_mistake(project: Path) -> None:
    """Status 2, and nothing is run."""
    result = command("init", "--stop-timeout", "soon", "touch", "here", cwd=project)
    assert result.status == 2
    assert "'soon' is no duration" in result.stderr
    assert [*project.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("/opt/v/bin/python3 /usr/local/bin/ralph-wrap run", True),
        ("python3.12 -P -X dev -m ralph_wrap spawn -- sh", True),
        ("python -Im ralph_wrap run", True),
        ("ralph-wrap run --agent claude", True),
        ("python ralph-wrap ps run", False),
        ("python ralph-wrap init -- ralph-wrap run", False),
        ("python -m ralph_wrap sweep", False),
        ("python ralph_wrap run", False),
        ("python -X -m ralph_wrap run", False),
        ("python script.py ralph-wrap run", False),
        ("vim ralph-wrap run", False),
        ("timeout 1h ralph-wrap run", False),
        ("ralph-wrap runner", False),
        ("ralph-wrap", False),
    ],
)
def test_command_lines_of_sessions(words: str, expected: bool) -> None:
    """Python or the program itself, and the command right behind it."""
    assert runs_session(words.replace(" ", "\0").encode() + b"\0") is expected


def test_a_command_line_cannot_hang_pid_1() -> None:
    """Whoever chooses the longest row of options is told apart at once."""
    begun = time.monotonic()
    assert not runs_session(b"python\0" + b"-X\0" * 2000)
    assert time.monotonic() - begun < 1


# -- children --


@needs_root
def test_zombies_are_reaped(inside: Container) -> None:
    """Orphans of an exec'd process, which nobody else waits for, are gone when they have ended."""
    inside.execute("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (sleep 0.2 &) ; done").wait(CAP)
    eventually(lambda: len(children(inside.pid)) == 8, "eight orphans")
    eventually(lambda: not children(inside.pid), "them to be reaped")


@needs_root
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


@needs_root
def test_it_is_small(inside: Container) -> None:
    """Less than 12 MB when idle (proportional set size; ``proc(5)``: smaps_rollup)."""
    rows = Path(f"/proc/{inside.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB$", rows, re.MULTILINE)
    assert found
    assert int(found[1]) < 12_000


@needs_root
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


@needs_root
def test_hup_sweeps_again(inside: Container) -> None:
    """Also long after the first one."""
    inside.send(signal.SIGHUP)
    eventually(inside.sweeps, "another sweep")


@needs_root
def test_a_failing_sweep_is_told(project: Path) -> None:
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


# -- who is told --


@needs_root
@pytest.mark.parametrize(
    "more", [(), ('record={"session": "20260102T030405Z-abcd"}',)], ids=["", "registered"]
)
@pytest.mark.parametrize("program", ["listener", "ralph-wrap"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_everybody_is_told(
    inside: Container, more: tuple[str, ...], program: str, number: signal.Signals
) -> None:
    """A session, registered or not, and what is none, gets TERM once; the container ends with 0 after it."""
    inside.listen("one", 1, *more, program=program)
    inside.listen("two")
    inside.send(number)
    assert (inside.wait(), inside.heard("one"), inside.heard("two")) == (0, ["SIGTERM"], ["SIGTERM"])
    told = [re.sub(r"(: )\d+ |\d\.\d", r"\1", line) for line in inside.log]
    session = " (session 20260102T030405Z-abcd)" if more else ""
    assert told[0] == f"{number.name}: stopping all sessions and processes"
    assert sorted(told[1:]) == sorted(
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


@needs_root
def test_who_is_quick_to_obey_was_told(project: Path, tmp_path: Path) -> None:
    """Also who has ended before the CONT that comes with TERM."""
    (tmp_path / "sitecustomize.py").write_text(_OBEYED_AT_ONCE)
    with Container(project, env={"PYTHONPATH": os.fspath(tmp_path)}) as container:
        container.rest()
        container.listen("one")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("one")) == (0, ["SIGTERM"])
        assert [line.split(":")[0] for line in container.log] == ["SIGTERM", "asked to end", "finished"]


@needs_root
@pytest.mark.parametrize(
    ("more", "program"),
    [(("record={}",), "listener"), ((), "ralph-wrap")],
    ids=["registered", "command line"],
)
def test_what_a_session_has_started_is_not_told(
    inside: Container, more: tuple[str, ...], program: str
) -> None:
    """It is the session's own business: TERM in the middle of its ``git add`` would hurt the save."""
    inside.listen("session", 2, "child=git", *more, program=program)
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("session"), "the session to be told")
    never(lambda: heard_by(inside.project, "git"), "its child was told")
    inside.send(signal.SIGTERM)
    assert (inside.wait(), heard_by(inside.project, "git")) == (0, [])


@needs_root
def test_what_others_have_started_is_told(inside: Container) -> None:
    """Only sessions end what is below them; so the test above can fail."""
    inside.listen("server", 2, "child=worker")  # which kills it at its own end
    inside.send(signal.SIGTERM)
    assert eventually(lambda: inside.heard("worker"), "the worker to be told") == ["SIGTERM"]
    inside.send(signal.SIGTERM)
    assert inside.wait() == 0


@needs_root
def test_what_a_killed_session_leaves_is_told(project: Path) -> None:
    """Nobody else is there to end it."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        session = container.listen("session", 2, "child=git", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session"), "the session to be told")
        os.kill(session, signal.SIGKILL)
        eventually(lambda: container.heard("git"), "its child to be told")


@needs_root
def test_who_comes_late_is_told(project: Path) -> None:
    """Though nobody has ended in the meantime."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.listen("slow", 2)
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("slow"), "it to be told")
        container.listen("late")
        eventually(lambda: container.heard("late"), "the other one to be told")
        assert container.heard("slow") == ["SIGTERM"]


@needs_root
def test_who_is_stopped_is_woken(inside: Container) -> None:
    """A session that was suspended (Ctrl-Z) would not see TERM, nor save."""
    suspended = inside.listen("suspended")
    outer = status_of(suspended, "PPid")
    os.kill(suspended, signal.SIGSTOP)
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("suspended") == ["SIGTERM"], "it to be told")
    os.kill(outer, signal.SIGCONT)  # nsenter stops with its child, which nobody else can reap
    assert inside.wait() == 0


@needs_root
def test_who_ignores_term_is_hung_up(inside: Container) -> None:
    """So a shell of ``docker exec -it`` that is still open does not hold up the end."""
    inside.listen("shell", 1, "deaf=1")
    inside.send(signal.SIGTERM)
    assert (inside.wait(), inside.heard("shell")) == (0, ["SIGHUP"])


@needs_root
def test_who_may_not_be_told(project: Path) -> None:
    """The init of a user says that a session of root is not its to tell, and gives it the time there is."""
    under = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    with Container(project, "--stop-timeout=0.5s", under=under) as container:
        container.listen("root", program="ralph-wrap")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("root")) == (0, [])
        pid = (project / "root.pid").read_text().strip()
        assert f"cannot signal {pid} python: Operation not permitted" in container.log
        assert f"not finished: {pid} python, killed" in container.log


# -- for how long --


@needs_root
def test_hold_outs_are_told_again(project: Path) -> None:
    """After a part of the time: to a session it means that there is none left for the agent."""
    with Container(project, "--stop-timeout=2s") as container:
        container.rest()
        container.listen("session", 2, program="ralph-wrap")
        begun = time.monotonic()
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM", "SIGTERM"])
        assert 0.7 < time.monotonic() - begun < 2


@needs_root
def test_a_second_signal_is_passed_on(project: Path) -> None:
    """Whoever is in a hurry need not wait for that part."""
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.listen("session", 2, program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session"), "it to be told")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM", "SIGTERM"])


@needs_root
def test_it_gives_up(project: Path) -> None:
    """It ends before docker kills it, and says who did not."""
    with Container(project, "--stop-timeout=1s") as container:
        container.rest()
        container.listen("deaf", 0)
        begun = time.monotonic()
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert 1 <= time.monotonic() - begun < 2
        pid = (project / "deaf.pid").read_text().strip()
        assert container.heard("deaf") == ["SIGTERM", "SIGTERM"]
        assert container.log[-1] == f"not finished: {pid} python, killed"


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


@needs_root
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
    # 32 and 33 are the C library's own (nptl(7)), and inherited from whoever started us.
    assert (int(blocked, 16), int(ignored, 16) & ~(0b11 << 31)) == (0, 0)
    shown = command("init", sys.executable, "-c", look, cwd=project).stdout.decode()
    assert shown.splitlines()[1] == "True ['0', '1', '2']"


@needs_root
def test_the_end_of_the_command_ends_the_sessions(project: Path) -> None:
    """They are told and waited for, and the status stays the command's."""
    words = ("sh", "-c", "until [ -e go ]; do sleep 0.01; done; exit 7")
    with Container(project, *words) as container:
        container.listen("session", program="ralph-wrap")
        (project / "go").touch()
        assert (container.wait(), container.heard("session")) == (7, ["SIGTERM"])


@needs_root
def test_term_reaches_sessions_beside_the_command(project: Path) -> None:
    """Both have it, the command once."""
    with Container(project, "--stop-timeout=60s", *listener(project, "command", 2)) as container:
        eventually((project / "command.pid").exists, "the command to listen")
        container.listen("session", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: container.heard("session") and container.heard("command"), "both to be told")
        never(lambda: container.heard("command") != ["SIGTERM"], "the command was told again")
        container.send(signal.SIGTERM)
        assert (container.wait(), container.heard("session")) == (0, ["SIGTERM"])


@needs_root
def test_a_command_that_holds_out_is_killed(project: Path) -> None:
    """And the status says so."""
    with Container(project, "--stop-timeout=0.5s", *listener(project, "command", 0)) as container:
        eventually((project / "command.pid").exists, "the command to listen")
        container.send(signal.SIGTERM)
        assert container.wait() == 128 + signal.SIGKILL


@needs_root
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


@needs_root
def test_ctrl_z_does_not_lose_the_command(project: Path) -> None:
    """There is no shell above that could continue it."""
    words = (*NAMESPACE, PROGRAM, "init", "--", "sh", "-c", "echo ready; read line; echo got $line")
    with Terminal(*words, cwd=project) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_Z)
        terminal.type(b"it\n")
        terminal.wait_for("got it")
        assert terminal.finish() == 0


@needs_root
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


@needs_root
def test_a_shell_on_the_terminal_ends_at_once(project: Path) -> None:
    """Interactive shells ignore TERM, which ``docker stop`` sends."""
    with Terminal(*NAMESPACE, PROGRAM, "init", "--", *shell("here> "), cwd=project) as terminal:
        terminal.wait_for("here> ")
        begun = time.monotonic()
        first = next(iter(children(terminal.process.pid)))
        os.kill(first, signal.SIGTERM)
        assert terminal.finish() == 128 + signal.SIGHUP
        assert time.monotonic() - begun < 2


# -- where it must hold back --

# Tests of what must not be told run in a pid namespace of their own: breaking the program must be safe.
ELSEWHERE = {
    "under a shell": ("sh", "-c", '"$@"; exit $?', "sh"),
    "below a small init": ("tini", "--", "sh", "-c", '"$@"; exit $?', "sh"),
}


@needs_root
@pytest.mark.parametrize("under", ELSEWHERE.values(), ids=ELSEWHERE)
def test_no_broadcast_elsewhere(project: Path, under: tuple[str, ...]) -> None:
    """Who is not the init of the container tells neither strangers nor sessions without a record."""
    with Container(project, "--stop-timeout=1s", *listener(project, "own"), under=under) as container:
        eventually((project / "own.pid").exists, "the command to listen")
        container.listen("stranger")
        container.listen("session", program="ralph-wrap")
        container.send(signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{container.pid}").exists(), "its end")
        assert container.heard("own") == ["SIGTERM"]
        assert [container.heard(name) for name in ("stranger", "session")] == [[], []]
        assert container.log[0].startswith("not the init of a container")


@needs_root
def test_no_broadcast_into_another_namespace(project: Path) -> None:
    """A ``/proc`` that shows the host's processes shows numbers that mean others here."""
    log = project / "log"
    words = ("unshare", "--pid", "--fork", "--kill-child", PROGRAM, "init")
    with log.open("wb") as stderr, subprocess.Popen(words, cwd=project, stderr=stderr) as outer:
        try:
            eventually(lambda: "not the init of a container" in log.read_text(), "it to say so")
        finally:
            outer.kill()


@needs_root
@pytest.mark.parametrize("small_init", ["tini", "docker-init"])
def test_behind_a_small_init(project: Path, small_init: str) -> None:
    """As its direct child (``docker run --init``) it is the init all the same, and leaves that one alone."""
    with Container(project, under=(small_init, "--")) as container:
        assert container.pid != container.first
        container.rest()
        container.listen("session", program="ralph-wrap")
        container.listen("stranger")
        os.kill(container.first, signal.SIGTERM)
        assert container.wait() == 0
        assert [container.heard(name) for name in ("session", "stranger")] == [["SIGTERM"], ["SIGTERM"]]
        assert not [line for line in container.log if "docker-init" in line or "tini" in line]


@needs_root
@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({}, True),
        ({"session": "../../etc"}, True),
        ({"start_time": 1.5}, False),
        ({"start_time": "1.5"}, False),
        ({"start_time": None}, False),
        ({"pid_namespace": "pid:[1]"}, False),
        ({"pid_namespace": None}, False),
        ({"pid": 1}, False),
        ({"pid": True}, False),
        ({"pid": -1}, False),
        ({"pid": 0}, False),
        ({"pid": "3"}, False),
        ({"pid": 1 << 80}, False),
        ({"pid": {"a": []}}, False),
    ],
    ids=str,
)
def test_a_record_names_a_session(project: Path, record: dict[str, Any], told: bool) -> None:
    """Outside a container it is what makes a process ours to tell; it must fit the process in every way."""
    with Container(project, "--stop-timeout=1s", under=ELSEWHERE["under a shell"]) as container:
        container.rest()
        container.listen("session", 1, f"record={json.dumps(record)}")
        container.send(signal.SIGTERM)
        assert container.wait() == 0
        assert container.heard("session") == (["SIGTERM"] if told else [])
        assert not [line for line in container.log if "etc" in line]


def _deep(path: Path) -> None:
    path.write_text("[" * 60_000)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


BAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "a device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)),
    "a directory": Path.mkdir,
    "nothing": Path.touch,
    "a list": lambda path: path.write_text("[1]"),
    "half of one": lambda path: path.write_text('{"pid": '),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\0"),
    "a large number": lambda path: path.write_text('{"pid": ' + "9" * 50_000 + "}"),
    "deep": _deep,
    "huge": _huge,
}


@needs_root
@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_bad_records(inside: Container, make: Callable[[Path], object]) -> None:
    """They neither hold up nor end PID 1, nor hide a good one."""
    agents = inside.project / ".ralph" / "run" / "agents"
    agents.mkdir(parents=True)
    for name in ("0000", "ffff"):
        make(agents / f"{name}.json")
    inside.listen("session", 1, "record={}")
    begun = time.monotonic()
    inside.send(signal.SIGTERM)
    assert (inside.wait(), inside.heard("session")) == (0, ["SIGTERM"])
    assert time.monotonic() - begun < 2
    assert [line for line in inside.log if "(session 20260101T000000Z-abcd)" in line]
    assert not [line for line in inside.log if "error" in line]


@needs_root
def test_records_by_the_thousand(inside: Container) -> None:
    """A project full of large ones does not keep PID 1 from telling."""
    agents = inside.project / ".ralph" / "run" / "agents"
    agents.mkdir(parents=True)
    content = json.dumps({str(number): [number] for number in range(4000)})
    (agents / "original").write_text(content)
    for number in range(6000):
        os.link(agents / "original", agents / f"{number:04x}.json")
    inside.listen("session", program="ralph-wrap")
    begun = time.monotonic()
    inside.send(signal.SIGTERM)
    eventually(lambda: inside.heard("session"), "it to be told")
    assert time.monotonic() - begun < 2
    assert inside.wait() == 0


@needs_root
def test_a_record_that_names_the_init_hides_nobody(project: Path) -> None:
    """What is below PID 1 is not below a session, whatever a record says."""
    words = ("sh", "-c", f"{' '.join(listener(project, 'server'))} & wait")
    with Container(project, *words) as container:
        eventually((project / "server.pid").exists, "the server to listen")
        stat = Path(f"/proc/{container.pid}/stat").read_text().rpartition(")")[2].split()
        started = int(stat[19]) / os.sysconf("SC_CLK_TCK")
        record = json.dumps({"pid": 1, "start_time": started})
        container.listen("liar", 1, f"record={record}")
        container.send(signal.SIGTERM)
        container.wait()
        assert container.heard("server") == ["SIGTERM"]


# -- errors of its own --


def test_an_error_does_not_end_it(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It is said, and PID 1 goes on: its end would kill every session."""

    class Failing:
        status, over, turns = 7, False, 0

        def __init__(self, *_: object) -> None:
            pass

        def turn(self) -> None:
            self.turns += 1
            if self.turns == 1:
                raise MemoryError("none left")
            self.over = True

    monkeypatch.setattr(init, "Supervisor", Failing)
    assert init.run(init.InitOptions(8.0, ())) == 7
    told = "ralph-wrap init: internal error, continuing: MemoryError('none left')\n"
    assert capfd.readouterr().err == told


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


@needs_root
def test_a_deletion_has_the_rest_of_the_time(project: Path) -> None:
    """It gets no signal, and PID 1 ends when it has ended."""
    program = project / "delete_tree.py"
    program.write_text(_DELETION)
    with Container(project, "--stop-timeout=60s") as container:
        container.rest()
        container.execute(sys.executable, "-I", "-S", os.fspath(program), "deletion")
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


@needs_root
def test_a_deletion_that_was_not_done_in_time_is_told_by_the_next_start(project: Path, home: Path) -> None:
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
    return [pid for pid, words in running(home).items() if "/delete_tree.py" in words]
