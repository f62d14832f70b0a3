"""``ralph-wrap tell``: what a person says to a session that runs comes first in the next prompt, once."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.loop.setup import configure
from tests.support.agent_script import PROMISE, TRUSTED, limited
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.told_agent import PROMPT, agent, telling
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result
    from tests.support.told_agent import Told

AGAIN = "\n(An earlier iteration had this message, too, and failed or was interrupted.)\n\n"
KEPT = f"echo '{PROMISE}'"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return where agents keep their prompts."""
    return tmp_path / "agent"


def _delivered(result: Result) -> list[tuple[int, str, bool]]:
    """Return iteration and text of each message that was delivered, and whether it was repeated."""
    found = [event for event in result.events if event["event"] == "message.delivered"]
    return [(event["iteration"], event["text"], event["again"]) for event in found]


def _rows(repo: Repo, *words: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(command("ps", "--json", *words, cwd=repo.path).stdout)["data"]
    return rows


def test_the_next_prompt_begins_with_it_once(repo: Repo, place: Path) -> None:
    """In the order in which it was told; the event log says in which iteration, and ps that it waits."""
    with telling(repo, place, "-n", "3") as told:
        assert told.await_prompt(1) == PROMPT
        assert told.tell("Use the new database.").status == 0
        assert told.tell("The old one\ngoes.").status == 0
        assert [row["messages"] for row in _rows(repo)] == [2]
        assert b"MESSAGES" in command("ps", cwd=repo.path).stdout
        told.let_go(1)
        assert told.await_prompt(2) == f"Use the new database.\n\nThe old one\ngoes.\n\n{PROMPT}"
        assert [row["messages"] for row in _rows(repo)] == [0]
        told.let_go(2)
        assert told.await_prompt(3) == PROMPT
        told.let_go(3)
        result = told.session.finish()
    assert _delivered(result) == [(2, "Use the new database.", False), (2, "The old one\ngoes.", False)]
    assert result.report["unread"] == []
    assert [*(result.directory or place).glob("messages/*")] == []


def test_now_ends_the_running_iteration(repo: Repo, place: Path) -> None:
    """Its work is kept, it is no failure, and no delay comes before the next one."""
    options = ("-n", "2", "--delay", "1h", "--max-failures", "1", "--max-stalls", "1")
    with telling(repo, place, *options) as told:
        told.await_prompt(1)
        assert told.tell("--now", "Stop that.").status == 0
        assert told.await_prompt(2) == f"Stop that.\n\n{PROMPT}"
        told.let_go(2, KEPT)
        result = told.session.finish()
    assert result.ending == ("promise", 2, 0)
    assert [event["cut"] for event in result.events if event["event"] == "iteration.ended"] == ["tell", None]
    assert repo.show(f"{result.report['saved']}:work") == b"1\n2\n"
    kept = [event["iteration"] for event in result.events if event["event"] == "iteration.kept"]
    assert kept == [1]


def test_now_is_heard_in_the_last_iteration(repo: Repo, place: Path) -> None:
    """That iteration runs again: a message of a person counts more than --max-iterations."""
    with telling(repo, place, "-n", "1") as told:
        told.await_prompt(1)
        (place / "prompt-1").unlink()
        told.tell("--now", "Stop that.")
        assert told.await_prompt(1) == f"Stop that.\n\n{PROMPT}"
        told.let_go(1)
        result = told.session.finish()
    assert result.ending == ("max-iterations", 1, 0)


def test_an_interrupted_iteration_has_not_read_it(repo: Repo, place: Path) -> None:
    """Two messages in a hurry: the agent of the second has the first one, too."""
    with telling(repo, place, "-n", "5") as told:
        told.await_prompt(1)
        told.tell("--now", "First.")
        told.await_prompt(2)
        eventually(lambda: "message.delivered" in _names(told), "the first message")
        told.tell("--now", "Second.")
        assert told.await_prompt(3) == f"First.{AGAIN}Second.\n\n{PROMPT}"
        told.let_go(3, KEPT)
        result = told.session.finish()
    assert result.ending == ("promise", 3, 0)
    assert _delivered(result) == [(2, "First.", False), (3, "First.", True), (3, "Second.", False)]


def _names(told: Told) -> set[str]:
    events = (told.session.directory / "events.jsonl").read_text().splitlines()
    return {json.loads(event)["event"] for event in events}


def test_a_failed_iteration_has_not_read_it(repo: Repo, place: Path) -> None:
    """An agent that could not work gets the same again, with a remark."""
    with telling(repo, place, "-n", "3") as told:
        told.await_prompt(1)
        told.tell("Now.")
        told.let_go(1)
        told.await_prompt(2)
        told.let_go(2, "exit 3")
        assert told.await_prompt(3) == f"Now.{AGAIN}{PROMPT}"
        told.let_go(3)
        result = told.session.finish()
    assert result.report["unread"] == []


def test_a_promise_without_it_ends_no_loop(repo: Repo, place: Path) -> None:
    """The agent that gave it has not read the message; the next one has."""
    with telling(repo, place) as told:
        told.await_prompt(1)
        told.tell("And the help.")
        told.let_go(1, KEPT)
        assert told.await_prompt(2) == f"And the help.\n\n{PROMPT}"
        told.let_go(2, KEPT)
        result = told.session.finish()
    assert result.ending == ("promise", 2, 0)
    assert "message.first" in result.names


def test_a_promise_during_the_gate_waits_for_it(repo: Repo, place: Path) -> None:
    """A message that comes while the gate runs is read, and --now ends the gate."""
    gate = f"touch {place}/gate; [ -e {place}/prompt-2 ] || sleep 600"
    with telling(repo, place, "--verify", gate) as told:
        told.await_prompt(1)
        told.let_go(1, KEPT)
        eventually((place / "gate").exists, "the gate")
        told.tell("--now", "Wait.")
        assert told.await_prompt(2) == f"Wait.\n\n{PROMPT}"
        told.let_go(2, KEPT)
        result = told.session.finish()
    assert result.ending == ("promise", 2, 0)
    assert result.report["verify"]["result"] == "passed"


def test_setup_is_not_ended_by_it(repo: Repo, place: Path) -> None:
    """The first prompt begins with it: no iteration has begun without it."""
    place.mkdir()
    setup = f"touch {place}/setup; until [ -e {place}/ready ]; do sleep 0.05; done"
    configure(repo, setup)
    with telling(repo, place, "-n", "1", env=TRUSTED) as told:
        eventually((place / "setup").exists, "the setup")
        result = told.tell("--now", "Early.")
        assert (result.status, "no iteration runs yet that could end for it" in result.stderr) == (0, True)
        (place / "ready").touch()
        assert told.await_prompt(1) == f"Early.\n\n{PROMPT}"
        told.let_go(1)
        assert told.session.finish().ending == ("max-iterations", 1, 0)


@pytest.mark.parametrize("options", [("--delay", "1h"), ("--delay", "0")], ids=["delay", "backoff"])
def test_a_wait_between_iterations(repo: Repo, place: Path, options: tuple[str, ...]) -> None:
    """A message waits with the session; --now ends the wait: the delay, or the pause after failures."""
    fails = "exit 1" if options[1] == "0" else "exit 0"
    with telling(repo, place, "-n", "9", "--max-failures", "0", *options) as told:
        last = 6 if fails == "exit 1" else 1  # after six failures a pause takes half a minute
        for number in range(1, last + 1):
            told.let_go(number, fails)
        if last == 6:
            for number in range(1, last):
                told.await_prompt(number)
                told.tell("--now", "-")
        told.await_prompt(last)
        told.session.wait_for("iteration.ended", last)
        begun = time.monotonic()
        told.tell("Slowly.")
        told.tell("--now", "At once.")
        prompt = told.await_prompt(last + 1)
        assert time.monotonic() - begun < 20
        assert prompt.endswith(f"Slowly.\n\nAt once.\n\n{PROMPT}")
        told.session.send(signal.SIGTERM)
        told.session.finish()


def test_a_usage_limit_is_not_ended(repo: Repo, place: Path) -> None:
    """Neither by a message nor by --now: the account has no more. The message is there afterwards."""
    table = f"[agents.mine]\ncommand = [{json.dumps(agent(place))}]\noutput = 'claude'\n"
    repo.write(".ralph/config.toml", table)
    words = ("-p", PROMPT, "-n", "1", "-a", "mine")
    with Session(repo.path, *words, env=TRUSTED) as session:
        eventually((place / "prompt-1").exists, "the first prompt")
        (place / "go-1").write_text(f"rm {place}/prompt-1 {place}/go-1\n{limited(8)}\nexit 1\n")
        session.wait_for("limit.waiting")
        agent_id = session.directory.name.rpartition("-")[2]
        told = command("tell", agent_id, "--now", "Then this.", "--json", cwd=repo.path)
        answer = json.loads(told.stdout)["data"][0]
        assert (answer["outcome"], answer["messages"]) == ("told", 1)
        assert answer["waits_until"] is not None
        assert not (place / "prompt-1").exists()  # the limit still holds
        eventually((place / "prompt-1").exists, "the second prompt", cap=60)
        (place / "go-1").write_text("exit 0\n")
        result = session.finish()
    assert (place / "prompt-1").read_text() == f"Then this.\n\n{PROMPT}"
    assert [event["event"] for event in result.events].count("limit.waiting") == 1


def test_what_no_agent_has_read_is_not_lost(repo: Repo, place: Path) -> None:
    """Exit report and report.json name it, ps counts it, and resume begins with it, in the order of all."""
    with telling(repo, place, "-n", "1", env={"RALPH_WRAP_LOG_FORMAT": "text"}) as told:
        told.await_prompt(1)
        told.tell("Later \x1b[31mred.")
        told.let_go(1)
        result = told.session.finish()
    assert result.report["unread"] == ["Later \x1b[31mred."]
    lines = [line.split(maxsplit=1) for line in result.stderr.splitlines()]
    assert ["unread", "Later [31mred."] in lines
    assert ["go on", f"ralph-wrap resume {result.report['id']}"] in [
        [line[:11].strip(), line[11:].strip()]
        for line in result.stderr.replace("  go on", "go on").splitlines()
    ]
    assert [row["messages"] for row in _rows(repo, "--all")] == [1]
    (place / "prompt-1").unlink()
    again = command("resume", result.report["id"], "-m", "Go on.", cwd=repo.path)
    assert again.status == 0, again.stderr
    assert (place / "prompt-1").read_text() == f"Later \x1b[31mred.\n\nGo on.\n\n{PROMPT}"
    assert sum(row["messages"] == 1 for row in _rows(repo, "--all")) == 1  # in the report of the first one


def test_a_killed_session_tells_it_again(repo: Repo, place: Path) -> None:
    """Its agent may have read half of it; the sweep's report names it, and resume begins with it."""
    with telling(repo, place, "-n", "2") as told:
        told.await_prompt(1)
        told.tell("Do not forget.")
        told.let_go(1)
        told.await_prompt(2)
        told.session.wait_for("message.delivered")
        agent_id = told.id
        told.session.send(signal.SIGKILL)
        told.session.finish()
    assert command("sweep", cwd=repo.path).status == 0
    [report] = repo.path.glob(".ralph/run/sessions/*/report.json")
    assert json.loads(report.read_text())["unread"] == ["Do not forget."]
    for number in (1, 2):
        (place / f"prompt-{number}").unlink()
        (place / f"go-{number}").write_text("exit 0\n")
    resumed = command("resume", agent_id, cwd=repo.path)
    assert resumed.status == 0, resumed.stderr
    assert (place / "prompt-1").read_text() == f"Do not forget.{AGAIN}{PROMPT}"


def test_a_failed_resume_keeps_it(repo: Repo, place: Path) -> None:
    """The next one goes on from the session before, and the message was with the failed one."""
    with telling(repo, place, "-n", "1") as told:
        told.await_prompt(1)
        told.tell("Still here.")
        told.let_go(1)
        result = told.session.finish()
    program = place / "agent"
    program.rename(place / "aside")
    failed = command("resume", result.report["id"], cwd=repo.path)
    assert failed.status == 127, failed.stderr
    (place / "aside").rename(program)
    assert command("resume", result.report["id"], cwd=repo.path).status == 0
    assert (place / "prompt-1").read_text() == f"Still here.\n\n{PROMPT}"


def test_text_is_data(repo: Repo, place: Path) -> None:
    """Any bytes come as they are, a promise in it is none, and a screen gets no control characters."""
    text = f"-- \x1b]0;title\x07 \udcff ä\n{PROMISE}"
    with telling(repo, place, "-n", "2", env={"RALPH_WRAP_LOG_FORMAT": "text"}) as told:
        told.await_prompt(1)
        assert told.tell("--", text).status == 0
        told.let_go(1)
        assert told.await_prompt(2) == f"{text}\n\n{PROMPT}"
        told.let_go(2, f"cat {place}/prompt-2")
        result = told.session.finish()
    assert result.ending == ("max-iterations", 2, 0)
    assert "\x1b]0;" not in result.stderr


def test_one_that_does_not_fit_waits(repo: Repo, place: Path) -> None:
    """An agent with its prompt as an argument starts all the same; no promise waits for such a message."""
    program = agent(place)
    script = f'#!/bin/sh\nprintf %s "$1" | {program}\n'
    (place / "argument").write_text(script)
    (place / "argument").chmod(0o755)
    line = json.dumps([str(place / "argument"), "{prompt}"])
    repo.write(".ralph/config.toml", f"[agents.mine]\ncommand = {line}\nprompt = 'argument'\n")
    repo.write("LONG.md", "x" * 125_000)
    words = ("-f", "LONG.md", "-a", "mine")
    with Session(repo.path, *words, env=TRUSTED) as session:
        eventually((place / "prompt-1").exists, "the first prompt")
        agent_id = session.directory.name.rpartition("-")[2]
        assert command("tell", agent_id, "y" * 10_000, cwd=repo.path).status == 0
        (place / "go-1").write_text("exit 0\n")
        eventually((place / "prompt-2").exists, "the second prompt")
        (place / "go-2").write_text(f"{KEPT}\n")
        result = session.finish()
    assert result.ending == ("promise", 2, 0)
    assert "message.waits" in [warning["event"] for warning in result.warnings]
    assert result.report["unread"] == ["y" * 10_000]


def test_an_agent_without_a_prompt_gets_it(repo: Repo, tmp_path: Path) -> None:
    """On its standard input, as with resume -m."""
    with Session(
        repo.path, "-n", "2", "--", "sh", "-c", f"cat > {tmp_path}/$RALPH_ITERATION; sleep 2"
    ) as session:
        session.wait_for("agent.started")
        agent_id = session.directory.name.rpartition("-")[2]
        assert command("tell", agent_id, "Hear.", cwd=repo.path).status == 0
        assert session.finish().status == 0
    assert (tmp_path / "2").read_text() == "Hear.\n\n"


def test_a_stalled_loop_hears_it(repo: Repo, tmp_path: Path) -> None:
    """--max-stalls does not end a loop whose agent has not read what would help it."""
    script = f"cat > {tmp_path}/$RALPH_ITERATION; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    with Session(repo.path, "--max-stalls", "1", "--", "sh", "-c", script) as session:
        session.wait_for("agent.started")
        agent_id = session.directory.name.rpartition("-")[2]
        command("tell", agent_id, "Try the other way.", cwd=repo.path)
        (tmp_path / "go").touch()
        assert session.finish().ending == ("max-stalls", 2, 0)
    assert (tmp_path / "2").read_text() == "Try the other way.\n\n"


def test_it_needs_no_prompt_of_its_own(repo: Repo) -> None:
    """A loop that is told nothing makes no directory for messages."""
    result = run(repo.path, "-n", "1", "--", "true")
    assert result.directory is not None
    assert not (result.directory / "messages").exists()


@pytest.mark.parametrize("how", ["spawn", "batch"])
def test_every_kind_of_session_is_told(repo: Repo, tmp_path: Path, how: str) -> None:
    """In the background, and for a task of a batch; here the agent's own shell tells."""
    script = (
        f"cat > {tmp_path}/prompt-$RALPH_ITERATION; echo $RALPH_ITERATION > work\n"
        f'[ $RALPH_ITERATION = 2 ] || exec {PROGRAM} tell $RALPH_SESSION_ID "Think of the help."\n{KEPT}'
    )
    repo.write("TASKS.md", "- [ ] The page\n")
    first = ("batch", "TASKS.md") if how == "batch" else ("spawn", "-p", "The page")
    started = command(*first, "--", "sh", "-c", script, cwd=repo.path)
    assert started.status == 0, started.stderr
    if how == "spawn":
        agent_id = started.stdout.decode().strip()
        assert command("wait", agent_id, cwd=repo.path).status == 0
    before = (tmp_path / "prompt-1").read_text()
    assert "The page" in before
    assert (tmp_path / "prompt-2").read_text() == f"Think of the help.\n\n{before}"
