"""A command that is printed to be pasted runs nothing that an agent has put into the name of a branch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import TRUSTED
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.repo import Repo

TOUCH = "a$(touch${IFS}x)"  # no blank: git allows none in a name, but all of this
NAME = f"ralph/{TOUCH}"
WIP = f"{NAME}-wip"


@pytest.fixture
def named(repo: Repo) -> Repo:
    """Return a project with a branch of this name and saved work, both in conflict with main."""
    repo.git("branch", NAME)
    for branch in (NAME, WIP):
        repo.git("switch", "-q", *(("-c", WIP) if branch == WIP else (NAME,)))
        repo.write("file.txt", f"{branch}\n")
        repo.commit("theirs")
    repo.git("switch", "-q", "main")
    repo.write("file.txt", "ours\n")
    repo.commit("ours")
    return repo


def paste(lines: Sequence[str], tmp_path: Path) -> list[str]:
    """Run lines in a shell that knows ``touch`` alone, and return those that have run it."""
    place, programs = tmp_path / "paste", tmp_path / "programs"
    place.mkdir()
    programs.mkdir()
    (programs / "touch").symlink_to(str(shutil.which("touch")))
    ran = []
    for line in lines:
        subprocess.run(
            (str(shutil.which("sh")), "-c", line), cwd=place, env={"PATH": os.fspath(programs)}, check=False
        )
        if (place / "x").exists():
            ran.append(line)
            (place / "x").unlink()
    return ran


def hints(stderr: str, stdout: str = "") -> list[str]:
    """Return the lines of all hints that name the branch."""
    found = [json.loads(line) for line in stderr.splitlines() if line.startswith('{"at": ')]
    with_hint = [str(event["hint"]) for event in found if "hint" in event]
    if stdout.startswith("{"):
        with_hint += [str(row["hint"]) for row in _rows(json.loads(stdout)) if row.get("hint")]
    lines = [line for hint in with_hint for line in hint.split("\n")]
    return [line for line in lines if "touch" in line]


def _rows(answer: dict[str, object]) -> list[dict[str, object]]:
    data = answer.get("data", answer.get("error"))
    rows = data if isinstance(data, list) else [data]
    return [row for row in rows if isinstance(row, dict)]


AGAIN = ("git", "branch", NAME, "main")
ONLY_SAVED = ("git", "branch", "-q", "-D", NAME)
CASES: dict[str, list[Sequence[str]]] = {
    "merge with a conflict": [("merge", NAME)],
    "merge of saved work": [("merge", WIP)],
    "merge of saved work alone": [ONLY_SAVED, ("merge", WIP)],
    "drop of work": [("drop", NAME)],
    "drop of saved work": [("drop", WIP)],
    "drop of another one": [("drop", "--force", NAME), AGAIN, ("drop", "--force", NAME)],
    "restore beside another one": [("drop", "--force", NAME), AGAIN, ("restore", NAME)],
    "diff of an iteration": [("diff", NAME, "--iteration", "9")],
}


@pytest.mark.parametrize("case", CASES)
def test_no_hint_runs_what_stands_in_a_name(named: Repo, tmp_path: Path, case: str) -> None:
    """Each command that is refused has a hint with the name of the branch."""
    *before, last = CASES[case]
    for program, *words in before:
        if program == "git":
            named.git(*words)
        else:
            command(program, *words, cwd=named.path)
    ended = command(*last, cwd=named.path, env=TRUSTED)
    printed = hints(ended.stderr, ended.stdout.decode())
    assert printed, ended.stderr
    assert paste(printed, tmp_path) == []


def test_no_line_of_the_exit_report_runs_it(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """What to type next names the branch of a session."""
    ended = run(
        repo.path,
        *("-n", "1", "--branch", TOUCH, "--", script("git commit -q --allow-empty -m x; echo left > left")),
        env={"RALPH_WRAP_LOG_FORMAT": "text"},
    )
    rows = re.findall(r"^  (?:next|go on|remove|drop|) +((?:ralph-wrap|git) .*)$", ended.stderr, re.MULTILINE)
    assert [row for row in rows if "touch" in row], ended.stderr
    assert paste(rows, tmp_path) == []


def test_a_line_without_quotes_would_run_it(tmp_path: Path) -> None:
    """So the tests above can fail."""
    assert paste([f"to see it: git log {NAME}"], tmp_path) == [f"to see it: git log {NAME}"]
