"""A batch that is stopped or killed: its sessions save their work, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.commands.batch.batches import result_of
from tests.support.agent_script import PROMISE, TRUSTED, limited, result_line
from tests.support.sessions import command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.commands.batch.batches import Batch

ALL = ["one", "three", "two"]
HANG = 'echo "$task" > left; : > "$RALPH_PROJECT/calls.$task"; while :; do sleep 0.05; done\n'
"""What an agent does that is stopped in its work."""


def _wait_for_work(batch: Batch, *tasks: str) -> None:
    for task in tasks:
        eventually((batch.repo.path / f"calls.{task}").exists, f"the work on {task}")


def _assert_going_on(batch: Batch, begun: list[str]) -> None:
    """Check that a second batch does all tasks, and resumes those that were begun, with their work."""
    ids = batch.ids
    batch.during("")
    again = batch.run("-j", "2")
    assert again.status == 0, again.stderr
    assert batch.calls == sorted([*ALL, *begun])
    assert ids < batch.ids
    assert len(batch.ids) == 3
    with_work = [name for name in batch.repo.branches() if batch.repo.git("ls-tree", name, "left")]
    assert len(with_work) == len(begun)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_sessions_saved(batch: Batch, number: signal.Signals) -> None:
    """And no other one starts. The status is that of the signal."""
    batch.during(HANG)
    process = batch.start("-j", "2", "--json")
    _wait_for_work(batch, "one", "two")
    process.send_signal(number)
    result = result_of(process)
    assert result.status == 128 + number, result.stderr
    assert [report["ended_by"] for report in batch.reports] == ["signal", "signal"]
    assert all(report["saved"] for report in batch.reports)
    answered = json.loads(result.stdout)
    assert (answered["success"], [row["done"] for row in answered["data"]]) == (False, [False] * 3)
    _assert_going_on(batch, ["one", "two"])


def test_a_second_signal_takes_the_grace_away(batch: Batch) -> None:
    """As in ``run``: the agent, which ignores the first one, has no hour."""
    batch.during("trap ': > \"$RALPH_PROJECT/calls.signal\"' INT TERM\n" + HANG)
    process = batch.start("--grace", "1h")
    _wait_for_work(batch, "one")
    process.send_signal(signal.SIGINT)
    _wait_for_work(batch, "signal")
    process.send_signal(signal.SIGINT)
    assert result_of(process).status == 130


def test_a_kill_ends_the_sessions_saved(batch: Batch) -> None:
    """The kernel tells them; the next batch waits until they have ended."""
    batch.during(HANG)
    process = batch.start("-j", "2")
    _wait_for_work(batch, "one", "two")
    process.kill()
    assert result_of(process).status == -signal.SIGKILL
    _assert_going_on(batch, ["one", "two"])
    assert [report["ended_by"] for report in batch.reports][:2] == ["signal", "signal"]


def test_a_session_that_is_killed_leaves_its_task_open(batch: Batch) -> None:
    """The others are done, and the next batch goes on with its work."""
    batch.during('[ "$task" = two ] || return 0\n' + HANG)
    process = batch.start("-j", "3", "--json")
    _wait_for_work(batch, "two")
    (two,) = (
        entry["session"]
        for entry in json.loads(command("ps", "--json", cwd=batch.repo.path).stdout)["data"]
        if entry["title"] == "two"
    )
    record = json.loads((batch.repo.path / f".ralph/run/agents/{two[-4:]}.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    result = result_of(process)
    assert result.status == 1
    rows = {row["title"]: (row["done"], row["ended_by"]) for row in json.loads(result.stdout)["data"]}
    assert rows == {"one": (True, "promise"), "two": (False, "killed"), "three": (True, "promise")}
    batch.during("")
    assert batch.run().status == 0
    assert len(batch.ids) == 3


def test_a_stopped_session_leaves_its_task_open(batch: Batch) -> None:
    """The user has stopped this one alone: the batch goes on with the others."""
    batch.during('[ "$task" = one ] || return 0\n' + HANG)
    process = batch.start()
    _wait_for_work(batch, "one")
    assert command("stop", "--all", cwd=batch.repo.path).status == 0
    result = result_of(process)
    assert (result.status, batch.calls) == (1, ALL)


def test_the_time_of_a_batch_ends_its_sessions_saved(batch: Batch) -> None:
    """No further one starts."""
    batch.during(HANG)
    result = batch.run("--batch-max-time", "3s")
    assert (result.status, batch.calls) == (124, ["one"])
    (report,) = batch.reports
    assert (report["ended_by"], bool(report["saved"])) == ("signal", True)


def test_a_usage_limit_pauses_all(batch: Batch) -> None:
    """No session starts before its end; then all tasks are done. Both agents run when one finds the limit."""
    batch.repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{batch.agent}"]\noutput = "claude"\n')
    shared = '"$RALPH_PROJECT"/.ralph/run/limits/*'
    batch.during(
        f"""if [ "$task" = one ] && [ ! -e "$RALPH_PROJECT/calls.limit" ]; then
: > "$RALPH_PROJECT/calls.limit"
until [ -e "$RALPH_PROJECT/calls.two" ]; do sleep 0.01; done
{limited(8)}exit 1
fi
if [ "$task" = two ]; then
: > "$RALPH_PROJECT/calls.two"
until ls {shared} >/dev/null 2>&1; do sleep 0.01; done
fi
{result_line(PROMISE)}exit 0
"""
    )
    words = ("batch", "TASKS.md", "-a", "mine", "-j", "2")
    result = command(*words, cwd=batch.repo.path, env=TRUSTED)
    assert result.status == 0, result.stderr
    names = [event["event"] for event in result.narration]
    (paused,) = (event for event in result.narration if event["event"] == "batch.paused")
    assert names.index("batch.paused") < len(names) - 1 - names[::-1].index("task.started")
    started = [event["at"] for event in result.narration if event["event"] == "task.started"]
    assert datetime.fromisoformat(started[-1]) >= datetime.fromtimestamp(paused["until"], UTC)


@pytest.mark.parametrize("name", ["report.json", "record.json"])
def test_a_task_whose_end_is_unknown_is_not_done_again(batch: Batch, name: str) -> None:
    """A batch that was killed, and a file that cannot be read: the session may have done the task."""
    batch.during('[ "$task" = one ] || return 0\n' + HANG)
    process = batch.start("-j", "1")
    _wait_for_work(batch, "one")
    process.kill()
    result_of(process)
    files = eventually(
        lambda: [*batch.repo.path.glob(f".ralph/run/sessions/*/{name}")], "the end of the session"
    )
    (path,) = files
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    batch.during("")
    again = batch.run()
    assert (again.status, batch.calls) == (1, ALL), again.stderr
    (error,) = [event for event in again.warnings if event["event"] == "task.unknown"]
    assert error["message"].startswith("one: whether it is done is not known: ")
    path.write_bytes(whole)
    assert batch.run().status == 0
    assert batch.calls == sorted([*ALL, "one"])
