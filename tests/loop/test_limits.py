"""What ends a loop by what its agent spends or has said: tokens, cost, a promise that it has kept."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import ralph_wrap
from ralph_wrap.config import Settings
from ralph_wrap.config.settings import AgentInvocation
from ralph_wrap.loop import Driver
from ralph_wrap.session import agent_loop
from ralph_wrap.state import report as reports
from tests.support.agent_script import PROMISE, result_line, says
from tests.support.processes import left
from tests.support.sessions import Session, read_events, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

TALKS_ON = "exec sleep 1000"


def _cuts(result: Result) -> list[str | None]:
    return [event["cut"] for event in result.events if event["event"] == "iteration.ended"]


def _warned(result: Result) -> list[str]:
    return [printed["message"] for printed in result.warnings]


# Tokens


def test_tokens_end_an_iteration_while_it_streams(mine: Callable[..., Result], repo: Repo) -> None:
    """As a time limit does: it is asked to end, and its work is saved."""
    result = mine(f"echo half > half\n{says('Hm.')}{TALKS_ON}", "--max-tokens", "11")
    assert (result.ending, _cuts(result)) == (("max-tokens", 1, 124), ["max-tokens"])
    assert _warned(result) == ["max-tokens reached: the agent is asked to end"]
    assert repo.show(f"{result.report['saved']}:half") == b"half\n"


def test_an_agent_that_spends_on_is_killed_after_the_grace(mine: Callable[..., Result], home: Path) -> None:
    """One that ignores the question."""
    body = f"trap '' TERM\n{says('Hm.')}while :; do sleep 0.05; done"
    assert mine(body, "--max-tokens", "11", "--grace", "300ms").ending == ("max-tokens", 1, 124)
    assert left(home) == {}


@pytest.mark.parametrize(("limit", "iterations"), [(123, 1), (124, 2), (246, 2)])
@pytest.mark.parametrize("status", [0, 3])
def test_tokens_that_are_reached_at_an_end_cut_nothing_short(
    mine: Callable[..., Result], limit: int, iterations: int, status: int
) -> None:
    """Those of all iterations together count; the status is that of the last one."""
    body = result_line("Fine.") + f"exit {status}"
    result = mine(body, "--max-tokens", str(limit), "--max-failures", "9")
    assert (result.ending, set(_cuts(result))) == (("max-tokens", iterations, status), {None})


def test_an_iteration_below_the_limit_is_left_alone(mine: Callable[..., Result]) -> None:
    """Negative control: the limit itself does no harm."""
    result = mine(says("Hm.") + result_line("Fine."), "--max-tokens", "124", "--max-cost", "0.26", "-n", "1")
    assert (result.ending, result.warnings) == (("max-iterations", 1, 0), [])


def test_a_promise_beats_what_it_has_cost(mine: Callable[..., Result]) -> None:
    """It is kept."""
    result = mine(result_line(PROMISE), "--max-tokens", "1", "--max-cost", "0.01")
    assert result.ending == ("promise", 1, 0)


def test_the_report_names_the_brake(mine: Callable[..., Result]) -> None:
    """With what was spent, and what to type next."""
    body = "echo > made; git add made; git commit -qm made\n" + result_line("Fine.")
    result = mine(body, "--max-tokens", "100")
    assert result.directory is not None
    report = reports.read(result.directory / "report.json")
    assert isinstance(report, reports.SessionReport)
    rows = reports.summary(report, result.directory).splitlines()
    assert rows[0] == "ralph-wrap: session ended: limit reached after 1 iteration (exit status 0)"
    assert "  limit      --max-tokens: this number of tokens is used" in rows
    assert "  spent      123 tokens, $0.25 reported" in rows
    assert rows[-3:] == [
        f"  next       ralph-wrap diff {report.id}",
        f"             ralph-wrap merge {report.id}",
        f"  go on      ralph-wrap resume {report.id}",
    ]


# Cost


def test_cost_ends_the_loop(mine: Callable[..., Result]) -> None:
    """Once that much was reported."""
    result = mine(result_line("Fine."), "--max-cost", "0.5")
    assert (result.ending, result.report["cost_usd"]) == (("max-cost", 2, 0), 0.5)


def test_cost_is_estimated_while_an_iteration_streams(mine: Callable[..., Result]) -> None:
    """By what a token has cost so far: 122 of them nearly as much as the 123 before."""
    body = f'[ "$RALPH_ITERATION" = 1 ] || {{\n{says("Hm.", 122)}{TALKS_ON}\n}}\n' + result_line("Fine.")
    result = mine(body, "--max-cost", "0.49")
    assert (result.ending, _cuts(result)) == (("max-cost", 2, 124), [None, "max-cost"])
    assert result.report["cost_usd"] == 0.25


def test_before_any_cost_was_reported_there_is_no_price(mine: Callable[..., Result]) -> None:
    """So nothing is cut short in the first iteration, however many tokens it takes."""
    result = mine(says("Hm.", 10**9) + result_line("Fine."), "--max-cost", "0.26", "-n", "1")
    assert (result.ending, _cuts(result)) == (("max-iterations", 1, 0), [None])


def _claude(repo: Repo, tmp_path: Path, body: str, *options: str, table: str = "") -> Result:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}")
    program.chmod(0o755)
    repo.write(".ralph/config.toml", table)
    env = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "RALPH_TRUST": "1"}
    return run(repo.path, "-a", "claude", "-p", "x", *options, env=env)


SHOWS = (
    'echo "left: $*" | sed "s/--output.*permissions\\( --include-partial-messages\\)\\?//"\n'
    + result_line("Fine.")
)


def test_an_agent_with_a_cap_is_given_the_rest(repo: Repo, tmp_path: Path) -> None:
    """Anew in each iteration."""
    result = _claude(repo, tmp_path, SHOWS, "--max-cost", "0.5")
    assert result.stdout.splitlines() == [
        *(b"left: -p  --max-budget-usd 0.5000", b"left: -p  --max-budget-usd 0.2500")
    ]


def test_without_a_limit_there_is_no_cap(repo: Repo, tmp_path: Path) -> None:
    """Negative control."""
    assert _claude(repo, tmp_path, SHOWS, "-n", "1").stdout.splitlines()[0] == b"left: -p "


@pytest.mark.parametrize(
    ("command", "words"),
    [('["claude", "--fast"]', b"left: --fast --max-budget-usd 1.0000"), ('["env", "claude"]', b"left: ")],
)
def test_a_cap_is_for_the_program_that_knows_it(
    repo: Repo, tmp_path: Path, command: str, words: bytes
) -> None:
    """Not for another one that a table puts in its place."""
    table = f"[agents.claude]\ncommand = {command}\n"
    result = _claude(repo, tmp_path, SHOWS, "--max-cost", "1", "-n", "1", table=table)
    assert result.stdout.splitlines()[0] == words


CAPPED = result_line("", is_error=True, subtype="error_max_budget_usd", total_cost_usd=0.4) + "exit 1\n"


def test_an_agent_that_ends_at_its_cap_was_cut_short(repo: Repo, tmp_path: Path) -> None:
    """By our limit, which it was given, whatever it then reports."""
    result = _claude(repo, tmp_path, CAPPED, "--max-cost", "0.5")
    assert (result.ending, _cuts(result)) == (("max-cost", 1, 124), ["max-cost"])


def test_a_cap_that_is_not_ours_is_a_failure(repo: Repo, tmp_path: Path) -> None:
    """Negative control: the user gives the agent one for each iteration."""
    assert _claude(repo, tmp_path, CAPPED, "-n", "1").ending == ("max-iterations", 1, 1)


def test_a_limit_that_cannot_hold_is_reported_once(repo: Repo) -> None:
    """The agent does not report what it limits."""
    limits = ("--max-cost", "1", "--max-tokens", "5")
    result = run(repo.path, "-n", "2", *limits, "--", "true")
    assert result.ending == ("max-iterations", 2, 0)
    assert _warned(result) == ["no effect: --max-tokens and --max-cost; the agent does not report it"]


def test_an_agent_that_was_interrupted_had_no_time_to_report(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """It ends with status 0 at SIGINT, without its report: that says nothing about what it reports."""
    agent = script("trap 'exit 0' INT; while :; do sleep 0.05; done")
    with Session(repo.path, "--max-cost", "5", "--max-tokens", "5", "--", agent) as session:
        session.wait_for("agent.started")
        session.send(signal.SIGINT)
        result = session.finish()
    assert result.ending == ("signal", 1, 130)
    assert _warned(result) == []


# The promise


def _run_here(
    repo: Repo, agent: str, monkeypatch: pytest.MonkeyPatch, *, left_to_it: float = 0.2, **settings: Any
) -> tuple[ralph_wrap.Session, list[dict[str, Any]]]:
    """Run a session in this process, in which little is left to an agent after its promise."""
    monkeypatch.setattr(agent_loop, "Driver", partial(Driver, promise_grace=left_to_it))
    given = Settings(
        project=repo.path, command=(agent,), invocation=AgentInvocation(output="claude"), **settings
    )
    with ralph_wrap.Session(given) as session:
        session.run()
    assert session.report is not None
    return session, read_events(repo.path / ".ralph" / "run" / "sessions" / session.report.session)


@pytest.mark.parametrize("deaf", ["", "trap '' TERM\n"])
def test_an_agent_that_hangs_after_its_promise_is_ended(
    repo: Repo, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, deaf: str
) -> None:
    """With its whole group; the promise is kept all the same."""
    agent = script(f"{deaf}{result_line(PROMISE)}sleep 1000 & wait; exec sleep 1000")
    session, events = _run_here(repo, agent, monkeypatch, grace=0.3)
    assert session.report is not None
    assert (session.report.ended_by, session.report.exit_status) == ("promise", 0)
    assert [event["cut"] for event in events if event["event"] == "iteration.ended"] == ["after-promise"]
    assert [event["message"] for event in events if event["event"] == "limit.reached"] == [
        "the promise is kept, but the agent did not end in time: the agent is asked to end"
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(result_line(PROMISE), id="that ends by itself"),
        pytest.param(says(PROMISE) + "sleep 1\n" + result_line(PROMISE), id="not yet the answer"),
        pytest.param(result_line(PROMISE) + result_line("No.") + "sleep 1\n", id="taken back"),
    ],
)
def test_an_agent_that_has_not_done_so_is_left_alone(
    repo: Repo, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """Negative control: the time begins with the final answer."""
    _, events = _run_here(repo, script(body), monkeypatch, max_iterations=1)
    assert [event["cut"] for event in events if event["event"] == "iteration.ended"] == [None]


def test_a_promise_that_is_kept_anew_begins_anew(
    repo: Repo, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts from the answer that is final."""
    body = f"{result_line(PROMISE)}{result_line('No.')}sleep 2.5\n{result_line(PROMISE)}sleep 0.2\n"
    session, events = _run_here(repo, script(body), monkeypatch, left_to_it=2.0)
    assert session.report is not None
    assert session.report.ended_by == "promise"
    assert [event["cut"] for event in events if event["event"] == "iteration.ended"] == [None]
