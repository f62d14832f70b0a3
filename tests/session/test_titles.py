"""The title of a session: its name, else the first line of its prompt."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.config import Settings
from ralph_wrap.session.preflight import title_of
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
LONG = "many words " * 40


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("fix the login\nand more", "fix the login"),
        ("\n\n  # Fix the login #\n\ntext", "Fix the login"),
        ("###### Fix issue # 5\n", "Fix issue # 5"),
        ("#login is broken", "#login is broken"),
        ("#\n---\n***\n```\nthen words", "then words"),
        ("\ufeff# Café\tbar\r\nmore", "Café bar"),
        ("\x1b]0;owned\x07\x1b[2Jred\u202e", "]0;owned [2Jred"),
        ("\udcff\udcfe bytes", "bytes"),
        ("", ""),
        ("--- ***", ""),
        (LONG, LONG[:200]),
    ],
)
def test_a_prompt_gives_the_title(tmp_path: Path, prompt: str, title: str) -> None:
    """Its first line with a letter, without the marks of a heading and without control characters."""
    assert title_of(Settings(project=tmp_path, command=(), prompt=prompt)) == title
    path = tmp_path / "prompt.md"
    path.write_bytes(prompt.encode("utf-8", "surrogateescape"))
    assert title_of(Settings(project=tmp_path, command=(), prompt_file=path)) == title


def test_a_name_wins_over_the_prompt(tmp_path: Path) -> None:
    """It is cleaned like a prompt; an empty one is no name."""
    settings = Settings(project=tmp_path, command=(), prompt="the prompt", name=" Login \x1b[2J\n page ")
    assert title_of(settings) == "Login [2J page"
    assert title_of(settings._replace(name=" \n")) == "the prompt"


@pytest.mark.parametrize("kind", ["pipe", "missing", "directory"])
def test_only_a_regular_file_is_read_for_a_title(tmp_path: Path, kind: str) -> None:
    """The agent needs what is in a pipe, and the first iteration reports what is missing."""
    path = tmp_path / "prompt.md"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "directory":
        path.mkdir()
    assert title_of(Settings(project=tmp_path, command=(), prompt_file=path)) == ""


def _data(*words: str, repo: Repo) -> list[dict[str, Any]]:
    answered = command(*words, "--json", cwd=repo.path)
    assert answered.status == 0, answered.stderr
    rows: list[dict[str, Any]] = json.loads(answered.stdout)["data"]
    return rows


def test_the_title_is_in_every_answer_about_a_session(repo: Repo) -> None:
    """In the list of sessions, in its review, after a stop and a removal, in the report and in the events."""
    options = ("-n", "1", "--keep-worktree", "--name", "Login page")
    result = run(repo.path, *options, *SH, "git commit -q --allow-empty -m 'Add a form'")
    agent_id = result.report["id"]
    assert result.report["title"] == "Login page"
    assert [row["title"] for row in _data("ps", "--all", repo=repo)] == ["Login page"]
    [row] = _data("review", repo=repo)
    assert (row["title"], row["subject"]) == ("Login page", "Add a form")
    for words in (("stop", agent_id), ("rm", agent_id), ("merge", agent_id), ("drop", agent_id)):
        assert [row["title"] for row in _data(*words, repo=repo)] == ["Login page"]
    [started] = [event for event in result.events if event["event"] == "session.started"]
    assert started["title"] == "Login page"


def test_the_title_of_a_killed_session_is_in_the_sweep_and_its_report(repo: Repo) -> None:
    """The record has it from the beginning."""
    with Session(repo.path, "-p", "# Login page", *SH, "sleep 60") as session:
        session.wait_for("agent.started")
        session.process.kill()
        session.process.wait()
        [row] = _data("sweep", repo=repo)
        assert row["title"] == "Login page"
        assert json.loads((session.directory / "report.json").read_text())["title"] == "Login page"


def test_saved_work_that_is_applied_has_the_title(repo: Repo) -> None:
    """In the answer of apply."""
    result = run(repo.path, "-n", "1", "--name", "Login page", *SH, "echo new > new")
    answer = json.loads(command("apply", result.report["id"], "--json", cwd=repo.path).stdout)
    assert answer["data"]["title"] == "Login page"


def test_a_terminal_shows_the_title_first_and_last(repo: Repo) -> None:
    """In the banner, in the exit report, and as the title of the window while the session runs."""
    title = f"Login \x1b[31m page {LONG}"
    with Terminal(PROGRAM, "run", "-n", "1", "--name", title, *SH, "echo works", cwd=repo.path) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    shown = f"  title      Login [31m page {LONG}"[:72] + "…"
    assert lines[lines.index("ralph-wrap: session started") + 1] == shown
    ended = next(number for number, line in enumerate(lines) if line.startswith("ralph-wrap: session ended"))
    assert lines[ended + 1] == shown
    named = terminal.screen.index(b"\x1b]2;Login [31m page many words")
    assert named < terminal.screen.rindex(b"works") < terminal.screen.index(b"\x1b]2;\x07")


def test_a_session_without_a_title_names_the_window_by_its_agent(repo: Repo) -> None:
    """And shows no empty row."""
    with Terminal(PROGRAM, "run", "-n", "1", *SH, "echo works", cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert b"\x1b]2;sh -c 'echo works'\x07" in terminal.screen
    assert "  title  " not in terminal.words


def test_a_dumb_terminal_gets_no_title(repo: Repo) -> None:
    """It would print the sequence."""
    line = (PROGRAM, "run", "-n", "1", "--name", "Login page", *SH, "echo works")
    with Terminal(*line, cwd=repo.path, env={"TERM": "dumb"}) as terminal:
        assert terminal.finish() == 0
    assert b"\x1b]" not in terminal.screen
