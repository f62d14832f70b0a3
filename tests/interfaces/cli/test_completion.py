"""Values of options are completed in a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import agents
from ralph_wrap.config import ROWS
from ralph_wrap.config.table import TYPED
from tests.support.sessions import PROGRAM, command

if TYPE_CHECKING:
    from ralph_wrap.config.table import Option
    from tests.support.repo import Repo

CHOICES = [row for row in ROWS.values() if TYPED in row.sources and row.kind.choices and not row.is_switch]


def _completed(repo: Repo, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    env = {
        "_RALPH_WRAP_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("ralph-wrap", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return command(cwd=repo.path, env=env).stdout.decode().split()


@pytest.mark.parametrize("option", CHOICES, ids=lambda row: row.name)
def test_the_words_of_a_choice_are_completed(repo: Repo, option: Option) -> None:
    """All of them, or those that begin as what was typed."""
    assert _completed(repo, "run", option.word, "") == [*option.kind.choices]
    last = option.kind.choices[-1]
    assert _completed(repo, "spawn", option.word, last) == [last]


def test_agents_are_completed(repo: Repo) -> None:
    """Those that are known, and those of the configuration."""
    repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["x"]\n')
    assert _completed(repo, "run", "--agent", "") == sorted([*agents.NAMES, "mine"])
    assert _completed(repo, "run", "-a", "m") == ["mine"]


def test_known_agents_are_completed_whatever_the_configuration_is(repo: Repo) -> None:
    """A mistake in it is not for a shell that waits for words."""
    repo.write(".ralph/config.toml", "nonsense")
    assert _completed(repo, "run", "--agent", "co") == ["codex"]


def test_options_are_completed(repo: Repo) -> None:
    """By their names."""
    assert _completed(repo, "run", "--on-") == ["--on-leak", "--on-dirty"]


def test_the_shell_that_asks_gets_its_script(repo: Repo) -> None:
    """The script asks the program for words."""
    line = f"{shlex.quote(os.fspath(PROGRAM))} --show-completion; exit $?"  # bash stays the parent
    script = subprocess.run(("bash", "-c", line), cwd=repo.path, capture_output=True, check=True).stdout
    assert b"_RALPH_WRAP_COMPLETE=complete_bash" in script
