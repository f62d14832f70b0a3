"""``ralph-wrap tell``: whom it reaches, and what it says of the others."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import command, run, start
from tests.support.told_agent import PROMPT, telling
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.told_agent import Told


@pytest.fixture
def told(repo: Repo, tmp_path: Path, ended: None) -> Iterator[Told]:
    """Return a session in its first iteration."""
    del ended
    with telling(repo, tmp_path / "agent", "-n", "2") as running:
        running.await_prompt(1)
        yield running


def test_json_is_the_envelope(told: Told) -> None:
    """With how many messages wait."""
    told.tell("One.")
    answer = json.loads(told.tell("--json", "Two.").stdout)
    row = {"id": told.id, "session": told.session.directory.name, "outcome": "told", "messages": 2}
    assert answer == {
        "version": 1,
        "success": True,
        "tool": "tell",
        "data": [{**row, "waits_until": None, "title": "Do the task."}],
    }


def test_standard_input(told: Told, tmp_path: Path) -> None:
    """All of it, as it is, without the end of its last line."""
    (tmp_path / "text").write_bytes(b"First\n\n\xff last\n")
    with (
        (tmp_path / "text").open("rb") as text,
        start("tell", told.id, "-", cwd=told.repo.path, stdin=text) as sent,
    ):
        assert sent.wait(CAP) == 0
    told.let_go(1)
    assert told.await_prompt(2) == f"First\n\n\udcff last\n\n{PROMPT}"
    told.let_go(2)


def test_several_sessions(told: Told, repo: Repo, tmp_path: Path) -> None:
    """Each once, by id, branch or title; one that does not exist keeps the others from nothing."""
    with telling(repo, tmp_path / "other", "-n", "1", "--name", "Second") as second:
        second.await_prompt(1)
        branch = f"ralph/{told.id}"
        result = command("tell", branch, "Second", told.id, "0000", "Both.", "--json", cwd=repo.path)
        answer = json.loads(result.stdout)
        assert (result.status, answer["error"]["code"]) == (4, "not_found")
        assert answer["error"]["hint"].endswith(f"ralph-wrap tell {branch} '0000 Both.'")
        assert [(row["id"], row["outcome"]) for row in answer["data"]] == [
            *((told.id, "told"), (second.id, "told"))
        ]
        second.let_go(1)


def test_one_that_has_ended_is_resumed(repo: Repo) -> None:
    """The error has the command that says the same."""
    ended = run(repo.path, "-n", "1", "--", "true")
    result = command("tell", ended.report["id"], "It's late.", cwd=repo.path)
    assert (result.status, result.stdout) == (5, f"{ended.report['session']}  ended\n".encode())
    [error] = result.narration
    assert error["message"] == f"session {ended.report['session']} has ended"
    assert error["hint"] == f"to go on with it: ralph-wrap resume {ended.report['id']} -m 'It'\"'\"'s late.'"


def test_one_that_has_kept_its_worktree_is_removed_first(repo: Repo) -> None:
    """As after each `spawn`; both commands of the error work."""
    ended = run(repo.path, "-n", "1", "--keep-worktree", "--", "true")
    [error] = command("tell", ended.report["id"], "Go on.", cwd=repo.path).narration
    remove, resume = (line.partition(": ralph-wrap ")[2] for line in error["hint"].split("\n"))
    assert resume == f"resume {ended.report['id']} -m 'Go on.'"
    assert [command(*shlex.split(line), cwd=repo.path).status for line in (remove, resume)] == [0, 0]


def test_one_that_was_killed_is_swept_first(told: Told) -> None:
    """Its process cannot read anything."""
    told_id = told.id
    told.session.send(signal.SIGKILL)
    told.session.finish()
    result = command("tell", told_id, "x" * 200, cwd=told.repo.path)
    assert (result.status, b"crashed" in result.stdout) == (5, True)
    [error] = result.narration
    assert error["hint"].split("\n") == [
        "to save its work: ralph-wrap sweep",
        f'then, to go on with it: ralph-wrap resume {told_id} -m "…"',
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a3f2",), "an id and a message must be given"),
        (("a3f2", " "), "the message is empty"),
        (("a3f2", "x" * 20_000), "the message has 20,000 bytes, and may have 16,384"),
        (("a3f2", "-"), "the message is empty"),
    ],
)
def test_what_is_no_message(repo: Repo, words: tuple[str, ...], message: str) -> None:
    """Is said before any session is looked for."""
    result = command("tell", *words, cwd=repo.path)
    assert result.status == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("a3f2", ['ralph-wrap tell a3f2 "Use the new database."']),
        (
            "It's late.",
            [
                "to list the sessions: ralph-wrap ps",
                "then, with one of their ids: ralph-wrap tell ID 'It'\"'\"'s late.'",
            ],
        ),
    ],
)
def test_one_word_alone(repo: Repo, word: str, hint: list[str]) -> None:
    """An id lacks a message, and a message an id."""
    [error] = command("tell", word, cwd=repo.path).narration
    assert error["hint"].split("\n") == hint


def test_a_directory_that_cannot_be_written(told: Told) -> None:
    """As with another user's session: an error with the reason, and nothing is told."""
    if not os.geteuid():
        (told.session.directory / "messages").write_text("in the way")
    else:
        told.session.directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        result = told.tell("x")
    finally:
        told.session.directory.chmod(stat.S_IRWXU)
    assert (result.status, b"failed" in result.stdout) == (125, True)
    [error] = result.narration
    assert "messages" in error["message"]
