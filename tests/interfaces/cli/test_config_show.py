"""``ralph-wrap config show``: each setting in force, and where it comes from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.config import Settings
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.repo import Repo


def _shown(repo: Repo, env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    result = command("config", "show", "--json", cwd=repo.path, env=dict(env or {}))
    assert result.status == 0, result.stderr
    return {setting.pop("name"): setting for setting in json.loads(result.stdout)["data"]}


def _from(setting: Mapping[str, Any]) -> tuple[Any, str, str | None]:
    return setting["value"], setting["source"], setting["place"]


def test_every_setting_is_shown(repo: Repo) -> None:
    """With its default, where nothing is configured."""
    shown = _shown(repo)
    assert [*shown] == [row.name for row in Settings.options if row.name != "agents"]
    assert shown.pop("log_format")["source"] == "environment"  # of all tests
    assert {setting["source"] for setting in shown.values()} == {"default"}
    assert shown["grace"] == {
        "group": "loop",
        "value": "5s",
        "source": "default",
        "place": None,
        "approved": None,
    }


def test_a_setting_names_its_file(repo: Repo) -> None:
    """The configuration file, which has one line for each key."""
    repo.write(".ralph/config.toml", 'grace = "2m"\ncopy = [\n "a",\n]\n')
    shown = _shown(repo)
    assert _from(shown["grace"]) == ("2m", "file", ".ralph/config.toml")
    assert _from(shown["copy"]) == (["a"], "file", ".ralph/config.toml")


@pytest.mark.parametrize("variable", ["RALPH_WRAP_KEEP_WORKTREE", "RALPH_KEEP_WORKTREES"])
def test_a_setting_names_its_variable(repo: Repo, variable: str) -> None:
    """The one that is set; it beats the file."""
    repo.write(".ralph/config.toml", "keep_worktree = false\n")
    assert _from(_shown(repo, {variable: "yes"})["keep_worktree"]) == (True, "environment", variable)


def test_a_setting_names_its_job(repo: Repo) -> None:
    """What stands in the job, and no other setting."""
    job = repo.write("job.json", '{"prompt": "x", "isolation": "none"}')
    shown = _shown(repo, {"RALPH_WRAP_JOB": str(job), "RALPH_WRAP_DELAY": "1"})
    assert _from(shown["isolation"]) == ("off", f"job {job}", None)
    assert _from(shown["delay"]) == ("1s", "environment", "RALPH_WRAP_DELAY")


def test_a_prompt_that_is_replaced_has_no_source(repo: Repo) -> None:
    """A text takes the place of the file that a weaker source names."""
    repo.write(".ralph/config.toml", 'prompt_file = "absent.md"\n')
    shown = _shown(repo, {"RALPH_WRAP_PROMPT": "x"})
    assert _from(shown["prompt"]) == ("x", "environment", "RALPH_WRAP_PROMPT")
    assert _from(shown["prompt_file"]) == (None, "default", None)


def test_a_command_that_is_not_approved_is_said_to_be_so(repo: Repo) -> None:
    """It is shown, and nothing runs it; the agents of the file are commands, too."""
    repo.write(".ralph/config.toml", 'setup = "touch ran"\n[agents.mine]\ncommand = ["x"]\n')
    shown = _shown(repo)
    unapproved = [name for name, setting in shown.items() if setting["approved"] is False]
    assert unapproved == ["setup", "agents.mine"]
    assert _from(shown["agents.mine"]) == ({"command": ["x"]}, "file", ".ralph/config.toml")
    lines = command("config", "show", cwd=repo.path).stdout.decode().splitlines()
    [cells] = [re.split(r"  +", line) for line in lines if line.startswith("setup ")]
    assert cells == ["setup", "touch ran", ".ralph/config.toml, not approved"]
    assert not (repo.path / "ran").exists()


def test_a_command_that_is_approved_is_said_to_be_so(repo: Repo) -> None:
    """By its user, or by a variable."""
    repo.write(".ralph/config.toml", 'setup = "true"\n')
    assert _shown(repo, {"RALPH_TRUST": "1"})["setup"]["approved"] is True
    assert command("trust", cwd=repo.path).status == 0
    assert _shown(repo)["setup"]["approved"] is True
    repo.write(".ralph/config.toml", 'setup = "false"\n')
    assert _shown(repo)["setup"]["approved"] is False


def test_a_wrong_value_is_an_error(repo: Repo) -> None:
    """As for a session."""
    path = repo.write(".ralph/config.toml", '\niteratons = 3\n[agents.mine]\nprompts = "file"\n')
    result = command("config", "show", "--json", cwd=repo.path)
    error = json.loads(result.stdout)["error"]
    assert (result.status, error["code"]) == (2, "usage")
    assert error["message"] == f'{path}: unknown key "iteratons"; did you mean "max_iterations"?'


def test_a_shown_value_does_nothing_to_a_terminal(repo: Repo) -> None:
    """A text of the project's can hold anything."""
    repo.write(".ralph/config.toml", 'until = "\\u001b[2J\\nmax_cost  9  default"\n')
    shown = command("config", "show", cwd=repo.path).stdout.decode()
    assert shown.replace("\n", "").isprintable()
    assert len(shown.splitlines()) == len(Settings.options)
