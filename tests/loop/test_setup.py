"""``setup``: a command of the project's that makes a worktree ready, once, before the agent starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import needs, program
from tests.support.processes import left
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.loop.setup import configure, ended

SH = ("-n", "1", "--", "sh", "-c")


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to other tests what is approved, and what is not."""
    monkeypatch.setenv("RALPH_TRUST", "1")


# What it does


@needs(program("npm", "npm"))
def test_packages_are_installed(repo: Repo) -> None:
    """By a real package manager, before the agent needs them; they go with the worktree."""
    repo.write(".gitignore", "node_modules/\n.ralph/worktrees/\n")
    repo.write("greeting/package.json", '{"name": "greeting", "version": "1.0.0"}\n')
    repo.write("greeting/index.js", "console.log('installed');\n")
    repo.write(
        "package.json", '{"name": "app", "version": "1.0.0", "dependencies": {"greeting": "file:greeting"}}\n'
    )
    lock = {
        "name": "app",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "requires": True,
        "packages": {
            "": {"name": "app", "version": "1.0.0", "dependencies": {"greeting": "file:greeting"}},
            "greeting": {"version": "1.0.0"},
            "node_modules/greeting": {"resolved": "greeting", "link": True},
        },
    }
    repo.write("package-lock.json", json.dumps(lock))
    repo.commit("an app")
    configure(repo, "npm ci --offline --no-audit --no-fund")
    result = run(repo.path, "-n", "2", "--", "node", "-e", "require('greeting')")
    assert (result.status, result.stdout) == (0, b"installed\ninstalled\n"), result.stderr
    assert b"added 1 package" in result.output_log
    assert result.report["saved"] is None
    assert not (repo.path / "node_modules").exists()


def test_it_runs_once_and_before_the_agent(repo: Repo) -> None:
    """However many iterations there are."""
    configure(repo, "echo setup >> order")
    result = run(repo.path, "-n", "3", "--", "sh", "-c", "echo agent >> order; cat order")
    assert result.stdout.decode().split("\n")[-5:] == ["setup", "agent", "agent", "agent", ""]
    assert result.names.count("setup.started") == 1


def test_it_runs_where_the_agent_does(repo: Repo) -> None:
    """In the sub-directory that the session was started in."""
    repo.write("web/app/index.js")
    repo.commit("web")
    configure(repo, "pwd > here; echo $PWD >> here")
    result = run(repo.path, *SH, "pwd; cat here", cwd=repo.path / "web" / "app")
    assert len(result.stdout.split()) == 3
    assert {*result.stdout.decode().split()} == {
        f"{repo.path}/.ralph/worktrees/{result.report['session']}/web/app"
    }


def test_copies_are_there_before_it(repo: Repo) -> None:
    """It may need a password to install anything."""
    repo.write(".gitignore", ".env\n.ralph/\n")
    repo.commit("rules")
    repo.write(".env", "KEY=secret\n")
    configure(repo, "cp .env seen", copy=[".env"])
    assert run(repo.path, *SH, "cat seen").stdout == b"KEY=secret\n"


def test_its_environment_is_the_agents(repo: Repo) -> None:
    """But for the number of the iteration, of which it is none."""
    configure(repo, "env | grep -v ^_= | sort > mine")
    result = run(repo.path, *SH, "env | grep -v ^_= | sort > his; diff mine his")
    assert [line for line in result.stdout.decode().splitlines() if line[0] in "<>"] == [
        "< RALPH_ITERATION=0",
        "> RALPH_ITERATION=1",
    ]


def test_its_output_is_in_the_log_and_never_on_our_stdout(repo: Repo) -> None:
    """Our stdout is the agent's, and a program may read it."""
    configure(repo, "echo printed; echo complained >&2")
    result = run(repo.path, *SH, "echo answer")
    assert result.stdout == b"answer\n"
    assert result.output_log == b"printed\ncomplained\nanswer\n"
    assert "printed\ncomplained\n" in result.stderr


def test_its_input_is_empty(repo: Repo) -> None:
    """The session's standard input belongs to the agent."""
    configure(repo, "cat > got; test ! -t 0")
    (repo.path.parent / "typed").write_text("for the agent\n")
    with (repo.path.parent / "typed").open("rb") as stdin:
        result = run(repo.path, *SH, "cat got; echo then; cat", stdin=stdin)
    assert (result.status, result.stdout) == (0, b"then\nfor the agent\n")


def test_a_promise_of_its_is_none(repo: Repo) -> None:
    """It prints what the agent is asked to print."""
    configure(repo, "echo '<promise>COMPLETE</promise>'")
    assert run(repo.path, "-n", "2", "--", "true").ending == ("max-iterations", 2, 0)


def test_what_it_changes_is_ordinary_work(repo: Repo) -> None:
    """A lock file, say: saved at the end."""
    configure(repo, "echo changed > file.txt; echo new > lock")
    result = run(repo.path, *SH, "true")
    assert result.report["saved_paths"] == ["file.txt", "lock"]
    assert repo.show(f"{result.report['saved']}:lock") == b"new\n"


def test_what_it_changes_is_no_progress_of_the_agent(repo: Repo) -> None:
    """An iteration is compared with what the setup has left."""
    configure(repo, "echo new > lock")
    assert run(repo.path, "--max-stalls", "1", "--", "true").ending == ("max-stalls", 1, 0)


def test_an_agent_that_changes_something_makes_progress(repo: Repo) -> None:
    """The comparison with what the setup has left finds it."""
    configure(repo, "echo new > lock")
    agent = "test $RALPH_ITERATION -gt 1 || echo changed > lock"
    assert run(repo.path, "--max-stalls", "1", "--", "sh", "-c", agent).ending == ("max-stalls", 2, 0)


def test_events_tell_status_and_seconds(repo: Repo) -> None:
    """Between the session's start and the first iteration."""
    configure(repo, "exit 0")
    result = run(repo.path, *SH, "true")
    first = result.names.index("setup.started")
    assert result.names[first : first + 3] == ["setup.started", "setup.ended", "iteration.started"]
    started, done = result.events[first : first + 2]
    assert started["command"] == "exit 0"
    assert (done["status"], done["pid"], 0 <= done["seconds"] < 10) == (0, started["pid"], True)


def test_without_one_nothing_is_run_or_logged(repo: Repo) -> None:
    """Nor asked for."""
    configure(repo, "  ")
    assert [name for name in run(repo.path, *SH, "true").names if name.startswith(("setup", "comm"))] == []


# Where it does not run


def test_the_project_itself_is_the_users_to_set_up(repo: Repo) -> None:
    """Skipped, and said."""
    configure(repo, "touch ran")
    result = run(repo.path, "--isolation", "off", *SH, "ls")
    assert result.status == 0
    assert b"ran" not in result.stdout
    assert [printed["message"] for printed in result.narration if printed["event"] == "setup.skipped"] == [
        "setup is not run in the project itself: touch ran"
    ]


def test_a_fallback_is_the_project_itself(repo: Repo, tmp_path: Path) -> None:
    """Here there is no worktree to be had."""
    plain = tmp_path / "plain"
    (plain / ".ralph").mkdir(parents=True)
    (plain / ".ralph" / "config.toml").write_text('setup = "touch ran"\n')
    assert repo.path.is_dir()
    result = run(plain, *SH, "ls")
    assert (result.status, result.stdout) == (0, b"")
    assert "setup.skipped" in result.names


def test_worktrees_for_other_programs_are_theirs_to_set_up(repo: Repo) -> None:
    """``create`` and ``enter`` make a worktree and run nothing."""
    configure(repo, "touch ran")
    for words in (("create", "Try it"), ("enter", "try", "--session", "s")):
        answer = json.loads(command("worktree", *words, cwd=repo.path).stdout)
        assert not (Path(answer["data"]["path"]) / "ran").exists()


# Failing


@pytest.mark.parametrize(("setup", "status"), [("exit 3", 3), ("no-such-tool", 127), ("kill -9 $$", 137)])
def test_a_setup_that_fails_starts_no_agent(repo: Repo, setup: str, status: int) -> None:
    """Nothing is left, not even a branch; the error names the command and the log."""
    configure(repo, setup)
    result = run(repo.path, *SH, "touch $RALPH_PROJECT/../ran")
    assert result.ending == ("not-started", 0, 125)
    assert ended(result) == [(status, None)]
    [error] = result.warnings
    assert result.directory is not None
    assert error["message"] == f"setup failed with status {status}: {setup}"
    assert error["hint"] == f"to see its output: ralph-wrap logs {result.directory.name}"
    assert command("logs", result.directory.name, cwd=repo.path).status == 0
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not (repo.path.parent / "ran").exists()


def test_what_a_failing_setup_has_made_is_saved(repo: Repo) -> None:
    """As always; then the branch is there, too."""
    configure(repo, "echo half > half; exit 1")
    result = run(repo.path, *SH, "true")
    assert result.ending == ("not-started", 0, 125)
    assert repo.show(f"{result.report['saved']}:half") == b"half\n"
    assert repo.worktrees() == []


def test_a_shell_that_is_not_there(repo: Repo, tmp_path: Path) -> None:
    """It cannot be run at all: no traceback."""
    configure(repo, "true")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").symlink_to("/usr/bin/git")
    result = run(repo.path, "-n", "1", "--", "/bin/true", env={"PATH": os.fspath(tools)})
    assert result.ending == ("not-started", 0, 125)
    assert result.warnings[-1]["message"] == "setup cannot be run: No such file or directory: true"


def test_it_has_a_time_limit(repo: Repo, home: Path) -> None:
    """Of its own; whatever it has started ends with it."""
    configure(repo, "sleep 600 & sleep 600", setup_timeout="200ms")
    result = run(repo.path, *SH, "true")
    assert result.ending == ("not-started", 0, 125)
    assert ended(result) == [(124, "setup-timeout")]
    assert result.warnings[-1]["message"].startswith("setup was not done after ")
    assert left(home) == {}


def test_no_time_limit(repo: Repo) -> None:
    """0 is none, as for every other limit."""
    configure(repo, "sleep 0.1", setup_timeout="0")
    assert run(repo.path, *SH, "true").status == 0


def test_the_sessions_time_is_its_time(repo: Repo) -> None:
    """As an agent that is cut short by it."""
    configure(repo, "echo x > x; exec sleep 600")
    result = run(repo.path, "--max-time", "2s", *SH, "true")  # a busy machine takes 300 ms to begin it
    assert result.ending == ("max-time", 0, 124)
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"


def test_the_limits_of_an_iteration_are_not_its(repo: Repo) -> None:
    """A package manager may be silent for long. On a busy machine, they may cut the agent short."""
    configure(repo, "sleep 0.4")
    limits = ("--idle-timeout", "200ms", "--iteration-timeout", "300ms")
    result = run(repo.path, *limits, *SH, "true")
    assert result.report["iterations"] == 1
    assert "limit.reached" not in result.names[: result.names.index("agent.started")]
