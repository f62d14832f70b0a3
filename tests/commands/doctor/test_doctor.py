"""``ralph-wrap doctor`` as a whole, and what it says of agents and Python."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

import pytest

from ralph_wrap.agents import NAMES, installed, known
from ralph_wrap.agents.login import known_places
from ralph_wrap.commands.doctor import Diagnosis, examine
from tests.commands.doctor.world import World, checked, failing, verdict_of, with_environ
from tests.support.directory_listing import listing
from tests.support.git_shim import path_without_git
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import Terminal

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

IN_THE_REPOSITORY = [
    *(
        "git",
        "repository",
        "commit",
        "owner",
        "home",
        "private files",
        ".ralph",
        "configuration",
        "trust",
        "repository files",
        "branch names",
        "refs",
        "packs",
        "worktrees",
    ),
    *("ignore rule", "committer", "filters", "disk", "kept"),
]

OF_THE_MACHINE = ["subreaper", "bubblewrap", "Landlock", "mounts", "PID 1", "stop time-out"]

AGENTS = [
    *(f"{what} {name}" for name in installed(os.environ) for what in ("agent", "login")),
    "other agents",
]


# The whole


def test_all_is_well(repo: Repo, host: Path) -> None:
    """On a host, in a repository with a commit: every check is there, and none fails."""
    found = examine(repo.path, os.environ, host)
    assert [check.check for check in found.checks] == [
        *IN_THE_REPOSITORY,
        *("locks", "repository lock"),
        *OF_THE_MACHINE,
        *AGENTS,
        "python",
    ]
    assert (failing(found), found.problem) == ([], None)


def test_all_checks_say_why(repo: Repo, host: Path) -> None:
    """And what has failed says what mends it, in one line each."""
    repo.git("branch", "ralph")
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["branch names"]
    assert all(check.why and (check.ok or check.fix) for check in found.checks)
    assert "\n" not in "".join(text for check in found.checks for text in (check.why, check.found, check.fix))


def test_what_fails_is_the_problem(repo: Repo, box: World) -> None:
    """By name, with the status of what ralph-wrap itself cannot do."""
    repo.git("branch", "ralph")
    problem = examine(repo.path, os.environ, box.root).problem
    assert problem is not None
    number = len(IN_THE_REPOSITORY) + 2 + len(OF_THE_MACHINE) + len(AGENTS) + 1
    assert (problem.message, problem.exit_code) == (
        f"2 of {number} checks failed: branch names, PID 1",
        1,
    )


def test_nothing_is_changed(repo: Repo, tmp_path: Path) -> None:
    """Neither in the project, whether sessions were there or not, nor in HOME, nor among temporary files."""
    for made in (".git/worktrees", ".ralph/run/agents"):
        before = [listing(directory) for directory in (repo.path, tmp_path / "home")]
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        assert command("doctor", cwd=repo.path, env={"TMPDIR": str(temporary)}).stderr == ""
        assert [listing(directory) for directory in (repo.path, tmp_path / "home")] == before
        temporary.rmdir()
        (repo.path / made).mkdir(parents=True)


def test_the_answer_is_one_line_for_each_check(repo: Repo) -> None:
    """A failing one has its reason and its cure below; nothing in it moves the cursor."""
    repo.git("branch", "ralph")
    repo.write(".ralph/config.toml", '"a\\u001b[2J" = 1')
    result = command("doctor", cwd=repo.path)
    *lines, _ = result.stdout.decode().splitlines()
    assert (result.status, result.stderr) == (1, "")
    position = lines.index("FAIL  branch names: branch ralph is in the way of ralph/<id>")
    assert lines[position + 1 : position + 3] == [
        "      why: a session creates its branch ralph/<id> and registers its worktree",
        "      fix: git branch -m ralph ANOTHER-NAME",
    ]
    assert {line[:6] for line in lines} <= {"ok    ", "FAIL  ", "note  ", "      "}
    assert len([line for line in lines if line[0] != " "]) == len(lines) - 2 * sum(
        line.startswith("FAIL") for line in lines
    )
    assert "\x1b" not in result.stdout.decode()


def test_problems_come_first_and_are_counted(repo: Repo) -> None:
    """Then the notes, and what is fine."""
    repo.git("branch", "ralph")
    *lines, count = command("doctor", cwd=repo.path).stdout.decode().splitlines()
    words = [line[:4].strip() for line in lines if line[0] != " "]
    assert words == sorted(words, key=["FAIL", "note", "ok"].index)
    numbers = {word: words.count(word) for word in ("FAIL", "note", "ok")}
    assert re.sub("s?,", ",", count) == (
        f"{numbers['FAIL']} problem, {numbers['note']} note, {numbers['ok']} fine"
    )


@pytest.mark.parametrize(("variable", "coloured"), [("", True), ("1", False)])
def test_a_terminal_shows_the_verdicts_in_colour(repo: Repo, variable: str, *, coloured: bool) -> None:
    """Unless NO_COLOR is set."""
    repo.git("branch", "ralph")
    with Terminal(PROGRAM, "doctor", cwd=repo.path, env={"NO_COLOR": variable}) as terminal:
        assert terminal.finish() == 1
    assert (b"\x1b[31mFAIL\x1b[0m  branch names" in terminal.screen) is coloured
    assert (b"\x1b" in terminal.screen) is coloured


def test_json_is_the_envelope(repo: Repo) -> None:
    """With the checks, and, if one failed, the error that belongs to the exit status."""
    repo.git("branch", "ralph")
    result = command("doctor", "--json", cwd=repo.path)
    envelope = json.loads(result.stdout)
    data, error = envelope.pop("data"), envelope.pop("error")
    assert envelope == {"version": 1, "success": False, "tool": "doctor"}
    assert (error["code"], result.status, result.stderr) == ("problems", 1, "")
    assert all(row.keys() == {"check", "ok", "found", "why", "fix"} for row in data)
    [row] = [row for row in data if row["check"] == "branch names"]
    assert row == {
        "check": "branch names",
        "ok": False,
        "found": "branch ralph is in the way of ralph/<id>",
        "why": "a session creates its branch ralph/<id> and registers its worktree",
        "fix": "git branch -m ralph ANOTHER-NAME",
    }


def test_a_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """There is nothing to look at."""
    result = command("doctor", "-C", tmp_path / "absent", cwd=tmp_path)
    assert (result.status, result.stdout) == (2, b"")


# Agents and Python


_OF_AGENTS = ("agent ", "login ", "other agents")


def _agents(found: Diagnosis) -> dict[str, tuple[str, str]]:
    return {
        check.check: (check.verdict, check.found)
        for check in found.checks
        if check.check.startswith(_OF_AGENTS)
    }


@pytest.mark.parametrize("name", NAMES)
def test_agents_that_nobody_chose_are_one_line(repo: Repo, host: Path, tmp_path: Path, name: str) -> None:
    """An installed agent has a line of its own, and the others are no note."""
    program = tmp_path / "bin" / name
    path = path_without_git(tmp_path / "bin")
    assert _agents(examine(repo.path, with_environ(PATH=path), host)) == {
        "other agents": ("note", f"none is installed: {', '.join(NAMES)}")
    }
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    others = ", ".join(other for other in NAMES if other != name)
    assert _agents(examine(repo.path, with_environ(PATH=path), host)) == {
        f"agent {name}": ("ok", str(program)),
        f"login {name}": ("note", f"none is found: {known_places(known(name), os.environ)}"),
        "other agents": ("ok", f"not installed: {others}"),
    }


def test_the_agent_of_the_project_is_named_if_it_is_missing(repo: Repo, host: Path, tmp_path: Path) -> None:
    """With the command that installs it; the others are one line."""
    repo.write(".ralph/config.toml", 'agent = "codex"\n')
    found = examine(repo.path, with_environ(PATH=path_without_git(tmp_path / "bin")), host)
    assert verdict_of(found, "agent codex") == ("note", "not installed")
    assert checked(found, "agent codex").fix == known("codex").install
    assert verdict_of(found, "other agents")[0] == "ok"


def test_a_fallback_that_is_missing_is_named(repo: Repo, host: Path, tmp_path: Path) -> None:
    """Each of them, as the agent of the project."""
    repo.write(".ralph/config.toml", 'agent = "codex"\nfallback = ["claude", "gemini"]\n')
    found = examine(repo.path, with_environ(PATH=path_without_git(tmp_path / "bin")), host)
    for name in ("codex", "claude", "gemini"):
        assert verdict_of(found, f"agent {name}") == ("note", "not installed")


def test_the_version_of_python_is_shown(repo: Repo, host: Path) -> None:
    """A person who reads the answer on another machine needs it."""
    assert verdict_of(examine(repo.path, os.environ, host), "python") == ("ok", platform.python_version())
