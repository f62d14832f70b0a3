"""The commands that a session prints can be pasted where the user stands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.support.sessions import PROGRAM, command

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")

AGENT = ("-n", "1", "--", "sh", "-c", "echo x > new; git add new; git commit -qm new; echo y > left")


@pytest.fixture(autouse=True)
def _text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORMAT_VARIABLE)


def _commands(text: str) -> list[str]:
    """Return the commands of the rows *next* and *go on*."""
    return [line[13:] for line in text.splitlines() if line[13:].startswith(("ralph-wrap ", "git "))]


def _paste(line: str, cwd: Path) -> None:
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}", "PAGER": "cat"}
    done = subprocess.run(
        ("sh", "-c", line), cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"


def _session(cwd: Path, *options: str) -> list[str]:
    result = command("run", *options, *AGENT, cwd=cwd)
    assert result.status == 0, result.stderr
    return _commands(result.stderr)


def test_they_work_in_a_subdirectory(repo: Repo) -> None:
    """Where the session was started; none of them names the project."""
    deep = repo.path / "sub" / "deep"
    deep.mkdir(parents=True)
    *lines, again = _session(deep, "--ignore", "exclude")
    assert [line.split()[1] for line in lines] == ["diff", "merge", "apply"]
    assert "-C" not in " ".join([*lines, again])
    for line in lines:
        _paste(line, deep)
    assert again == f"ralph-wrap resume {lines[0].split()[-1]}"


@pytest.mark.usefixtures("repo")
def test_they_work_from_elsewhere(tmp_path: Path) -> None:
    """They name the project as the user has."""
    *lines, again = _session(tmp_path, "-C", "project", "--ignore", "exclude")
    for line in lines:
        _paste(line, tmp_path)
    assert again.startswith("ralph-wrap resume -C project ")


def test_an_error_has_commands_for_where_the_user_stands(repo: Repo, tmp_path: Path) -> None:
    """Of any command."""
    for cwd, words, hint in (
        (repo.path, (), "ralph-wrap review"),
        (tmp_path, ("-C", "project"), "ralph-wrap review -C project"),
    ):
        result = command("merge", *words, "abcd", cwd=cwd)
        assert f"hint: to list them: {hint}" in result.stderr


def test_each_command_of_a_hint_has_its_line(repo: Repo) -> None:
    """So that one of them can be pasted."""
    result = command("run", cwd=repo.path)
    assert result.stderr.splitlines()[-2:] == [
        "ralph-wrap: hint: ralph-wrap run --agent claude",
        "ralph-wrap: hint: ralph-wrap run -- COMMAND",
    ]


@pytest.mark.parametrize(
    "words", [("rm", "zz"), ("rm", "abcd"), ("logs", "abcd"), ("stop", "zz")], ids=" ".join
)
def test_a_wrong_id_names_the_list_of_all(repo: Repo, words: tuple[str, ...]) -> None:
    """Sessions that have ended are in it."""
    assert "to list them: ralph-wrap ps --all" in command(*words, cwd=repo.path).stderr


@pytest.mark.parametrize("named", [True, False])
def test_the_hint_to_exit_names_the_session_if_it_must(repo: Repo, *, named: bool) -> None:
    """A session that the environment names is known."""
    session = ("--session", "my own") if named else ()
    env = {} if named else {"RALPH_SESSION_ID": "my own"}
    assert command("worktree", "enter", "one", *session, cwd=repo.path, env=env).status == 0
    refused = command("worktree", "enter", "two", *session, cwd=repo.path, env=env)
    hint = json.loads(refused.stdout)["error"]["hint"]
    assert hint == "ralph-wrap worktree exit --action keep" + (" --session 'my own'" if named else "")
    assert command(*shlex.split(hint)[1:], cwd=repo.path, env=env).status == 0
