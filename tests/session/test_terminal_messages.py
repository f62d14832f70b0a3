"""A session on a terminal: what a person reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.session.terminal import report_of

SH = ("--", "sh", "-c")

LOOP = "while :; do sleep 0.05; done"


def test_a_person_reads_sentences(repo: Repo) -> None:
    """Banner and exit report on a terminal are lines for people, whole and nothing else."""
    agent = "git commit -q --allow-empty -m mine; echo left > left"
    with Terminal(PROGRAM, "run", "-n", "1", *SH, agent, cwd=repo.path, size=(24, 200)) as terminal:
        assert terminal.finish() == 0
    report = report_of(repo)
    session, branch, workspace = report["session"], report["branch"], report["workspace"]
    log = f".ralph/run/sessions/{session}/output.log"
    base = str(report["base"])[:12]
    assert terminal.words == (
        f"ralph-wrap: .ralph/worktrees/ added to {repo.path}/.gitignore\n"
        "ralph-wrap: session started\n"
        f"  session    {session}\n"
        f"  branch     {branch} from {base}\n"
        f"  workspace  {os.path.relpath(str(workspace), repo.path)}\n"
        f"  agent      sh -c '{agent}'\n"
        f"  output     {log}\n"
        "ralph-wrap: session ended: limit reached after 1 iteration (exit status 0)\n"
        f"  session    {session}\n"
        "  limit      --max-iterations: this number of iterations has run\n"
        f"  branch     {branch}, 1 commit\n"
        f"  saved      {report['saved']}, 1 path not committed\n"
        "  worktree   removed\n"
        f"  output     {log}\n"
        f"  next       ralph-wrap diff --saved {report['id']}\n"
        f"             ralph-wrap merge {report['id']}\n"
        f"             ralph-wrap apply {report['id']}\n"
        f"  go on      ralph-wrap resume {report['id']}\n"
    )


@pytest.mark.parametrize(
    ("printed", "logged", "shown"),
    [
        ("printf hi", "hi", "hi\n"),
        ("printf hi >&2", "hi", "hi\n"),
        ("echo hi", "hi\n", "hi\n"),
        ("printf 'hi\\n\\n'", "hi\n\n", "hi\n\n"),
        ("true", "", ""),
    ],
)
def test_our_lines_begin_on_a_line_of_their_own(repo: Repo, printed: str, logged: str, shown: str) -> None:
    """Whether or not the agent has ended its last one; nothing is added to what it has printed."""
    options = ("-n", "2", "-p", "x", "--delay", "100ms", "--max-stalls", "0", "--ignore", "off")
    agent = f'{printed}; exit "$((2 - RALPH_ITERATION))"'
    with Terminal(PROGRAM, "run", *options, *SH, agent, cwd=repo.path, size=(24, 200)) as terminal:
        assert terminal.finish() == 0
    (log,) = repo.path.glob(".ralph/run/sessions/*/output.log")
    output = terminal.words.split(f"  output     {log.relative_to(repo.path)}\n")[1]
    failed = "ralph-wrap: iteration 1 failed with status 1, next in 1.1s\n"
    before, _, after = output.partition("── iteration 2 of 2 · ")
    assert before == f"{shown}{failed}"
    assert after.partition("──\n")[2].startswith(f"{shown}ralph-wrap: session ended: limit reached ")
    assert log.read_text() == logged * 2


def test_nothing_is_added_where_the_agents_line_is_not_on_our_terminal(repo: Repo, tmp_path: Path) -> None:
    """A file gets the agent's bytes, and the terminal no empty line."""
    out = tmp_path / "out"
    under = ("sh", "-c", f'"$@" > {out}', "sh")
    options = ("-n", "1", "-p", "x", *SH, "printf hi")
    with Terminal(*under, PROGRAM, "run", *options, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert out.read_bytes() == b"hi"
    assert "\n\n" not in terminal.words
    assert "session ended: limit reached" in terminal.words


def test_a_second_ctrl_c_is_confirmed(repo: Repo) -> None:
    """In other words than the first."""
    agent = f"trap '' INT; echo ready; {LOOP}"
    with Terminal(PROGRAM, "run", "-p", "x", "--grace", "1h", *SH, agent, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        for words in ("is asked to end", "gets no more time"):
            terminal.type(CTRL_C)
            eventually(lambda words=words: words in terminal.read().decode(), words)  # type: ignore[misc]
        assert terminal.finish() == 130
    printed = [line.removeprefix("^C") for line in terminal.words.splitlines() if "SIGINT" in line]
    assert printed == [
        "ralph-wrap: SIGINT: the agent is asked to end, then its work is saved",
        "ralph-wrap: SIGINT again: the agent gets no more time, then its work is saved",
    ]


def test_a_mistake_is_an_error_like_every_other_on_a_terminal(repo: Repo) -> None:
    """Without the box that Typer draws."""
    with Terminal(PROGRAM, "run", "--no-such-option", cwd=repo.path) as terminal:
        assert terminal.finish() == 2
    assert "ralph-wrap: error: No such option: --no-such-option" in terminal.words
    assert "╭" not in terminal.words


def test_a_person_reads_a_warning_with_a_hint(tmp_path: Path) -> None:
    """One line each, and they look different."""
    empty = make_repo(tmp_path / "empty", empty=True)
    with Terminal(PROGRAM, "run", "-n", "1", "--", "true", cwd=empty.path, size=(24, 200)) as terminal:
        terminal.wait_for(f"let the agent work in {empty.path} itself? [y/N]")
        terminal.type(b"y\n")
        assert terminal.finish() == 0
    reason = "the repository has no commit yet"
    lines = terminal.words.splitlines()
    begin = next(number for number, line in enumerate(lines) if "warning:" in line)
    assert lines[begin : begin + 2] == [
        f"ralph-wrap: warning: no isolation: {reason}; working in {empty.path} itself",
        "ralph-wrap: hint: git add -A && git commit --allow-empty -m start",
    ]


@pytest.mark.parametrize("colourless", [{"NO_COLOR": "1"}, {}])
def test_an_error_before_a_session_is_a_sentence(repo: Repo, colourless: dict[str, str]) -> None:
    """Coloured unless that is not wanted."""
    with Terminal(PROGRAM, "run", "--", "no-such-agent", cwd=repo.path, env=colourless) as terminal:
        assert terminal.finish() == 127
    assert terminal.words == (
        "ralph-wrap: error: agent command no-such-agent was not found\n"
        "ralph-wrap: hint: install it, or type its path in place of no-such-agent: /path/to/no-such-agent\n"
    )
    assert (b"\x1b[" in terminal.screen) != bool(colourless)


def test_names_cannot_move_the_cursor(repo: Repo) -> None:
    """A file or command whose name holds escape sequences is shown, not obeyed."""
    agent = "true \x1b[2J\x07"
    with Terminal(PROGRAM, "run", "-n", "1", *SH, agent, cwd=repo.path, size=(24, 200)) as terminal:
        assert terminal.finish() == 0
    assert b"\\x1b[2J\\x07" in terminal.screen
    assert b"\x1b[2J" not in terminal.screen
    assert os.fsencode(agent) not in terminal.screen


def test_a_terminal_of_80_columns_wraps_no_line(repo: Repo) -> None:
    """Paths begin where the user stands, and a long command of an agent is cut."""
    deep = repo.path / "sub" / "deep"
    deep.mkdir(parents=True)
    agent = (*SH, "echo y > left; " + "true; " * 50)
    with Terminal(PROGRAM, "run", "-n", "1", "--ignore", "exclude", *agent, cwd=deep) as terminal:
        assert terminal.finish() == 0
    _, started, rest = terminal.words.partition("ralph-wrap: session started\n")
    lines = [started, *rest.splitlines()]
    assert [line for line in lines if len(line.rstrip("\n")) > 79] == []
    assert "  output     ../../.ralph/run/sessions/" in rest
    assert "…\n" in rest
