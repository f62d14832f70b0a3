"""The project's ``notify`` command: a person hears of the end of a session."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.config.parsers import NOTIFIED
from ralph_wrap.session.notify import event_of
from tests.support.agent_script import PROMISE, limited, result_line
from tests.support.processes import left
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
DONE = "echo '<promise>COMPLETE</promise>'"
ASK = "printf '<promise>BLOCKED</promise>\\nMay I?\\n'"
TELL = 'printf \'%s: %s\\n\' "$RALPH_EVENT" "$RALPH_SUMMARY" >> told; cat > report'


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TRUST", "1")


def configure(repo: Repo, **rows: Any) -> None:
    """Write the configuration of the project."""
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))


def told(repo: Repo) -> list[str]:
    """Return what a person was told."""
    path = repo.path / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_it_hears_of_the_end(repo: Repo) -> None:
    """With the report as it is on disk, and one sentence."""
    configure(repo, notify=TELL)
    result = run(repo.path, "--name", "Login page", *SH, f"git commit -q --allow-empty -m x; {DONE}")
    assert result.ending == ("promise", 1, 0)
    agent_id = result.report["id"]
    assert told(repo) == [f"done: Login page: done after 1 iteration, 1 commit on ralph/{agent_id}"]
    assert json.loads((repo.path / "report").read_text()) == result.report


@pytest.mark.parametrize(
    ("options", "agent", "line"),
    [
        ((), ASK, "blocked: sh: blocked after 1 iteration: May I?"),
        (("-n", "1"), "true", "limit: sh: limit reached after 1 iteration"),
        (("--max-failures", "1"), "exit 3", "failed: sh: failed after 1 iteration"),
        (("--max-stalls", "1"), "true", "stuck: sh: stuck after 1 iteration"),
    ],
)
def test_each_end_has_its_event(repo: Repo, options: tuple[str, ...], agent: str, line: str) -> None:
    """And its sentence."""
    configure(repo, notify=TELL)
    run(repo.path, "--name", "sh", *options, *SH, agent)
    assert told(repo) == [line]


def test_every_reason_is_an_event() -> None:
    """None is missing in the table."""
    reasons = ("promise", "blocked", "max-iterations", "max-failures", "max-stalls", "max-time", "max-cost")
    more = ("max-tokens", "usage-limit", "stop", "signal", "leak", "not-started", "error", "killed")
    events = {event_of(reason) for reason in (*reasons, *more)}
    assert events == {*NOTIFIED} - {"usage-limit", "disk-full"}  # of these a session does not end


def test_it_hears_only_what_it_wants(repo: Repo) -> None:
    """notify_on chooses; a word that is no event is an error."""
    configure(repo, notify=TELL, notify_on=["blocked"])
    run(repo.path, *SH, DONE)
    run(repo.path, *SH, ASK)
    assert [line.partition(":")[0] for line in told(repo)] == ["blocked"]
    configure(repo, notify=TELL, notify_on=["ready"])
    assert "'ready' is none of done, blocked" in run(repo.path, *SH, DONE).stderr


def test_it_needs_approval(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every command of a project."""
    monkeypatch.delenv("RALPH_TRUST")
    configure(repo, notify=TELL)
    result = run(repo.path, *SH, DONE)
    assert result.status == 125
    assert "not approved: notify" in result.stderr
    assert told(repo) == []


def test_it_never_changes_a_status(repo: Repo) -> None:
    """Its failure is a warning with what it printed."""
    configure(repo, notify="echo no network >&2; exit 7")
    result = run(repo.path, *SH, DONE)
    assert result.ending == ("promise", 1, 0)
    assert result.warnings[-1]["message"] == "notify ended with status 7: no network"


def test_the_report_comes_after_its_failure(repo: Repo) -> None:
    """The last lines say how the session ended, and what to type."""
    configure(repo, notify="exit 7")
    lines = run(repo.path, *SH, DONE, env={"RALPH_WRAP_LOG_FORMAT": "text"}).stderr.splitlines()
    failed = lines.index("ralph-wrap: warning: notify ended with status 7")
    assert failed < lines.index("ralph-wrap: session ended: done after 1 iteration (exit status 0)")


def test_it_has_ten_seconds(repo: Repo, home: Path) -> None:
    """Then it is ended, with what it has started."""
    configure(repo, notify="sleep 600 & sleep 600")
    result = run(repo.path, *SH, DONE)
    assert result.ending == ("promise", 1, 0)
    assert result.warnings[-1]["message"] == "notify was not done after 10 s"
    assert left(home) == {}


def test_a_signal_is_told(repo: Repo) -> None:
    """The signal that ended the session does not end the command."""
    configure(repo, notify=TELL)
    with Session(repo.path, "--name", "sh", *SH, "exec sleep 600") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGTERM)
        assert session.finish().status == 143
    assert told(repo) == ["interrupted: sh: stopped after 1 iteration"]


def test_a_sweep_tells_of_a_killed_session(repo: Repo) -> None:
    """Once."""
    configure(repo, notify=TELL)
    with Session(repo.path, "--name", "sh", *SH, "exec sleep 600") as session:
        session.wait_for("agent.started")
        session.process.kill()
        session.process.wait()
    for _ in range(2):
        assert command("sweep", cwd=repo.path).status == 0
    assert told(repo) == ["recovered: sh: crashed after 1 iteration"]


def test_a_batch_tells_once(repo: Repo) -> None:
    """At its end, of all its tasks."""
    configure(repo, notify=TELL)
    repo.write("tasks", "- [ ] one\n- [ ] two\n")
    assert command("batch", "tasks", *SH, f"cat >/dev/null; {DONE}", cwd=repo.path).status == 0
    assert told(repo) == ["done: batch tasks: done, 2 of 2 tasks are done"]
    assert [row["title"] for row in json.loads((repo.path / "report").read_text())] == ["one", "two"]


# While a session runs


def test_a_usage_limit_is_told_at_both_ends(repo: Repo, tmp_path: Path) -> None:
    """A person hears that the loop waits, and that it goes on; there is no report yet, but the record."""
    refused = f"touch {tmp_path}/again\n{limited(2)}exit 1"
    agent = tmp_path / "agent"
    agent.write_text(f"#!/bin/sh\n[ -e {tmp_path}/again ] || {{ {refused}; }}\n{result_line(PROMISE)}")
    agent.chmod(0o755)
    tell = f"cd {tmp_path}; {TELL.removesuffix('report')}$RALPH_EVENT"  # in the project: a leak
    table = f"[agents.mine]\ncommand = [{json.dumps(str(agent))}]\noutput = 'claude'\n"
    repo.write(".ralph/config.toml", f"notify = {json.dumps(tell)}\n{table}")
    assert run(repo.path, "--name", "x", "-p", "x", "-a", "mine").ending == ("promise", 1, 0)
    begins, ends, end = (tmp_path / "told").read_text().splitlines()
    assert begins.startswith("usage-limit: x: the usage limit is reached: iteration 1 waits until 20")
    assert ends == "usage-limit: x: the usage limit is over: iteration 1 begins"
    assert end == "done: x: done after 1 iteration"
    record = json.loads((tmp_path / "usage-limit").read_text())
    assert (record["state"], record["title"]) == ("running", "x")


@pytest.mark.parametrize(
    ("options", "events"),
    [(("-n", "3"), ["leak", "limit"]), (("-n", "1"), ["leak", "limit"]), (("--on-leak", "stop"), ["leak"])],
    ids=["in-the-loop", "at-the-end", "stop"],
)
def test_the_first_leak_is_told(repo: Repo, options: tuple[str, ...], events: list[str]) -> None:
    """Once, as soon as the session sees it."""
    configure(repo, notify='echo "$RALPH_EVENT" >> ../told')
    run(repo.path, *options, *SH, 'echo "$RALPH_ITERATION" > "$RALPH_PROJECT/leak-$RALPH_ITERATION"')
    assert (repo.path.parent / "told").read_text().split() == events


@pytest.mark.parametrize(("options", "is_told"), [((), True), (("--quiet-terminal",), False)])
def test_the_terminal_calls(repo: Repo, options: tuple[str, ...], *, is_told: bool) -> None:
    """By its bell, and by a notification of its own."""
    words = (PROGRAM, "run", *options, "-n", "1", "--name", "sh", *SH, "true")
    env = {"RALPH_WRAP_LOG_FORMAT": "text", "TERM": "xterm"}
    with Terminal(*words, cwd=repo.path, env=env) as terminal:
        terminal.finish()
        shown = terminal.screen
    assert (b"\x1b]9;sh: limit reached after 1 iteration\x07" in shown) is is_told
    assert (b"\x1b]777;notify;ralph-wrap;sh: limit reached after 1 iteration\x07" in shown) is is_told
