"""``setup``: a command of the project's that makes a worktree ready, once, before the agent starts."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import Session as LibrarySession
from ralph_wrap import Settings
from ralph_wrap.state.stop_request import StopMode, ask
from tests.support.orphans import sweep
from tests.support.processes import STUBBORN, left
from tests.support.sessions import PROGRAM, Result, Session, assert_ended_by, command, run
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

SH = ("-n", "1", "--", "sh", "-c")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to other tests what is approved, and what is not."""
    monkeypatch.setenv("RALPH_TRUST", "1")


def configure(repo: Repo, setup: str, **more: Any) -> None:
    """Have a command run in each new worktree."""
    rows = {"setup": setup, **more}
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))


def ended(result: Result) -> list[tuple[int, str | None]]:
    """Return status and cut of each setup that has ended."""
    return [(event["status"], event["cut"]) for event in result.events if event["event"] == "setup.ended"]


# What it does


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
    """That is the agent's, and somebody may read it by a program."""
    configure(repo, "echo printed; echo complained >&2")
    result = run(repo.path, *SH, "echo answer")
    assert result.stdout == b"answer\n"
    assert result.output_log == b"printed\ncomplained\nanswer\n"
    assert "printed\ncomplained\n" in result.stderr


def test_its_input_is_empty(repo: Repo) -> None:
    """What is piped into the session is the agent's."""
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


def test_without_one_nothing_is_run_or_told(repo: Repo) -> None:
    """Nor asked for."""
    configure(repo, "  ")
    assert [name for name in run(repo.path, *SH, "true").names if name.startswith(("setup", "comm"))] == []


@pytest.mark.parametrize("configured", [False, True])
def test_nobody_else_waits_for_what_it_needs(repo: Repo, configured: bool) -> None:
    """Every start is measured: what few projects want is loaded for them alone."""
    if configured:
        configure(repo, "true")
    told = run(repo.path, *SH, "true", env={"PYTHONPROFILEIMPORTTIME": "1"}).stderr
    loaded = {
        line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")
    }
    assert "ralph_wrap.loop.driver" in loaded
    wanted = {
        f"ralph_wrap.{name}" for name in ("config.trust", "loop.setup", "interfaces.cli.approval_prompt")
    }
    assert loaded & wanted == (wanted if configured else set())


# Where it does not run


def test_the_project_itself_is_the_users_to_set_up(repo: Repo) -> None:
    """Skipped, and said."""
    configure(repo, "touch ran")
    result = run(repo.path, "--isolation", "off", *SH, "ls")
    assert result.status == 0
    assert b"ran" not in result.stdout
    assert [told["message"] for told in result.narration if told["event"] == "setup.skipped"] == [
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
    assert error["message"] == f"setup failed with status {status}: {setup}"
    assert error["hint"] == f"its output: {result.directory}/output.log"
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
    result = run(repo.path, "--max-time", "300ms", *SH, "true")
    assert result.ending == ("max-time", 0, 124)
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"


def test_the_limits_of_an_iteration_are_not_its(repo: Repo) -> None:
    """A package manager may be silent for long."""
    configure(repo, "sleep 0.4")
    limits = ("--idle-timeout", "200ms", "--iteration-timeout", "300ms")
    assert run(repo.path, *limits, *SH, "true").ending == ("max-iterations", 1, 0)


# Signals, requests


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_signal_reaches_it(repo: Repo, home: Path, number: signal.Signals) -> None:
    """That very one; what it does about it is saved, and no agent is started."""
    configure(
        repo,
        f'trap "echo {number.name} > got; exit 0" {number.name.removeprefix("SIG")}\n'
        "echo > ready; while :; do sleep 0.05; done",
    )
    with Session(repo.path, *SH, "touch $RALPH_PROJECT/../ran") as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/ready")], "the setup")
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert result.report["iterations"] == 0
    assert repo.show(f"{result.report['saved']}:got") == f"{number.name}\n".encode()
    assert not (repo.path.parent / "ran").exists()
    assert left(home) == {}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_deaf_setup_and_its_tree_are_killed(repo: Repo, home: Path, tmp_path: Path, count: int) -> None:
    """After its grace, or at once when asked again; forked, orphaned or in a session of its own."""
    pids = tmp_path / "pids"
    pids.mkdir()
    roles = ("agent", "child", "group", "session", "daemon")
    configure(repo, f"exec {sys.executable} {STUBBORN} {pids} {' '.join(roles)}")
    grace = "300ms" if count == 1 else "1h"
    with Session(repo.path, "--grace", grace, *SH, "true") as session:
        eventually((pids / "ready").exists, "its processes")
        assert len(left(home)) > len(roles)
        session.send(signal.SIGINT)
        session.wait_for("signal.received")
        for _ in range(count - 1):
            session.send(signal.SIGINT)
        result = session.finish()
    assert_ended_by(result, signal.SIGINT)
    assert left(home) == {}
    assert repo.worktrees() == []


@pytest.mark.parametrize("option", [(), ("--now",)], ids=["stop", "now"])
def test_a_request_ends_it(repo: Repo, home: Path, option: tuple[str, ...]) -> None:
    """From anywhere, as it ends an agent."""
    configure(repo, "echo x > x; sleep 600")
    with Session(repo.path, *SH, "true") as session:
        started = session.wait_for("setup.started")
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/x")], "its work")
        assert command("stop", *option, started["agent_id"], cwd=repo.path).status == 0
        result = session.finish()
    assert result.ending == ("stop", 0, 0)
    assert ended(result)[0][1] == "stop"
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"
    assert left(home) == {}


def test_a_request_for_later_lets_it_end(repo: Repo) -> None:
    """And starts no agent."""
    configure(repo, "while ! test -e $RALPH_PROJECT/../go; do sleep 0.02; done; echo done > done")
    with Session(repo.path, *SH, "true") as session:
        started = session.wait_for("setup.started")
        directory = repo.path / ".ralph" / "run" / "sessions" / started["session_id"]
        ask(directory, StopMode.AFTER_ITERATION)
        session.wait_for("stop.requested")
        (repo.path.parent / "go").touch()
        result = session.finish()
    assert (result.ending, ended(result)) == (("stop", 0, 0), [(0, None)])
    assert repo.show(f"{result.report['saved']}:done") == b"done\n"


def test_ctrl_c_on_a_terminal(repo: Repo, home: Path) -> None:
    """Where the agent would get the terminal, the setup does not: the key comes to us, and we pass it on."""
    configure(repo, "echo ready; sleep 600")
    with Terminal(PROGRAM, "run", "--", "sh", cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    assert left(home) == {}


def test_a_kill_leaves_what_a_sweep_saves(repo: Repo, home: Path) -> None:
    """Nobody cleans up after SIGKILL but the next one."""
    configure(repo, "echo x > x; sleep 600")
    with Session(repo.path, *SH, "true") as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/x")], "its work")
        session.send(signal.SIGKILL)
        session.process.wait()
    assert sweep(repo).status == 0
    [wip] = [branch for branch in repo.branches() if branch.endswith("-wip")]
    assert (repo.show(f"{wip}:x"), repo.worktrees(), left(home)) == (b"x\n", [], {})


# What it leaves running

_SERVER = (
    "(trap '' HUP; echo $$ > server; exec sleep 600) > /dev/null 2>&1 & echo $! > $RALPH_PROJECT/../server"
)


def _is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid.strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_its_servers_live_as_long_as_the_session(repo: Repo, home: Path) -> None:
    """Also when an iteration is cut short, which ends what the agent has left."""
    configure(repo, _SERVER)
    server = repo.path.parent / "server"
    agent = (
        f"kill -0 $(cat {server}) && echo alive; test -e own && {{ kill -0 $(cat own) && echo own; exit; }};"
        " sleep 500 & echo $! > own; wait"
    )
    options = ("-n", "2", "--iteration-timeout", "1s", "--grace", "100ms")
    result = run(repo.path, *options, "--", "sh", "-c", agent)
    assert result.stdout == b"alive\nalive\n", result.stderr
    assert not _is_running(server.read_text())
    assert left(home) == {}


def test_an_agents_server_ends_with_a_cut_iteration(repo: Repo, home: Path) -> None:
    """The control of the test above: what the setup has not started is not spared."""
    configure(repo, "true")
    server = repo.path.parent / "server"
    agent = f"if test -e {server}; then kill -0 $(cat {server}) && echo alive; exit 0; fi; {_SERVER}; wait"
    options = ("-n", "2", "--iteration-timeout", "1s", "--grace", "100ms")
    assert run(repo.path, *options, "--", "sh", "-c", agent).stdout == b""
    assert left(home) == {}


# Whoever starts it


def test_sessions_in_the_background_run_it(repo: Repo) -> None:
    """Its output is shown until the agent runs, and ``spawn`` prints nothing but the id."""
    configure(repo, "echo preparing; touch ready")
    started = command("spawn", *SH, "test -e ready", cwd=repo.path)
    assert started.status == 0, started.stderr
    assert len(started.stdout) == len("a3f2\n")
    assert "preparing\n" in started.stderr
    [path] = eventually(lambda: [*repo.path.glob(".ralph/run/sessions/*/report.json")], "the report")
    assert json.loads(path.read_text())["exit_status"] == 0


def test_one_that_fails_in_the_background_is_told(repo: Repo) -> None:
    """By ``spawn`` itself, which started it for nothing; no worktree waits for ``rm``."""
    configure(repo, "exit 3")
    started = command("spawn", *SH, "true", cwd=repo.path)
    assert (started.status, started.stdout) == (125, b"")
    assert "setup failed with status 3" in started.stderr
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_a_program_runs_its_own(repo: Repo) -> None:
    """Settings of a Python program are its own words: nobody else has to approve them."""
    settings = Settings(
        project=repo.path, command=("sh", "-c", "test -e ready"), setup="touch ready", max_iterations=1
    )
    with LibrarySession(settings, environ={**os.environ, "RALPH_TRUST": ""}) as session:
        assert session.run().status == 0


# Configuration


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("setup = 5", "key setup: a command is one text"),
        ('setup = ["npm", "ci"]', "key setup: a command is one text"),
        ("setup = true", "key setup: a command is one text"),
        (r'setup = "a\u0000b"', "key setup: a command cannot hold a NUL character"),
        ('setup_timeout = "soon"', "key setup_timeout: 'soon' is no duration (90s, 15m, 2h, 14d)"),
    ],
)
def test_bad_configuration(repo: Repo, row: str, said: str) -> None:
    """Named with its line; nothing is made."""
    repo.write(".ralph/config.toml", f"{row}\n")
    result = command("run", *SH, "true", cwd=repo.path)
    assert (result.status, said in result.stderr) == (2, True), result.stderr
    assert not (repo.path / ".ralph" / "run").exists()


def test_it_is_a_key_of_the_file_alone(repo: Repo) -> None:
    """Nobody sets it by a variable that they have inherited."""
    result = run(repo.path, *SH, "true", env={"RALPH_WRAP_SETUP": "touch ran"})
    assert "setup.started" not in result.names
    assert result.warnings[0]["event"] == "variable.ignored"
