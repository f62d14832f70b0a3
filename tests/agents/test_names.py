"""The agents that are known by name: one table, and what is said of them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

import ralph_wrap.agents
from ralph_wrap.agents import NAMES, known
from ralph_wrap.agents.output import FORMATS
from ralph_wrap.config.agent_tables import OUTPUTS
from tests.agents.programs import PROGRAMS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "agents.md"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "qwen": "@qwen-code/qwen-code",
    "kimi": "@moonshot-ai/kimi-code",
    "droid": "droid",
}


def test_each_module_has_a_name() -> None:
    """And each name a module; so has each format."""
    package = Path(ralph_wrap.agents.__file__).parent
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "definition", "login"}
    assert {name.replace("-", "_") for name in NAMES} == modules
    assert [known(name).name for name in NAMES] == list(NAMES)
    assert ("text", *FORMATS) == OUTPUTS
    for name in FORMATS:
        assert known(name).output == import_module(f"ralph_wrap.agents.output.{name}").__name__.split(".")[-1]


def test_the_page_has_each_agent_with_its_command() -> None:
    """In the order of the table, and with the version that the tests run, or its documentation."""
    lines = PAGE.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `") and line.count("|") == 4 and "how" not in line]
    versions = json.loads((ROOT / "tests/agents/package.json").read_text())["dependencies"]
    begun = {}
    for row in rows[: len(NAMES)]:
        name, command, source = (cell.strip() for cell in row.strip("|").split("|"))
        begun[name.strip("`")] = command.strip("`"), source
    assert list(begun) == list(NAMES)
    for name, (command, source) in begun.items():
        assert command == " ".join(known(name).command)
        if name in PACKAGES:
            assert source.startswith("run here with the real program: ")
            assert source.endswith(f" {versions[PACKAGES[name]]}")
        else:
            assert source.startswith("from its documentation")


def test_the_tests_run_each_agent_with_a_format() -> None:
    """What is read from a stream was seen in a real one."""
    assert {name for name in NAMES if known(name).output != "text"} == {*PROGRAMS} == {*PACKAGES}


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_whole(name: str) -> None:
    """It says how to install it, how it takes the prompt, and what logs its user in."""
    agent = known(name)
    placeholders = {"argument": "{prompt}", "file": "{prompt_file}"}
    assert agent.install
    assert agent.login.command
    assert agent.model
    shown = [word for word in agent.command if word in placeholders.values()]
    assert shown == ([placeholders[agent.prompt]] if agent.prompt in placeholders else [])
