"""What an agent finds: its directory, its environment, its hooks, itself inside another session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import PROGRAM, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

SH = ("--", "sh", "-c")


def _printed_environment(output: bytes) -> dict[str, str]:
    rows = (row.partition("=") for row in output.decode().split("\0") if row)
    return {name: value for name, _, value in rows}


@pytest.mark.parametrize("isolation", ["prefer", "off"])
def test_the_agent_knows_where_it_is(repo: Repo, isolation: str) -> None:
    """Seven variables, of which one changes; RALPH_BRANCH is empty where there is none."""
    result = run(repo.path, "-n", "2", "--isolation", isolation, *SH, "env -0; printf '\\0'")
    report = result.report
    first, second, rest = map(_printed_environment, result.stdout.split(b"\0\0"))
    assert (first | {"RALPH_ITERATION": "2"}, rest) == (second, {})
    assert {
        name: value for name, value in second.items() if name.startswith("RALPH_") and name not in os.environ
    } == {
        "RALPH_AGENT_ID": report["id"],
        "RALPH_SESSION_ID": report["session"],
        "RALPH_BRANCH": report["branch"] or "",
        "RALPH_WORKSPACE": report["workspace"],
        "RALPH_PROJECT": os.fspath(repo.path),
        "RALPH_PORT": second["RALPH_PORT"],
        "RALPH_ITERATION": "2",
    }
    assert second["PWD"] == report["workspace"]


def test_variables_that_point_git_elsewhere_are_gone(repo: Repo, tmp_path: Path) -> None:
    """For the agent as for us; the identity for commits stays."""
    elsewhere = {
        name: os.fspath(tmp_path / "elsewhere")
        for name in (
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_COMMON_DIR",
            "GIT_OBJECT_DIRECTORY",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "GIT_PREFIX",
            "GIT_SHALLOW_FILE",
            "GIT_CONFIG",
            "GIT_CONFIG_PARAMETERS",
        )
    }
    agent = "env -0; git commit -q --allow-empty -m mine"
    result = run(repo.path, "-n", "1", *SH, agent, env=elsewhere)
    assert (result.status, result.report["commits"]) == (0, 1), result.stderr
    seen = _printed_environment(result.stdout)
    assert seen.keys() & elsewhere.keys() == set()
    assert seen["GIT_AUTHOR_NAME"] == "A. Tester"


def test_a_program_that_answers_for_a_password_has_its_variables(repo: Repo, tmp_path: Path) -> None:
    """The agent fetches with the same login as its user."""
    askpass = tmp_path / "askpass"
    askpass.write_text('#!/bin/sh\ncase $1 in User*) echo "$GIT_USERNAME";; *) echo "$GIT_PASSWORD";; esac\n')
    askpass.chmod(0o755)
    given = {
        "GIT_ASKPASS": os.fspath(askpass),
        "GIT_USERNAME": "bot",
        "GIT_PASSWORD": "secret",
        "GIT_SSH_VARIANT": "simple",
        "GIT_ODD_NAME": "anything",
    }
    fill = "printf 'protocol=https\\nhost=git.example.invalid\\n\\n' | git credential fill >&2; env -0"
    result = run(repo.path, "-n", "1", *SH, fill, env=given)
    assert "username=bot\npassword=secret\n" in result.stderr
    seen = _printed_environment(result.stdout)
    assert {name: seen[name] for name in given} == given


@pytest.fixture
def hooked(repo: Repo) -> Repo:
    """Return a repository whose hooks refuse commits and note checkouts."""
    for name in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change"):
        hook = repo.path / ".git" / "hooks" / name
        refusal = "exit 1" if name == "pre-commit" else "exit 0"
        hook.write_text(f'#!/bin/sh\necho "$0" >> "{repo.path}/hooks-that-ran"\n{refusal}\n')
        hook.chmod(0o755)
    return repo


def _hooks_that_ran(repo: Repo) -> set[str]:
    noted = repo.path / "hooks-that-ran"
    return {Path(line).name for line in noted.read_text().splitlines()} if noted.exists() else set()


def test_hooks_do_not_run(hooked: Repo) -> None:
    """Neither in the agent's commits nor in anything of ours, from creation to removal."""
    agent = "git commit -q --allow-empty -m mine; git checkout -q -b other; echo left > left"
    result = run(hooked.path, "-n", "1", *SH, agent)
    assert (result.status, result.report["commits"]) == (0, 1), result.stderr
    assert result.report["saved"]
    assert _hooks_that_ran(hooked) == set()


def test_hooks_on_lets_them_run_for_the_agent_alone(hooked: Repo) -> None:
    """The agent's commit is refused; our own calls still run none."""
    result = run(hooked.path, "-n", "1", "--hooks", "on", *SH, "git commit -q --allow-empty -m mine")
    assert (result.status, result.report["commits"]) == (1, 0), result.stderr
    assert _hooks_that_ran(hooked) == {"pre-commit"}


def test_hooks_that_the_users_own_configuration_names_do_not_run_either(repo: Repo, tmp_path: Path) -> None:
    """core.hooksPath in the user's configuration is overridden for the session's processes."""
    hook = tmp_path / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    repo.git("config", "--global", "core.hooksPath", os.fspath(hook.parent))
    result = run(repo.path, "-n", "1", *SH, "git commit -q --allow-empty -m mine")
    assert (result.status, result.report["commits"]) == (0, 1), result.stderr


def test_a_run_inside_an_agent_is_a_session_of_its_own(repo: Repo) -> None:
    """It starts from the outer one's HEAD, beside the outer one's worktree, in the same project."""
    inner = f'{PROGRAM} run -n 1 -- sh -c "cat made; echo inner > left; env -0 > $RALPH_PROJECT/inner"'
    outer = f"echo made > made; git add made; git commit -qm made; {inner}; git status --porcelain"
    result = run(repo.path, "-n", "1", *SH, outer)
    assert (result.status, result.stdout) == (0, b"made\n"), result.stderr
    report = result.report
    seen = _printed_environment((repo.path / "inner").read_bytes())
    assert seen["RALPH_PROJECT"] == os.fspath(repo.path)
    assert seen["RALPH_SESSION_ID"] != report["session"]
    assert seen["RALPH_ITERATION"] == "1"
    assert Path(seen["RALPH_WORKSPACE"]).parent == repo.path / ".ralph" / "worktrees"
    own, branch = report["branch"], seen["RALPH_BRANCH"]
    assert repo.branches() == sorted(["main", own, branch, f"{branch}-wip"])
    assert repo.git("rev-parse", branch) == repo.git("rev-parse", own)
    assert repo.show(f"{branch}-wip:left") == b"inner\n"
    assert repo.worktrees() == []
