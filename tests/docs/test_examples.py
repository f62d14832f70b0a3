"""The examples of the pages run as they stand, with a scripted agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.documents import ALL, Block
from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM, command, run
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

PROGRAMS = Path(__file__).parent / "programs"

FIRST = "runs: the first session"
AFTER = "runs: after a session"
MARKED = [block for block in ALL if block.mark in {"runs", AFTER}]

TASKS = "- [ ] Check the password\n- [ ] Add a link to the help\n"
MAKEFILE = "test:\n\ttest -f TODO.md\n"
IGNORED = ".env\n.venv/\nnode_modules/\ntarget/\n"
PATIENCE = 3 * CAP
"""Seconds for an example: it starts several sessions, one after the other."""

LANGUAGES = {"sh", "console", "toml", "json", "python", "yaml", "dockerfile", "text", ""}

SESSIONS = {
    "Three tasks at once": 3,
    "A reviewer beside a builder": 3,
    "A batch of tasks": 2,
}
"""Headings whose block starts more than one session."""

CALLED = {
    "A Node project": ["npm ci"],
    "A Python project": ["uv sync"],
    "A Rust project": ["cargo fetch"],
}
"""Headings whose block has the scripted tools called in the worktree."""

SAID = {
    "Fix CI": "FAILED tests/test_login.py::test_password",
    "A GitHub issue": "The login fails\nWith an empty password.",
    "Going on: `resume`": "The login page must also work without JavaScript.",
    "A reviewer beside a builder": "A reviewer has left findings: git show ralph/",
    "Cron": "Update one dependency",
}
"""Headings whose block has this said to an agent."""

LANDED = {"Test-driven", "Afterwards"}
"""Headings whose block lands a branch on main."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a project with two open tasks, where the agents and tools of the pages are scripted."""
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{Path(PROGRAM).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("RALPH_WRAP_LOG_FORMAT")
    monkeypatch.setenv("SCRIPTED_PROMPTS", os.fspath(tmp_path / "prompts"))
    repo = make_repo(tmp_path / "app")
    for name, content in (("TODO.md", TASKS), ("Makefile", MAKEFILE), (".gitignore", IGNORED)):
        repo.write(name, content)
    repo.commit("tasks")
    repo.write("PROMPT.md", "Do the first open task of TODO.md.\n")
    assert command("trust", cwd=repo.path).status == 0
    return repo


def _paste(project: Repo, text: str) -> subprocess.CompletedProcess[str]:
    """Run a text in a shell that ends at the first error."""
    words = ("bash", "-euo", "pipefail", "-c", text)
    return subprocess.run(
        words,
        cwd=project.path,
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


def _ended(project: Repo) -> list[dict[str, Any]]:
    """Wait until no session runs, and return them all."""

    def sessions() -> list[dict[str, Any]]:
        found = json.loads(command("ps", "--all", "--json", cwd=project.path).stdout)["data"]
        return found if all(entry["verdict"] == "finished" for entry in found) else []

    return eventually(sessions, "each session is finished", cap=PATIENCE)


def _heading(block: Block) -> str:
    """Return the heading above a block."""
    above = (Path(__file__).parent.parent.parent / block.page).read_text().split(block.text, 1)[0]
    return str(re.findall(r"^#+ (.*)$", above, re.MULTILINE)[-1])


def test_each_block_is_run_or_says_why_not() -> None:
    """A block for the shell has a mark; a mark is one of those that the tests know."""
    shell = [
        block for block in ALL if block.language == "sh" and not block.page.startswith("docs/development")
    ]
    known = {"runs", AFTER, FIRST}
    unmarked = [block.name for block in shell if block.mark not in known and "not run: " not in block.mark]
    assert unmarked == [], "write <!-- runs --> or <!-- not run: the reason --> in the line above the block"
    assert {block.language for block in ALL} <= LANGUAGES
    assert len(MARKED) > 12


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("block", MARKED, ids=lambda block: block.name)
def test_an_example_runs(project: Repo, tmp_path: Path, block: Block) -> None:
    """It ends with 0, its sessions end as their agents wanted, and what the page promises is there."""
    heading, text, expected = _heading(block), block.text, 0
    if block.mark == AFTER:
        run(project.path, "--agent", "claude", "-n", "1")
        [session] = _ended(project)
        text, expected = text.replace("a3f2", session["id"]), 1
    done = _paste(project, text)
    assert done.returncode == 0, done.stdout + done.stderr
    if re.search(r"ralph-wrap (?:run|spawn|resume|batch)", text):
        expected += SESSIONS.get(heading, 1)
    sessions = _ended(project) if expected else []
    assert len(sessions) == expected
    assert {entry["ended_by"] for entry in sessions} <= {"promise", "max-iterations"}, sessions
    if block.page == "docs/recipes.md" and block.mark != AFTER:
        assert "promise" in {entry["ended_by"] for entry in sessions}, sessions
    called = project.path / ".git/called"
    assert (called.read_text().splitlines() if called.exists() else []) == CALLED.get(heading, [])
    if heading in SAID:
        assert SAID[heading] in (tmp_path / "prompts").read_text()
    assert ("Check the password" in project.git("log", "main")) is (heading in LANDED)


# The example of the README


def _plain(text: str, project: Repo) -> str:
    """Return an output without what differs from run to run: ids, times, and the directory of the project."""
    text = text.replace(os.fspath(project.path), "/home/me/src/app")
    text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{4}", "SESSION", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "COMMIT", text)
    text = re.sub(r"(ralph/|diff |merge )[0-9a-f]{4}\b", r"\1ID", text)
    return re.sub(r"· (?:\d+m)?\d+s ·", "· TIME ·", text)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ended")
def test_the_first_session_prints_what_the_readme_shows(project: Repo) -> None:
    """Each command of the example, in order, and its output."""
    example = [block for block in ALL if block.page == "README.md" and block.mark == FIRST]
    assert [block.language for block in example] == ["sh", "console", "console"]
    agent_id = ""
    for block in example:
        if block.language == "sh":
            assert _paste(project, block.text).returncode == 0
            continue
        typed, _, shown = block.text.removeprefix("$ ").partition("\n")
        done = _paste(project, f"{typed.replace('ce6a', agent_id)} 2>&1")
        assert _plain(done.stdout, project) == _plain(shown, project)
        agent_id = json.loads(command("ps", "--all", "--json", cwd=project.path).stdout)["data"][0]["id"]
