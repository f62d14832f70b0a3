"""Values of options are completed in a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import agents
from ralph_wrap.config import ROWS
from ralph_wrap.config.table import TYPED
from tests.support.histories import record
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command

if TYPE_CHECKING:
    from ralph_wrap.config.table import Option

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
    assert _completed(repo, "run", "--agent", "cod") == ["codex"]


def test_options_are_completed(repo: Repo) -> None:
    """By their names."""
    assert _completed(repo, "run", "--on-") == ["--on-leak", "--on-dirty"]


def test_the_shell_that_asks_gets_its_script(repo: Repo) -> None:
    """The script asks the program for words."""
    line = f"{shlex.quote(os.fspath(PROGRAM))} --show-completion; exit $?"  # bash stays the parent
    script = subprocess.run(("bash", "-c", line), cwd=repo.path, capture_output=True, check=True).stdout
    assert b"_RALPH_WRAP_COMPLETE=complete_bash" in script


def test_the_script_is_installed_in_a_shell(repo: Repo, tmp_path: Path) -> None:
    """And completes ids there."""
    record(repo, "a3f2", repo.head)
    env = {**os.environ, "HOME": os.fspath(tmp_path)}
    line = f"{shlex.quote(os.fspath(PROGRAM))} --install-completion; exit $?"
    subprocess.run(("bash", "-c", line), cwd=repo.path, env=env, capture_output=True, check=True)
    ask = "COMP_WORDS=(ralph-wrap logs ''); COMP_CWORD=2; _ralph_wrap_completion ralph-wrap"
    ask += "; echo ${COMPREPLY[*]}"
    path = f"PATH={shlex.quote(os.fspath(Path(PROGRAM).parent))}:$PATH"
    done = subprocess.run(
        ("bash", "-c", f"{path}; . ~/.bashrc; complete -p ralph-wrap; {ask}"),
        cwd=repo.path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    function = done.stdout.splitlines()[0].split()[-2]
    assert (function, done.stdout.splitlines()[1:]) == ("_ralph_wrap_completion", ["a3f2"]), done.stderr


# Ids and titles


def _offered(repo: Repo, shell: str, line: str) -> str:
    """Return what zsh or fish gets for the end of a line."""
    env = {
        "_RALPH_WRAP_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return command(cwd=repo.path, env=env).stdout.decode()


def _with_sessions(repo: Repo) -> None:
    """Leave two finished sessions with branches."""
    for agent_id, title in (("a3f2", "Fix the login page"), ("09be", "Logout")):
        repo.git("branch", f"ralph/{agent_id}")
        record(repo, agent_id, repo.head, title=title)


@pytest.mark.parametrize(
    "words", [("logs",), ("diff",), ("merge",), ("drop",), ("apply",), ("rm",), ("resume",)]
)
def test_ids_and_titles_are_completed(repo: Repo, words: tuple[str, ...]) -> None:
    """An id by itself, a title from its first letter on, quoted for bash."""
    _with_sessions(repo)
    assert sorted(_completed(repo, *words, "")) == ["09be", "a3f2"]
    assert _completed(repo, *words, "a") == ["a3f2"]
    assert " ".join(_completed(repo, *words, "Fix")) == r"Fix\ the\ login\ page"
    assert _completed(repo, *words, r"Fix\ th") == _completed(repo, *words, "Fix")


def test_each_option_with_an_id_is_completed(repo: Repo) -> None:
    """And the second branch of a difference."""
    _with_sessions(repo)
    assert _completed(repo, "review", "--pr", "a") == ["a3f2"]
    assert _completed(repo, "diff", "a3f2", "0") == ["09be"]
    assert _completed(repo, "stop", "") == []


def test_a_title_that_looks_like_an_option_is_not_completed(repo: Repo) -> None:
    """The program would take it for one."""
    record(repo, "a3f2", repo.head, title="--all of it")
    assert not any("of" in word for word in _completed(repo, "logs", "--a"))


def test_dropped_branches_are_completed(repo: Repo) -> None:
    """Only these can be restored."""
    _with_sessions(repo)
    command("drop", "a3f2", cwd=repo.path)
    assert _completed(repo, "restore", "") == ["a3f2"]


def test_another_project_is_completed(repo: Repo, tmp_path: Path) -> None:
    """The one that was typed before."""
    _with_sessions(repo)
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Repo(tmp_path / "elsewhere")
    assert _completed(elsewhere, "diff", "") == []
    assert sorted(_completed(elsewhere, "diff", "-C", os.fspath(repo.path), "")) == ["09be", "a3f2"]


def test_zsh_and_fish_explain_an_id_by_its_title(repo: Repo) -> None:
    """They quote a title themselves."""
    _with_sessions(repo)
    assert _offered(repo, "fish", "ralph-wrap logs a") == "a3f2\tFix the login page\n"
    assert _offered(repo, "fish", "ralph-wrap logs Fix") == "Fix the login page\ta3f2\n"
    assert '"a3f2":"Fix the login page"' in _offered(repo, "zsh", "ralph-wrap logs a")
    assert '"Fix the login page":"a3f2"' in _offered(repo, "zsh", "ralph-wrap logs Fix")


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
@pytest.mark.parametrize(
    "bad", [r"\$(touch x)", "`touch x`", "a'b\"", "[bold]x", "*", "a;b|c&d", "x\x1b[2J\n"]
)
def test_a_shell_gets_nothing_to_evaluate(repo: Repo, shell: str, bad: str) -> None:
    """An agent can write titles, and zsh evaluates the words that it gets."""
    record(repo, "a3f2", repo.head, title=f"evil {bad}")
    shown = "".join(_offered(repo, shell, f"ralph-wrap logs {typed}") for typed in ("a", "evil"))
    if shell == "bash":
        shown = " ".join((*_completed(repo, "logs", "a"), *_completed(repo, "logs", "evil")))
    else:
        assert "evil" in shown
    shown = shown.replace("_arguments '*: :((", "").replace("))'", "")
    assert not {*shown} & {*"\\$`;|&*[\x1b'"}, shown
