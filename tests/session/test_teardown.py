"""``teardown``: the counterpart of ``setup``, run before the worktree is saved, on every way out."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.needs import needs, program
from tests.support.processes import left
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
DONE = "echo '<promise>COMPLETE</promise>'"
TELL = 'echo "$RALPH_AGENT_ID $RALPH_PORT $PWD" >> "$RALPH_PROJECT/../torn"'


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TRUST", "1")


def configure(repo: Repo, teardown: str = TELL, **rows: Any) -> None:
    """Write the configuration of the project."""
    rows = {"teardown": teardown, **rows}
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))


def torn(repo: Repo) -> list[str]:
    """Return what the teardowns have written, one line each."""
    path = repo.path.parent / "torn"
    return path.read_text().splitlines() if path.exists() else []


def owed(session: Session) -> Path:
    """Return the file that says that a session owes its teardown."""
    return session.directory / "teardown.json"


def kill(session: Session) -> None:
    """Kill a session, not its agent."""
    session.process.kill()
    session.process.wait()


# What it does


def test_it_runs_once_in_the_worktree(repo: Repo) -> None:
    """After the last iteration, with the environment of setup; what it writes is saved."""
    configure(repo, f"{TELL}; echo bye > farewell; echo 'a word'", setup='echo "$RALPH_PORT" > port')
    result = run(repo.path, "-n", "2", *SH, "cat port")
    agent_id, session = result.report["id"], result.report["session"]
    port = result.stdout.decode().split()[0]
    assert torn(repo) == [f"{agent_id} {port} {repo.path}/.ralph/worktrees/{session}"]
    assert repo.git("show", f"ralph/{agent_id}-wip:farewell") == "bye"
    assert result.names.index("teardown.started") > result.names.index("iteration.ended")
    assert result.names.index("teardown.ended") < result.names.index("work.saved")
    assert b"a word\n" in result.output_log
    report = result.report["teardown"]
    assert (report["result"], report["status"], report["reason"]) == ("passed", 0, None)
    assert result.directory is not None
    assert not (result.directory / "teardown.json").exists()


CLEANS = "git reset -q --hard && git clean -fdxq"


def test_work_that_it_deletes_is_in_a_snapshot(repo: Repo) -> None:
    """The save comes afterwards, and nothing else has the work of the last iteration."""
    configure(repo, CLEANS)
    result = run(repo.path, "-n", "1", *SH, "echo w > work; echo changed > file.txt")
    ref = f"refs/ralph/snapshots/{result.report['id']}/1"
    assert repo.show(f"{ref}:work") == b"w\n"
    assert repo.show(f"{ref}:file.txt") == b"changed\n"
    assert result.report["saved"] is None


def test_work_that_cannot_be_kept_first_is_not_risked(repo: Repo) -> None:
    """It does not run, a person reads how to run it by hand, and the end of the session saves the work."""
    configure(repo, CLEANS)
    agent = "echo w > work; n=.git/refs/ralph/snapshots/$RALPH_AGENT_ID; mkdir -p $RALPH_PROJECT/$n/1/x"
    result = run(repo.path, "-n", "1", *SH, f"{agent}; echo > $RALPH_PROJECT/$n/1/x/y")
    report = result.report["teardown"]
    assert report["result"] == "not run"
    assert report["reason"].startswith("what it might delete cannot be kept first: ")
    (warned,) = [event for event in result.warnings if event["event"] == "teardown.not_run"]
    assert CLEANS in warned["hint"]
    assert repo.git("show", f"ralph/{result.report['id']}-wip:work") == "w"


WAYS = {
    "done": ((), DONE, 0),
    "blocked": ((), "echo '<promise>BLOCKED</promise>'; echo why", 75),
    "limit": (("-n", "1"), "true", 0),
    "failures": (("--max-failures", "1"), "exit 3", 3),
    "max-time": (("--max-time", "1s"), "exec sleep 600", 124),
    "no agent": ((), "exit 127", 127),
}


@pytest.mark.parametrize(("options", "agent", "status"), WAYS.values(), ids=WAYS)
def test_it_runs_on_every_way_out(repo: Repo, options: tuple[str, ...], agent: str, status: int) -> None:
    """Once."""
    configure(repo)
    result = run(repo.path, *options, *(("--max-failures", "1") if status == 127 else ()), *SH, agent)
    assert result.status == status
    assert len(torn(repo)) == 1


def test_it_runs_if_setup_has_failed(repo: Repo) -> None:
    """Half of what setup makes may be there; its server still answers."""
    configure(
        repo, f"kill $(cat server) && {TELL}", setup="sleep 600 & echo $! > server; echo half > made; exit 3"
    )
    result = run(repo.path, *SH, DONE)
    assert result.report["ended_by"] == "not-started"
    assert len(torn(repo)) == 1
    assert result.report["teardown"]["result"] == "passed"


def test_it_does_not_run_if_nothing_has_begun(repo: Repo) -> None:
    """A command that is not there makes no worktree, so there is nothing to take back."""
    configure(repo)
    assert run(repo.path, "--", "no-such-agent").status == 127
    assert torn(repo) == []


def test_it_does_not_run_in_the_project_itself(repo: Repo) -> None:
    """As setup; the session says so."""
    configure(repo)
    result = run(repo.path, "--isolation", "off", *SH, DONE)
    assert result.status == 0
    assert torn(repo) == []
    assert "teardown.skipped" in result.names


def test_it_can_stop_what_setup_has_started(repo: Repo) -> None:
    """A server of setup runs until then; a process of the agent does not."""
    check = 'kill -0 $(cat server) && ! kill -0 $(cat child) && echo "both" >> "$RALPH_PROJECT/../torn"'
    configure(repo, check, setup="sleep 600 & echo $! > server")
    result = run(repo.path, "-n", "1", *SH, "sleep 600 & echo $! > child")
    assert torn(repo) == ["both"]
    assert result.report["teardown"]["result"] == "passed"


def test_its_processes_end_with_it(repo: Repo, home: Path) -> None:
    """As those of setup end with the session."""
    configure(repo, "sleep 600 &")
    assert run(repo.path, *SH, DONE).status == 0
    assert left(home) == {}


def test_it_needs_approval(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every command of a project."""
    monkeypatch.delenv("RALPH_TRUST")
    configure(repo)
    result = run(repo.path, *SH, DONE)
    assert result.status == 125
    assert "not approved: teardown" in result.stderr
    assert torn(repo) == []


def test_what_runs_is_what_the_session_began_with(repo: Repo) -> None:
    """An agent that writes the configuration changes nothing."""
    configure(repo)
    evil = 'echo "teardown = \\"touch \\$RALPH_PROJECT/../evil\\"" > "$RALPH_PROJECT/.ralph/config.toml"'
    run(repo.path, *SH, f"{evil}; {DONE}")
    assert len(torn(repo)) == 1
    assert not (repo.path.parent / "evil").exists()


# Its failure stops nothing


def test_its_failure_is_told(repo: Repo) -> None:
    """With where its output is, and the line that runs it by hand; status and save are as without it."""
    configure(repo, 'echo no server >&2; test -e "$RALPH_PROJECT/../there" && echo $RALPH_AGENT_ID > by-hand')
    result = run(repo.path, *SH, f"echo x > work; {DONE}")
    assert result.ending == ("promise", 1, 0)
    [warning] = result.warnings
    assert warning["message"].startswith("teardown ended with status 1: echo no server")
    output, by_hand = warning["hint"].splitlines()
    assert output == f"its output: {result.directory}/output.log"
    assert repo.git("show", f"ralph/{result.report['id']}-wip:work") == "x"
    assert result.report["teardown"]["result"] == "failed"
    (repo.path.parent / "there").touch()
    line = by_hand.removeprefix("to run it by hand: ")
    subprocess.run(("sh", "-c", line), check=True, cwd="/")
    assert (repo.path / "by-hand").read_text() == f"{result.report['id']}\n"


def test_it_has_its_time(repo: Repo, home: Path) -> None:
    """Then it is ended, with what it has started."""
    configure(repo, "trap '' TERM; sleep 600 & wait; sleep 600", teardown_timeout="500ms")
    result = run(repo.path, *SH, f"echo x > work; {DONE}")
    assert result.ending == ("promise", 1, 0)
    assert "teardown was ended after " in result.warnings[0]["message"]
    assert repo.git("show", f"ralph/{result.report['id']}-wip:work") == "x"
    assert left(home) == {}


def test_a_worktree_that_the_agent_has_deleted(repo: Repo) -> None:
    """It cannot be run there, and a warning says so."""
    configure(repo)
    result = run(repo.path, "-n", "1", *SH, 'rm -rf "$RALPH_WORKSPACE"')
    assert torn(repo) == []
    assert result.report["teardown"]["result"] == "not run"
    assert any("teardown was not run" in told["message"] for told in result.warnings)


# Signals


def test_a_signal_does_not_end_it(repo: Repo) -> None:
    """The first one ends the agent."""
    configure(repo, f"sleep 1; {TELL}")
    with Session(repo.path, *SH, "exec sleep 600") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGTERM)
        session.wait_for("teardown.started")
        result = session.finish()
    assert result.status == 143
    assert len(torn(repo)) == 1


def test_a_second_interrupt_gives_it_five_seconds(repo: Repo) -> None:
    """The work is saved, and the user is told how to run it."""
    configure(repo, "trap 'exit 9' TERM; touch $RALPH_PROJECT/../begun; sleep 600 & wait")
    with Session(repo.path, *SH, "echo x > work; exec sleep 600") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGINT)
        session.wait_for("teardown.started")
        eventually((repo.path.parent / "begun").exists, "teardown")
        session.send(signal.SIGINT)
        result = session.finish()
    assert result.status == 130
    teardown = result.report["teardown"]
    assert teardown["result"] == "failed"
    assert 5 <= teardown["seconds"] < 60
    assert repo.git("show", f"ralph/{result.report['id']}-wip:work") == "x"


def test_a_second_term_leaves_it_to_the_next_start(repo: Repo, home: Path) -> None:
    """The time of a container runs out: the work is saved at once, and the sweep runs it again."""
    configure(
        repo, f"echo begun >> $RALPH_PROJECT/../torn; test -e $RALPH_PROJECT/../again || sleep 600; {TELL}"
    )
    with Session(repo.path, *SH, "echo x > work; exec sleep 600") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGTERM)
        eventually(lambda: torn(repo) == ["begun"], "teardown")
        session.send(signal.SIGTERM)
        result = session.finish()
        assert owed(session).exists()
    assert result.report["teardown"]["result"] == "later"
    assert repo.git("show", f"ralph/{result.report['id']}-wip:work") == "x"
    assert left(home) == {}
    (repo.path.parent / "again").touch()
    assert command("sweep", cwd=repo.path).status == 0
    assert [line.split()[0] for line in torn(repo)] == ["begun", "begun", result.report["id"]]
    assert result.report["teardown"]["result"] == "passed"
    assert not Path(result.report["workspace"]).exists()


# After a kill


def killed(repo: Repo, *options: str, teardown: str = TELL) -> Session:
    """Return a session that was killed while its agent ran."""
    configure(repo, teardown)
    with Session(repo.path, *options, *SH, "echo x > work; exec sleep 600") as session:
        session.wait_for("agent.started")
        eventually(lambda: [*session.directory.parents[2].glob(f"*/{session.directory.name}/work")], "work")
        assert owed(session).exists()
        kill(session)
    return session


def test_a_sweep_runs_it_once(repo: Repo) -> None:
    """In the worktree, with the port of the session, before its work is saved."""
    configure(repo)
    session = killed(repo, teardown=f"{TELL}; echo bye > farewell")
    record = json.loads(next((repo.path / ".ralph/run/agents").glob("*.json")).read_text())
    for _ in range(2):
        assert command("sweep", cwd=repo.path).status == 0
    agent_id = record["id"]
    assert torn(repo) == [f"{agent_id} {record['port']} {record['workspace']}"]
    assert repo.git("show", f"ralph/{agent_id}-wip:farewell") == "bye"
    report = json.loads((session.directory / "report.json").read_text())
    assert (report["ended_by"], report["teardown"]["result"]) == ("killed", "passed")
    assert not owed(session).exists()


@pytest.mark.parametrize("isolation", ["prefer", "clone"])
def test_what_it_deletes_in_a_sweep_is_in_a_snapshot(
    repo: Repo, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if git knows no committer."""
    for name in ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    session = killed(repo, "--isolation", isolation, teardown=CLEANS)
    assert command("sweep", cwd=repo.path).status == 0
    agent_id = json.loads((session.directory / "report.json").read_text())["id"]
    assert repo.show(f"refs/ralph/snapshots/{agent_id}/1:work") == b"x\n"


def test_a_sweep_goes_by_what_the_session_has_recorded(repo: Repo) -> None:
    """Not by the configuration, which an agent may have changed since."""
    killed(repo)
    configure(repo, "touch $RALPH_PROJECT/../evil")
    assert command("sweep", cwd=repo.path).status == 0
    assert len(torn(repo)) == 1
    assert not (repo.path.parent / "evil").exists()


def test_a_forged_record_runs_nothing(repo: Repo) -> None:
    """Its signature is wrong: the sweep says so, never prints the text, and saves the work."""
    session = killed(repo)
    fields = json.loads(owed(session).read_text())
    owed(session).write_text(json.dumps({**fields, "text": "touch $RALPH_PROJECT/../evil"}))
    swept = command("sweep", cwd=repo.path)
    assert swept.status == 0
    assert (torn(repo), (repo.path.parent / "evil").exists()) == ([], False)
    assert "nothing proves that" in swept.stderr
    assert "evil" not in swept.stderr
    report = json.loads((session.directory / "report.json").read_text())
    assert (report["saved"], report["teardown"]["result"]) == (f"ralph/{report['id']}-wip", "not run")


def test_a_damaged_record_stops_no_sweep(repo: Repo) -> None:
    """It is as one that nothing proves."""
    session = killed(repo)
    owed(session).write_text('{"version": 1, "text": [1]}')
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, torn(repo)) == (0, [])
    assert "nothing proves that" in swept.stderr


def test_a_failure_stops_no_sweep(repo: Repo) -> None:
    """It is told; the work is saved, and the worktree goes."""
    session = killed(repo, teardown="exit 3")
    swept = command("sweep", cwd=repo.path)
    assert swept.status == 0
    assert "teardown ended with status 3: exit 3" in swept.stderr
    report = json.loads((session.directory / "report.json").read_text())
    assert report["saved"] == f"ralph/{report['id']}-wip"
    assert not Path(report["workspace"]).exists()


def test_without_its_worktree_it_is_not_run(repo: Repo) -> None:
    """The sweep prints the line that runs it by hand."""
    session = killed(repo)
    report = session.directory / "report.json"
    subprocess.run(("rm", "-rf", repo.path / ".ralph/worktrees" / session.directory.name), check=True)
    swept = command("sweep", cwd=repo.path)
    assert "teardown was not run" in swept.stderr
    assert "the worktree is gone" in json.loads(report.read_text())["teardown"]["reason"]
    assert torn(repo) == []


# Worktrees that stay


def test_a_background_worktree_keeps_it_until_rm(repo: Repo) -> None:
    """Its servers may be of use until then; the report says later."""
    configure(repo)
    spawned = command("spawn", *SH, DONE, cwd=repo.path)
    agent_id = spawned.stdout.decode().strip()
    command("wait", agent_id, cwd=repo.path)
    report = next((repo.path / ".ralph/run/sessions").glob("*/report.json"))
    assert (torn(repo), json.loads(report.read_text())["teardown"]["result"]) == ([], "later")
    assert command("sweep", cwd=repo.path).status == 0
    assert torn(repo) == []
    assert command("rm", agent_id, cwd=repo.path).status == 0
    assert len(torn(repo)) == 1
    assert json.loads(report.read_text())["teardown"]["result"] == "passed"


def test_a_kept_worktree_keeps_it_until_rm(repo: Repo) -> None:
    """--keep-worktree keeps what setup made, too."""
    configure(repo)
    result = run(repo.path, "--keep-worktree", *SH, DONE)
    assert torn(repo) == []
    line = f"ralph-wrap rm {result.report['id']}"
    assert [told["message"] for told in result.narration if told["event"] == "teardown.later"] == [
        f"teardown runs at the end of the worktree: {line}"
    ]
    assert command("rm", result.report["id"], cwd=repo.path).status == 0
    assert len(torn(repo)) == 1


def test_a_worktree_that_could_not_be_saved_is_torn_down_once(repo: Repo) -> None:
    """At the end of the session, and not again by rm."""
    configure(repo)
    result = run(repo.path, "-n", "1", *SH, "git init -q inner; echo 1 > inner/work")
    assert "inner" in result.report["kept"]
    path = Path(result.report["workspace"])
    line = f"mv -T {shlex.quote(str(path / 'inner'))} {shlex.quote(str(path))}.inner"
    subprocess.run(("sh", "-c", line), check=True)
    assert command("rm", result.report["id"], cwd=repo.path).status == 0
    assert len(torn(repo)) == 1


def test_a_private_clone_has_it_too(repo: Repo) -> None:
    """At its end, and after a kill."""
    configure(repo)
    result = run(repo.path, "--isolation", "clone", *SH, DONE)
    assert result.status == 0, result.stderr
    assert len(torn(repo)) == 1
    configure(repo)
    with Session(repo.path, "--isolation", "clone", *SH, "exec sleep 600") as session:
        session.wait_for("agent.started")
        kill(session)
    assert command("sweep", cwd=repo.path).status == 0
    assert len(torn(repo)) == 2


# The sandbox


SANDBOX = ("--sandbox", "bwrap")
ESCAPE = 'echo out > "$RALPH_PROJECT/escaped"; echo in > inside; true'


@needs(program("bwrap", "bubblewrap"))
def test_it_runs_in_the_sandbox(repo: Repo) -> None:
    """As setup and the agent: it writes its worktree alone."""
    configure(repo, ESCAPE)
    result = run(repo.path, *SANDBOX, *SH, DONE)
    assert result.status == 0, result.stderr
    assert repo.git("show", f"ralph/{result.report['id']}-wip:inside") == "in"
    assert not (repo.path / "escaped").exists()


@needs(program("bwrap", "bubblewrap"))
def test_a_sweep_makes_the_same_sandbox(repo: Repo) -> None:
    """After a kill, too."""
    session = killed(repo, *SANDBOX, teardown=ESCAPE)
    assert command("sweep", cwd=repo.path).status == 0
    report = json.loads((session.directory / "report.json").read_text())
    assert report["teardown"]["result"] == "passed"
    assert repo.git("show", f"ralph/{report['id']}-wip:inside") == "in"
    assert not (repo.path / "escaped").exists()


@needs(program("bwrap", "bubblewrap"))
def test_without_the_sandbox_it_is_not_run(repo: Repo, tmp_path: Path) -> None:
    """Where bubblewrap is gone, the sweep prints the line, and runs nothing."""
    session = killed(repo, *SANDBOX, teardown=ESCAPE)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh", "ssh", "env", "rm", "nice", "ionice"):
        found = subprocess.run(
            ("sh", "-c", f"command -v {name}"), capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            (tools / name).symlink_to(found.stdout.strip())
    swept = command("sweep", cwd=repo.path, env={"PATH": str(tools)})
    assert swept.status == 0, swept.stderr
    report = json.loads((session.directory / "report.json").read_text())
    assert report["teardown"]["result"] == "not run"
    assert "bubblewrap is not installed" in report["teardown"]["reason"]
    assert (report["saved"], (repo.path / "escaped").exists()) == (f"ralph/{report['id']}-wip", False)


@needs(program("bwrap", "bubblewrap"))
def test_with_another_home_the_sandbox_would_be_another(repo: Repo, tmp_path: Path) -> None:
    """It hides the secrets of the home, so the sweep runs nothing with another one."""
    session = killed(repo, *SANDBOX, teardown=ESCAPE)
    state = json.loads((session.directory / "teardown.json").read_text())["home"]
    other = tmp_path / "other"
    other.mkdir()
    swept = command("sweep", cwd=repo.path, env={"HOME": str(other)})
    assert swept.status == 0, swept.stderr
    report = json.loads((session.directory / "report.json").read_text())
    assert report["teardown"]["reason"] == f"its sandbox was made for the home {state}"
