"""What an agent finds on its standard input."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.config import LoopLimits
from ralph_wrap.loop.prompt import preamble
from tests.support.sessions import Session, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")

SH = ("--", "sh", "-c")


def test_a_text_is_given_to_each_iteration(repo: Repo) -> None:
    """From its beginning each time, and nothing is added to it."""
    result = run(repo.path, "-n", "2", "-p", "do\nit", "--", "cat")
    assert result.stdout == b"do\nitdo\nit"


def test_a_file_is_read_anew_for_each_iteration(repo: Repo, tmp_path: Path) -> None:
    """So it can be edited while the loop runs."""
    prompt = tmp_path / "prompt"
    prompt.write_text("first\n")
    result = run(repo.path, "-n", "2", "-f", prompt, *SH, f"cat; echo second > {prompt}")
    assert result.stdout == b"first\nsecond\n"


def test_a_file_on_the_command_line_is_relative_to_where_it_is_typed(repo: Repo, tmp_path: Path) -> None:
    """Not to the project."""
    (tmp_path / "task").write_text("typed here\n")
    repo.write("task", "in the project\n")
    result = run(repo.path, "-n", "1", "-C", repo.path, "-f", "task", "--", "cat", cwd=tmp_path)
    assert result.stdout == b"typed here\n"


def test_the_projects_prompt_file_is_the_default(repo: Repo) -> None:
    """The one in the project root as it is now, not the committed one in the worktree."""
    repo.write("PROMPT.md", "committed\n")
    repo.commit("prompt")
    repo.write("PROMPT.md", "edited\n")
    (repo.path / "sub").mkdir()
    result = run(repo.path, "-n", "1", "--", "cat", cwd=repo.path / "sub")
    assert result.stdout == b"edited\n"


def test_a_prompt_on_the_command_line_replaces_the_default_file(repo: Repo) -> None:
    """The stronger source wins."""
    repo.write("PROMPT.md", "from the file\n")
    result = run(repo.path, "-n", "1", "-p", "typed", "--", "cat")
    assert result.stdout == b"typed"


def test_bytes_of_a_file_pass_unchanged(repo: Repo, tmp_path: Path) -> None:
    """NUL, invalid UTF-8 and Windows line ends included."""
    prompt = tmp_path / "prompt"
    prompt.write_bytes(bytes(range(256)) + b"\r\n\xff\xfe")
    result = run(repo.path, "-n", "1", "-f", prompt, "--", "cat")
    assert result.stdout == prompt.read_bytes()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_of_an_argument_pass_unchanged(repo: Repo, locale: str) -> None:
    """Whatever the locale takes them for."""
    typed = b"caf\xc3\xa9 \xff\xfe"
    result = run(repo.path, "-n", "1", "-p", os.fsdecode(typed), "--", "cat", env={"LC_ALL": locale})
    assert result.stdout == typed


def test_an_empty_prompt_is_a_prompt(repo: Repo) -> None:
    """The agent finds the end of its input, not ours."""
    reading, writing = os.pipe()
    try:
        with os.fdopen(reading, "rb") as ours:
            result = run(repo.path, "-n", "1", "-p", "", *SH, "cat; echo end", stdin=ours)
    finally:
        os.close(writing)
    assert result.stdout == b"end\n"


def test_without_a_prompt_the_agent_gets_our_standard_input(repo: Repo, tmp_path: Path) -> None:
    """Whatever is piped into the program."""
    piped = tmp_path / "piped"
    piped.write_bytes(b"piped\n")
    with piped.open("rb") as ours:
        result = run(repo.path, "-n", "1", "--", "cat", stdin=ours)
    assert result.stdout == b"piped\n"


def test_an_agent_need_not_read_its_prompt(repo: Repo, tmp_path: Path) -> None:
    """One that exits with 10 MB unread has succeeded."""
    prompt = tmp_path / "prompt"
    prompt.write_bytes(b"word " * 2_000_000)
    result = run(repo.path, "-n", "1", "-f", prompt, "--", "true")
    assert result.status == 0


def test_an_agent_may_read_its_prompt_late_and_whole(repo: Repo, tmp_path: Path) -> None:
    """10 MB are not held back by the size of a pipe."""
    prompt = tmp_path / "prompt"
    prompt.write_bytes(b"word " * 2_000_000)
    go = tmp_path / "go"
    agent = f"while [ ! -e {go} ]; do sleep 0.05; done; wc -c"
    with Session(repo.path, "-n", "1", "-f", prompt, *SH, agent) as session:
        session.wait_for("agent.started")
        go.touch()
        result = session.finish()
    assert result.stdout.strip() == b"10000000"


def test_a_prompt_file_that_vanishes_makes_iterations_fail(repo: Repo, tmp_path: Path) -> None:
    """It may be back for the next one."""
    prompt = tmp_path / "prompt"
    prompt.write_text("here\n")
    with Session(repo.path, "-n", "3", "-f", prompt, *SH, f"cat; rm {prompt}") as session:
        event = session.wait_for("iteration.ended", 2)
        prompt.write_text("back\n")
        result = session.finish()
    assert event["status"] == 1
    assert [printed["message"] for printed in result.warnings] == [
        f"prompt file {prompt} cannot be read: No such file or directory"
    ]
    assert (result.status, result.stdout) == (0, b"here\nback\n")


def test_a_fifo_as_prompt_file_does_not_lose_a_signal(repo: Repo, tmp_path: Path) -> None:
    """TERM between the decision to start an iteration and its agent still ends the session."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writing = os.open(fifo, os.O_RDWR)  # the file is opened once to see that it can be
    try:
        path = f"/proc/{os.getpid()}/fd/{writing}"  # a FIFO with a name of its own is no prompt file
        with Session(repo.path, "-n", "1", "-f", path, "--", "sleep", "1000") as session:
            session.wait_for("iteration.started")
            session.process.terminate()
            os.write(writing, b"prompt\n")
            eventually(lambda: _waits_for(session.process.pid, "pipe_read"), "the read of the prompt")
            os.close(writing)
            writing = -1
            result = session.finish()
    finally:
        if writing >= 0:
            os.close(writing)
    assert (result.status, result.report["ended_by"]) == (143, "signal")


def _waits_for(pid: int, kernel_function: str) -> bool:
    found = subprocess.run(("cat", f"/proc/{pid}/wchan"), capture_output=True, check=False).stdout
    return kernel_function.encode() in found or found in {b"", b"0"}


# The preamble


BLOCKED = b"""\
If the work cannot go on without a decision or an action of a person, the final answer may have STUCK \
on a line of its own, and after it the question. Then the loop ends, too.
"""
PROMISED = b"""\
The loop ends when the final answer has DONE on a line of its own. \
Only an answer that finishes the whole task may have that line.
"""
ISOLATED = b"""\
This session works in a git worktree of its own, /p/w, on branch ralph/a3f2. \
It must not leave that worktree: nothing outside of it may be changed.
This is iteration 3 of at most 10.
Its work is reviewed by its commits, so whatever is done has to be committed there.

"""
PLAIN = b"""\
This session works in /p/w, which is not isolated. Nothing outside of it may be changed.
This is iteration 1.
Its work is reviewed by its commits, so whatever is done has to be committed there.

"""


@pytest.mark.parametrize(
    ("number", "limits", "branch", "text"),
    [
        (3, LoopLimits(max_iterations=10, until="", blocked=""), "ralph/a3f2", ISOLATED),
        (
            3,
            LoopLimits(max_iterations=10, until=" DONE ", blocked=" STUCK "),
            "ralph/a3f2",
            ISOLATED[:-1] + PROMISED + BLOCKED + b"\n",
        ),
        (1, LoopLimits(max_iterations=0, until="", blocked=""), "", PLAIN),
    ],
)
def test_the_preamble(number: int, limits: LoopLimits, branch: str, text: bytes) -> None:
    """As a whole, in a worktree and without one, with what ends the loop and without."""
    environ = {"RALPH_WORKSPACE": "/p/w", "RALPH_BRANCH": branch}
    assert preamble(number, limits, environ) == text


def test_the_preamble_stands_before_the_prompt(repo: Repo) -> None:
    """With where the agent really is, anew in each iteration."""
    result = run(repo.path, "--preamble", "on", "-n", "2", "-p", "do it\n", "--", "cat")
    environ = {"RALPH_WORKSPACE": result.report["workspace"], "RALPH_BRANCH": result.report["branch"]}
    limits = LoopLimits(max_iterations=2)
    assert result.stdout == b"".join(preamble(number, limits, environ) + b"do it\n" for number in (1, 2))


def test_without_a_prompt_there_is_no_preamble(repo: Repo) -> None:
    """The agent would take it for a prompt; a message says that the option changes nothing."""
    result = run(repo.path, "--preamble", "on", "-n", "1", "--", "cat")
    assert (result.ending, result.stdout) == (("max-iterations", 1, 0), b"")
    assert "--preamble: no effect without a prompt" in [printed["message"] for printed in result.narration]
