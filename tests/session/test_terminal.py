"""A session on a terminal: which process gets the keys."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import left
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, Terminal, shell
from tests.support.wait import eventually, never

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.session.terminal import report_of

SH = ("--", "sh", "-c")

LOOP = "while :; do sleep 0.05; done"

PROMPT = "the-shell> "


def test_an_agent_without_a_prompt_owns_the_terminal(repo: Repo, tmp_path: Path) -> None:
    """It is the foreground process group, and all its streams are the terminal itself."""
    seen = tmp_path / "seen"
    agent = (
        "import json, os, pathlib\n"
        "facts = [os.getpgrp() == os.tcgetpgrp(0) == os.getpid(), *map(os.isatty, (0, 1, 2))]\n"
        f"pathlib.Path({str(seen)!r}).write_text(json.dumps(facts))\n"
        "print('name?', input().upper())\n"
    )
    with Terminal(PROGRAM, "run", "-n", "1", "--", sys.executable, "-c", agent, cwd=repo.path) as terminal:
        eventually(lambda: terminal.read() and seen.exists(), "the agent")
        assert terminal.foreground != terminal.process.pid
        terminal.type(b"ralph\n")
        terminal.wait_for("name? RALPH")
        assert terminal.finish() == 0
    assert json.loads(seen.read_text()) == [True, True, True, True]


def test_an_agent_with_a_prompt_does_not_get_the_terminal(repo: Repo, tmp_path: Path) -> None:
    """Its streams are ours to relay, the keys stay with us, and colours pass."""
    seen = tmp_path / "seen"
    agent = (
        "import json, os, pathlib\n"
        "facts = [os.getpgrp() == os.getpid(), *map(os.isatty, (0, 1, 2))]\n"
        f"pathlib.Path({str(seen)!r}).write_text(json.dumps(facts))\n"
        "print('\\033[31mred\\033[0m')\n"
    )
    options = ("-n", "1", "-p", "task", "--", sys.executable, "-c", agent)
    with Terminal(PROGRAM, "run", *options, cwd=repo.path) as terminal:
        terminal.wait_for("\x1b[31mred\x1b[0m")
        assert terminal.finish() == 0
    assert json.loads(seen.read_text()) == [True, False, False, False]


def test_ctrl_c_reaches_an_agent_that_handles_it(repo: Repo) -> None:
    """It goes on, and so does the session."""
    agent = "trap 'echo caught >> caught; echo caught-it' INT; echo ready; read line; cat caught"
    with Terminal(PROGRAM, "run", "-n", "1", *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_C)
        eventually(lambda: b"caught-it\r\n" in terminal.read(), "the agent's answer")
        terminal.type(b"\n")
        assert terminal.finish() == 0
    assert repo.show(f"{report_of(repo)['saved']}:caught") == b"caught\n"


@pytest.mark.parametrize(
    ("keys", "number"), [(CTRL_C, signal.SIGINT), (CTRL_BACKSLASH, signal.SIGQUIT)], ids=["INT", "QUIT"]
)
def test_a_key_that_ends_the_agent_ends_the_loop(repo: Repo, home: Path, keys: bytes, number: int) -> None:
    """The terminal sent it to the agent alone, but it is meant for the whole."""
    agent = f"ulimit -c 0; echo left > left; echo ready; {LOOP}"
    with Terminal(PROGRAM, "run", *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(keys)
        assert terminal.finish() == 128 + number
    report = report_of(repo)
    assert (report["ended_by"], report["exit_status"], report["iterations"]) == ("signal", 128 + number, 1)
    assert repo.show(f"{report['saved']}:left") == b"left\n"
    assert left(home) == {}


def test_ctrl_c_with_a_prompt_ends_the_session(repo: Repo, home: Path) -> None:
    """The session gets the keys then: it signals the agent, and saves its work."""
    agent = f"trap 'echo INT > signal; exit 0' INT; echo ready; {LOOP}"
    with Terminal(PROGRAM, "run", "-p", "task", *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    report = report_of(repo)
    assert (report["ended_by"], report["exit_status"]) == ("signal", 130)
    assert repo.show(f"{report['saved']}:signal") == b"INT\n"
    assert left(home) == {}


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
def test_a_killed_agent_leaves_no_alternate_screen(repo: Repo, prompt: tuple[str, ...]) -> None:
    """It cannot switch back itself: the session does, before its own messages."""
    agent = f"printf '\\033[?1049h\\033[?25l\\nready\\n'; {LOOP}"
    with Terminal(PROGRAM, "run", *prompt, *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.finish() == 128 + signal.SIGTERM
    before, _, after = terminal.screen.partition(b"\x1b7\x1b[?1049l\x1b[?25h")
    assert (b"ralph-wrap drop" in before, b"ralph-wrap drop" in after) == (False, True), after


def test_output_in_a_pipe_gets_nothing_for_a_terminal(repo: Repo) -> None:
    """Its bytes are the agent's."""
    result = run(repo.path, "-n", "1", "-p", "task", *SH, "printf '\\033[?1049h\\033[?25l'")
    assert result.stdout == b"\x1b[?1049h\x1b[?25l"


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
def test_ctrl_z_gives_the_shell_its_prompt_and_fg_goes_on(
    repo: Repo, tmp_path: Path, prompt: tuple[str, ...]
) -> None:
    """Session and agent stop together and go on together."""
    # No shell: one whose child is stopped between vfork and exec cannot be stopped itself (vfork(2)).
    agent = (
        "import pathlib, time\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        "number = 0\n"
        "while not (place / 'go').exists():\n"
        "    number += 1\n"
        "    (place / 'new').write_text(str(number))\n"
        "    (place / 'new').rename(place / 'count')\n"
        "    time.sleep(0.02)\n"
        "print('finished')\n"
    )
    command = shlex.join((PROGRAM, "run", "-n", "1", *prompt, "--", sys.executable, "-c", agent))

    def count() -> int:
        path = tmp_path / "count"
        return int(path.read_text()) if path.exists() else 0

    with Terminal(*shell(PROMPT), cwd=repo.path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{command}\n".encode())
        eventually(lambda: terminal.read() and count() > 0, "the agent")
        terminal.type(CTRL_Z)
        terminal.wait_for("[1]+  Stopped")
        terminal.wait_for(PROMPT, 2)
        assert terminal.foreground == terminal.process.pid
        before = count()
        never(lambda: count() != before, "the agent went on")
        terminal.type(b"fg\n")
        eventually(lambda: terminal.read() and count() > before, "the agent to go on")
        (tmp_path / "go").touch()
        terminal.wait_for("finished")
        terminal.wait_for(PROMPT, 3)
        terminal.type(b"echo status=$?\n")
        terminal.wait_for("status=0\r\n")


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
def test_ctrl_z_is_not_lost_between_iterations(repo: Repo, tmp_path: Path, prompt: tuple[str, ...]) -> None:
    """The pause is part of the session."""
    agent = f"echo >> {tmp_path}/count; echo ran"
    command = shlex.join((PROGRAM, "run", "-n", "2", "--delay", "1h", *prompt, *SH, agent))
    with Terminal(*shell(PROMPT), cwd=repo.path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{command}\n".encode())
        terminal.wait_for("ran")
        sessions = repo.path / ".ralph" / "run" / "sessions"
        eventually(
            lambda: any("iteration.ended" in log.read_text() for log in sessions.glob("*/events.jsonl")),
            "the pause",
        )
        terminal.type(CTRL_Z)
        terminal.wait_for("[1]+  Stopped")
        terminal.wait_for(PROMPT, 2)
        terminal.type(b"fg\n")
        eventually(lambda: terminal.read() and terminal.foreground != terminal.process.pid, "the job")
        terminal.type(CTRL_C)
        terminal.wait_for(PROMPT, 3)
        terminal.type(b"echo status=$?\n")
        terminal.wait_for("status=130\r\n")


def test_the_agent_knows_the_new_size_of_the_window(repo: Repo) -> None:
    """The agent gets SIGWINCH and finds the new size."""
    agent = (
        "import os, signal\n"
        "def changed(*_):\n"
        "    size = os.get_terminal_size()\n"
        "    print(f'now {size.lines} by {size.columns}', flush=True)\n"
        "signal.signal(signal.SIGWINCH, changed)\n"
        "os.write(1, b'ready\\n')\n"  # print() writes the end of the line by itself if it is not buffered
        "input()\n"
    )
    with Terminal(PROGRAM, "run", "-n", "1", "--", sys.executable, "-c", agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.resize(50, 132)
        terminal.wait_for("now 50 by 132")
        terminal.type(b"\n")
        assert terminal.finish() == 0


@pytest.mark.parametrize("end", ["exit 0", "kill -KILL $$", "echo ready; read x; exit 130"])
def test_the_terminals_mode_is_as_before(repo: Repo, end: str) -> None:
    """Even if the agent left it raw, or was killed."""
    with Terminal(PROGRAM, "run", "-n", "1", *SH, f"stty raw -echo; {end}", cwd=repo.path) as terminal:
        before = terminal.mode
        if "ready" in end:
            terminal.wait_for("ready")
            assert terminal.mode != before
            terminal.type(b"\n\r")
        terminal.finish()
        assert terminal.mode == before


def test_the_terminal_is_ours_again_before_the_next_iteration(repo: Repo) -> None:
    """Each iteration is given it anew."""
    agent = "echo iteration-$RALPH_ITERATION; read line; echo got-$line"
    with Terminal(PROGRAM, "run", "-n", "2", *SH, agent, cwd=repo.path) as terminal:
        for number in (b"1", b"2"):
            terminal.wait_for(f"iteration-{number.decode()}")
            terminal.type(number + b"\n")
            terminal.wait_for(f"got-{number.decode()}\r\n")
        assert terminal.finish() == 0


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
@pytest.mark.parametrize("in_a_shell", [True, False], ids=["in a shell", "by itself"])
def test_a_closed_window_ends_the_session_with_its_work_saved(
    repo: Repo, home: Path, prompt: tuple[str, ...], *, in_a_shell: bool
) -> None:
    """No terminal shows the report any more, but it is written."""
    command = (PROGRAM, "run", *prompt, *SH, f"echo left > left; echo ready; {LOOP}")
    with Terminal(*(shell(PROMPT) if in_a_shell else command), cwd=repo.path) as terminal:
        if in_a_shell:
            terminal.wait_for(PROMPT)
            terminal.type(f"{shlex.join(command)}\n".encode())
        terminal.wait_for("ready")
        terminal.hang_up()
        eventually(lambda: list((repo.path / ".ralph/run/sessions").glob("*/record.json")), "the end")
    eventually(lambda: left(home) == {}, "the session to be gone")
    report = report_of(repo)
    assert (report["ended_by"], report["exit_status"]) == ("signal", 129)
    assert repo.show(f"{report['saved']}:left") == b"left\n"
    assert repo.worktrees() == []


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
def test_a_window_closed_while_the_job_is_stopped_ends_the_session(
    repo: Repo, home: Path, prompt: tuple[str, ...]
) -> None:
    """The shell continues its stopped job only to hang up on it."""
    agent = (sys.executable, "-c", "import pathlib, time; pathlib.Path('left').touch(); time.sleep(1000)")
    command = shlex.join((PROGRAM, "run", *prompt, "--", *agent))
    with Terminal(*shell(PROMPT), cwd=repo.path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{command}\n".encode())
        worktrees = repo.path / ".ralph" / "worktrees"
        eventually(lambda: terminal.read() and list(worktrees.glob("*/left")), "the agent")
        terminal.type(CTRL_Z)
        terminal.wait_for("[1]+  Stopped")
        terminal.hang_up()
        eventually(lambda: list((repo.path / ".ralph/run/sessions").glob("*/record.json")), "the end")
    eventually(lambda: left(home) == {}, "the session to be gone")
    report = report_of(repo)
    assert (report["ended_by"], report["exit_status"]) == ("signal", 129)
    assert repo.show(f"{report['saved']}:left") == b""


@pytest.mark.parametrize("prompt", [(), ("-p", "task")], ids=["interactive", "with a prompt"])
def test_a_session_that_ignores_the_hang_up_outlives_its_window(
    repo: Repo, home: Path, tmp_path: Path, prompt: tuple[str, ...]
) -> None:
    """As under nohup: the next iterations run without a terminal."""
    go = tmp_path / "go"
    agent = f"echo ready; while [ ! -e {go} ]; do sleep 0.05; done; echo x >> left"
    under = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with Terminal(*under, PROGRAM, "run", "-n", "2", *prompt, *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.hang_up()
        go.touch()
        eventually(lambda: terminal.process.poll() is not None, "the end")
    report = report_of(repo)
    assert (report["ended_by"], report["exit_status"], report["iterations"]) == ("max-iterations", 0, 2)
    assert repo.show(f"{report['saved']}:left") == b"x\nx\n"
    assert left(home) == {}
