"""``--model`` and ``--agent-arg``: what a session adds to the command of its agent."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.agents import NAMES, known, with_agent
from ralph_wrap.config import Settings
from ralph_wrap.config.task_file import parse_tasks
from ralph_wrap.errors import UsageError
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo


def _command(name: str, **settings: Any) -> tuple[str, ...]:
    return with_agent(Settings(project=Path(), command=(), agent=name, prompt="x", **settings)).command


@pytest.mark.parametrize("name", NAMES)
def test_each_known_agent_has_an_option_for_it(name: str) -> None:
    """Its own one, after its other options; Amp has modes instead of models."""
    assert _command(name, model="big", agent_arg=("--x", "y z")) == (
        *known(name).command,
        "--mode" if name == "amp" else "--model",
        "big",
        "--x",
        "y z",
    )


def test_a_command_that_is_typed_has_its_own_words() -> None:
    """The error says how to write them."""
    settings = Settings(project=Path(), command=("./a.sh", "b c"), model="big", agent_arg=("--x",))
    with pytest.raises(UsageError, match="--model and --agent-arg: only for an agent") as error:
        with_agent(settings)
    assert error.value.hint == (
        "add the model by the command's own option: ralph-wrap run -- ./a.sh 'b c' --x"
    )


@pytest.fixture
def project(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a project whose agents print their arguments, and keep their promise."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    tools = repo.path.parent / "tools"
    tools.mkdir()
    for name in ("claude", "codex"):
        said = '{"type":"result","subtype":"success","is_error":false,"result":"<promise>COMPLETE</promise>"}'
        text = f'#!/bin/sh\ncat >/dev/null\necho "$*" >> "$RALPH_PROJECT/called"\necho \'{said}\'\n'
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return repo


def _called(repo: Repo) -> list[str]:
    return (repo.path / "called").read_text().splitlines()


def test_the_configuration_may_choose_it(project: Repo) -> None:
    """For its own agent: another one that is typed gets neither model nor arguments of it."""
    project.write(".ralph/config.toml", 'agent = "claude"\nmodel = "opus"\nagent_arg = ["--betas", "x"]\n')
    run(project.path, "-n", "1", "-p", "x")
    run(project.path, "-n", "1", "-p", "x", "--agent", "codex")
    run(project.path, "-n", "1", "-p", "x", "--agent", "codex", "--model", "gpt")
    run(project.path, "-n", "1", "-p", "x", "--", "true")
    first, second, third = _called(project)
    assert first.endswith(" --model opus --betas x")
    assert "opus" not in second
    assert "--betas" not in second
    assert third.endswith(" --model gpt")


def test_a_configured_agent_has_no_option_for_it(project: Repo) -> None:
    """What the error says to write is what the session then takes."""
    project.write(".ralph/config.toml", '[agents.mine]\ncommand = ["mine", "-q"]\n')
    result = run(project.path, "-a", "mine", "-p", "x", "--model", "big")
    assert result.status == 2
    [error] = result.narration
    assert error["message"] == "--model cannot be passed on: ralph-wrap does not know the option of mine"
    table, _, line = error["hint"].partition("write below ")[2].partition(" in .ralph/config.toml: ")
    assert tomllib.loads(f"{table}\n{line}") == {
        "agents": {"mine": {"command": ["mine", "-q", "--model", "big"]}}
    }


def test_resume_has_it_again_or_another_one(project: Repo) -> None:
    """And another agent none of it."""
    first = run(project.path, "-p", "x", "-a", "claude", "--model", "opus", "--agent-arg", "--verbose")
    for more in ((), ("--model", "haiku"), ("--agent", "codex")):
        command("resume", first.report["id"], *more, "-n", "1", cwd=project.path)
    ends = [line.rpartition("--dangerously-")[2] for line in _called(project)]
    assert [end.partition(" ")[2] for end in ends] == [
        "--model opus --verbose",
        "--model opus --verbose",
        "--model haiku --verbose",
        "",
    ]


def test_a_task_of_a_batch_may_name_its_own(project: Repo) -> None:
    """The others have that of the batch."""
    project.write("tasks", "- [ ] one\n- [ ] two\n  model: haiku\n\n  Small.\n")
    batch = command("batch", "tasks", "-a", "claude", "--model", "opus", cwd=project.path)
    assert batch.status == 0, batch.stderr
    assert [line.rpartition(" ")[2] for line in _called(project)] == ["opus", "haiku"]


def test_the_model_of_a_task_is_no_part_of_it() -> None:
    """Another model is no other task, in Markdown and in JSON."""
    markdown = [parse_tasks(text, "x")[0] for text in (b"- [ ] a\n  b\n", b"- [ ] a\n  model: m\n  b\n")]
    lines = [parse_tasks(text, "x")[0] for text in (b'{"title": "a", "detail": "b", "model": "m"}',)]
    assert {task.key for task in (*markdown, *lines)} == {markdown[0].key}
    assert [task.model for task in (*markdown, *lines)] == ["", "m", "m"]
    assert {task.text for task in (*markdown, *lines)} == {"a\n\nb"}
