"""A project gets its first files, and the command that is printed runs a loop."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import jsonschema
import pytest

from ralph_wrap import config
from ralph_wrap.commands.quickstart import templates
from ralph_wrap.loop.promise import PromiseFinder
from tests.support.agent_script import PROMISE, result_line
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, Result, command, run
from tests.support.terminal import CTRL_C, Terminal
from tests.support.trees import on_disk

FILES = ["PROMPT.md", ".ralph/config.toml", ".ralph/config.schema.json"]
ASKED = "The agent for this project [claude]: "


@pytest.fixture
def agents(tmp_path: Path) -> dict[str, str]:
    """Return an environment where `claude` and `codex` are installed; `claude` keeps its promise at once."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "claude").write_text(f"#!/bin/sh\ncat >prompt\n{result_line('Done.' + chr(10) + PROMISE)}")
    (programs / "codex").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}"}


def quickstart(repo: Repo, *words: str, env: dict[str, str]) -> Result:
    """Run the command without a terminal."""
    return command("quickstart", *words, cwd=repo.path, env=env)


def _last_line(result: Result) -> list[str]:
    """Return the words of the command that is printed at the end."""
    return shlex.split(result.stdout.decode().rstrip().rpartition("\n")[2])


def test_the_printed_command_runs_a_loop(repo: Repo, agents: dict[str, str]) -> None:
    """With the template as prompt, whose first line becomes the title."""
    done = quickstart(repo, "--agent", "claude", "--yes", env=agents)
    assert done.stdout.decode().splitlines()[:3] == [f"wrote  {name}" for name in FILES]
    program, verb, *options = _last_line(done)
    assert (program, verb, options) == ("ralph-wrap", "run", [])
    session = run(repo.path, *options, env=agents)
    assert (session.status, session.report["ended_by"], session.report["agent"]) == (0, "promise", "claude")
    assert session.report["title"] == "Work through TODO.md"
    assert repo.show(f"{session.report['saved']}:prompt").decode() == templates.PROMPT


def test_quickstart_and_doctor_agree(repo: Repo, agents: dict[str, str]) -> None:
    """The same checks, with the same result."""
    done = quickstart(repo, "--agent", "claude", "--yes", env=agents)
    counted = command("doctor", cwd=repo.path, env=agents).stdout.decode().splitlines()[-1]
    assert f"ralph-wrap doctor: {counted}\n" in done.stdout.decode()


def test_no_file_is_changed(repo: Repo, agents: dict[str, str]) -> None:
    """Neither a file nor what a symlink leads to; the printed command names the agent instead."""
    repo.write("PROMPT.md", "mine\n")
    repo.write(".ralph/config.toml", "max_iterations = 3\n")
    (repo.path / FILES[2]).symlink_to("absent.json")
    before = on_disk(repo.path)
    done = quickstart(repo, "--agent", "codex", "--yes", env=agents)
    assert done.stdout.decode().splitlines()[:3] == [f"kept   {name}, which exists" for name in FILES]
    assert _last_line(done) == ["ralph-wrap", "run", "--agent", "codex"]
    assert on_disk(repo.path) == before


def test_the_directory_is_never_reached_through_a_symlink(repo: Repo, agents: dict[str, str]) -> None:
    """It may lead out of the project."""
    outside = repo.path.parent / "outside"
    outside.mkdir()
    (repo.path / ".ralph").symlink_to(outside)
    assert quickstart(repo, "--agent", "claude", "--yes", env=agents).status == 5
    assert [*outside.iterdir()] == []
    assert not (repo.path / "PROMPT.md").exists()


def test_the_template_ends_with_the_promise_on_its_own_line() -> None:
    """An agent that copies the line keeps its promise."""
    finder = PromiseFinder(config.ROWS["until"].default)
    line = next(line for line in templates.PROMPT.splitlines() if "promise" in line)
    finder.feed(f"All is done.\n{line}\n".encode())
    assert line == PROMISE
    assert finder.finish().kept


def test_each_example_of_the_configuration_is_valid(repo: Repo, agents: dict[str, str]) -> None:
    """With the comment signs removed, for the program and for an editor with the schema that is named."""
    quickstart(repo, "--agent", "claude", "--yes", env=agents)
    path = repo.path / FILES[1]
    text = path.read_text()
    named = re.findall(r"^#:schema (.*)$", text, re.MULTILINE)
    assert named == ["./config.schema.json"]
    used = re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)
    values = tomllib.loads(used)
    assert values == {
        "agent": "claude",
        **{key: value for part in templates.EXAMPLES.values() for key, value in part.items()},
    }
    jsonschema.validate(values, json.loads((path.parent / named[0]).read_text()))
    path.write_text(used)
    assert config.of_project(repo.path, {}).setup == values["setup"]


def test_a_check_that_fails_comes_before_the_loop(repo: Repo, agents: dict[str, str]) -> None:
    """Without a commit no session would be isolated; the files are written all the same."""
    empty = Repo(repo.path.parent / "empty")
    empty.path.mkdir()
    empty.git("init", "--quiet")
    done = quickstart(empty, "--agent", "claude", "--yes", env=agents)
    shown = done.stdout.decode()
    assert done.status == 1
    assert "FAIL  commit:" in shown
    order = ["fix: git add -A && git commit", "First correct", "  ralph-wrap run"]
    assert order == sorted(order, key=shown.index)
    assert (empty.path / "PROMPT.md").exists()


@pytest.mark.parametrize("words", [(), ("--yes",), ("--agent", "claude")], ids=" ".join)
def test_nothing_is_asked_without_a_terminal(repo: Repo, agents: dict[str, str], words: tuple[str]) -> None:
    """It needs both words, and the hint has them."""
    done = quickstart(repo, *words, env=agents)
    assert (done.status, done.stdout) == (2, b"")
    assert done.narration[0]["hint"] == "ralph-wrap quickstart --agent claude --yes"
    assert not (repo.path / "PROMPT.md").exists()


def test_yes_needs_the_name_of_the_agent(repo: Repo, agents: dict[str, str]) -> None:
    """Whether there is a terminal or not."""
    refused = quickstart(repo, "--yes", env=agents)
    assert (refused.status, "--yes asks nothing, so name the agent" in refused.stderr) == (2, True)
    with Terminal(PROGRAM, "quickstart", "--yes", cwd=repo.path, env=agents) as terminal:
        assert terminal.finish() == 2
        assert "--yes asks nothing, so name the agent" in terminal.words


def test_an_agent_cannot_choose_what_runs(repo: Repo, agents: dict[str, str]) -> None:
    """Inside a session it would approve its own configuration."""
    inside = {**agents, "RALPH_SESSION_ID": "20260101T000000Z-a3f2"}
    assert quickstart(repo, "--agent", "claude", "--yes", env=inside).status == 125
    assert not (repo.path / ".ralph/config.toml").exists()


def test_an_agent_that_is_not_installed_comes_with_its_command(repo: Repo, agents: dict[str, str]) -> None:
    """Before the loop; an unknown one is a mistake."""
    done = quickstart(repo, "--agent", "gemini", "--yes", env={"PATH": agents["PATH"].partition(":")[0]})
    assert " ".join(_last_line(done)).endswith("@google/gemini-cli && ralph-wrap run")
    assert quickstart(repo, "--agent", "hal", "--yes", env=agents).status == 2


def test_a_person_answers_twice_by_enter(repo: Repo, agents: dict[str, str]) -> None:
    """The first installed agent, and the files."""
    with Terminal(PROGRAM, "quickstart", cwd=repo.path, env=agents) as terminal:
        terminal.wait_for(ASKED)
        terminal.type(b"hal\n")
        terminal.wait_for(ASKED, 2)
        terminal.type(b"\n")
        terminal.wait_for(f"Write {', '.join(FILES)}? [Y/n] ")
        terminal.type(b"\n")
        terminal.wait_for("  ralph-wrap run")
        terminal.finish()
        assert "  codex  " in terminal.words
    assert tomllib.loads((repo.path / FILES[1]).read_text()) == {"agent": "claude"}


@pytest.mark.parametrize("typed", [b"n\n", CTRL_C])
def test_a_person_says_no(repo: Repo, agents: dict[str, str], typed: bytes) -> None:
    """Nothing is written."""
    with Terminal(PROGRAM, "quickstart", "-a", "codex", cwd=repo.path, env=agents) as terminal:
        terminal.wait_for("Write ")
        terminal.type(typed)
        assert terminal.finish() != 0
        assert "Traceback" not in terminal.words
    assert not (repo.path / "PROMPT.md").exists()
    assert not (repo.path / ".ralph").exists()
