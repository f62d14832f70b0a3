"""The loop's time limits, between iterations and within one."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import STUBBORN, left
from tests.support.sessions import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

SH = ("--", "sh", "-c")


def _seconds(before: dict[str, Any], after: dict[str, Any]) -> float:
    return (datetime.fromisoformat(after["at"]) - datetime.fromisoformat(before["at"])).total_seconds()


def _only(result: Result, name: str) -> dict[str, Any]:
    (event,) = (event for event in result.events if event["event"] == name)
    return event


@pytest.mark.parametrize("status", [0, 3])
def test_max_time_between_iterations_keeps_the_last_status(repo: Repo, status: int) -> None:
    """Nothing was cut short, so nothing is 124."""
    result = run(repo.path, "--max-time", "3s", "--delay", "1h", *SH, f"exit {status}")
    assert result.ending == ("max-time", 1, status)


def test_max_time_cuts_an_iteration_short(repo: Repo) -> None:
    """The agent is ended, its work is saved, and the status is 124."""
    result = run(repo.path, "--max-time", "2s", *SH, "echo half > done; exec sleep 1000")
    assert result.ending == ("max-time", 1, 124)
    assert repo.show(f"{result.report['saved']}:done") == b"half\n"


def test_max_time_counts_from_the_first_iteration_on(repo: Repo) -> None:
    """It is a limit of the loop, not of an iteration."""
    agent = '[ "$RALPH_ITERATION" -lt 3 ] || exec sleep 1000; sleep 0.2'
    result = run(repo.path, "--max-time", "5s", *SH, agent)
    assert result.ending == ("max-time", 3, 124)


def test_an_iteration_that_was_cut_short_counts_as_failed(repo: Repo) -> None:
    """Twice 124 in a row is what --max-failures 2 asks for."""
    result = run(repo.path, "--iteration-timeout", "300ms", "--max-failures", "2", "--", "sleep", "1000")
    assert result.ending == ("max-failures", 2, 124)


def test_the_loop_goes_on_after_an_iteration_that_was_cut_short(repo: Repo) -> None:
    """The next iteration may succeed, and then that is how the session ends."""
    agent = '[ "$RALPH_ITERATION" = 2 ] || exec sleep 1000'
    result = run(repo.path, "--iteration-timeout", "2s", "-n", "2", *SH, agent)
    assert result.ending == ("max-iterations", 2, 0)


def test_an_iteration_within_its_limit_is_left_alone(repo: Repo) -> None:
    """Negative control: the limit itself does no harm."""
    result = run(repo.path, "--iteration-timeout", "1h", "--idle-timeout", "1h", "-n", "1", "--", "true")
    assert result.ending == ("max-iterations", 1, 0)
    assert "limit.reached" not in result.names


def test_a_promise_before_the_limit_counts(repo: Repo) -> None:
    """An agent that hangs after it has answered has answered."""
    agent = "echo '<promise>COMPLETE</promise>'; exec sleep 1000"
    result = run(repo.path, "--iteration-timeout", "1s", *SH, agent)
    assert result.ending == ("promise", 1, 0)


@pytest.mark.parametrize("stream", [1, 2])
def test_an_agent_that_talks_is_not_idle(repo: Repo, stream: int) -> None:
    """Each output, on either stream, starts the time anew."""
    agent = f"for n in 1 2 3 4 5 6; do echo $n >&{stream}; sleep 0.4; done"
    result = run(repo.path, "--idle-timeout", "1500ms", "-n", "1", *SH, agent)
    assert result.ending == ("max-iterations", 1, 0)


@pytest.mark.parametrize("first", ["true", "echo hello"])
def test_an_agent_that_falls_silent_is_cut_short(repo: Repo, first: str) -> None:
    """Whether or not it has said something before."""
    result = run(repo.path, "--idle-timeout", "500ms", "-n", "1", *SH, f"{first}; exec sleep 1000")
    assert result.ending == ("max-iterations", 1, 124)
    assert _only(result, "limit.reached")["message"] == "idle-timeout reached: the agent is asked to end"
    assert _only(result, "iteration.ended")["cut"] == "idle-timeout"


def test_an_agent_that_ends_when_asked_is_given_the_time(repo: Repo) -> None:
    """TERM comes first, and what the agent does then is still its work."""
    agent = "trap 'sleep 0.3; echo graceful > done; exit 0' TERM; echo ready; while :; do sleep 1; done"
    result = run(repo.path, "--idle-timeout", "2s", "--grace", "20s", "-n", "1", *SH, agent)
    assert result.ending == ("max-iterations", 1, 124)
    assert repo.show(f"{result.report['saved']}:done") == b"graceful\n"


def test_a_deaf_agent_is_killed_after_the_grace(repo: Repo, home: Path, tmp_path: Path) -> None:
    """Not before, and with everything it has started."""
    directory = tmp_path / "pids"
    directory.mkdir()
    roles = ("agent", "child", "group", "session", "daemon")
    talk = f'until [ -e {directory}/ready ]; do echo starting; sleep 0.2; done & exec "$@"'
    result = run(
        repo.path,
        *("--idle-timeout", "1s", "--grace", "700ms", "-n", "1"),
        *(*SH, talk, "sh", sys.executable, STUBBORN, directory, *roles),
    )
    assert result.ending == ("max-iterations", 1, 124)
    assert _seconds(_only(result, "limit.reached"), _only(result, "agent.exited")) >= 0.7
    assert {path.name for path in directory.glob("[!.]*")} >= set(roles)
    assert left(home) == {}


def test_what_a_cut_iteration_left_does_not_reach_the_next_one(repo: Repo) -> None:
    """Its processes are ended with it; those of an iteration that ended by itself may go on."""
    agent = (
        '[ "$RALPH_ITERATION" = 2 ] && { kill -0 "$(cat pid)" && exit 9; exit 0; }\n'
        "sleep 1000 & echo $! > pid; wait"
    )
    result = run(repo.path, "--iteration-timeout", "2s", "-n", "2", *SH, agent)
    assert result.ending == ("max-iterations", 2, 0)
