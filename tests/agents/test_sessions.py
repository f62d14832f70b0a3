"""Whole sessions of the real agents, which talk to a scripted model instead of their vendors."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.capture import PROMISE
from tests.agents.programs import (
    IN_EVERY_TEST,
    PROGRAMS,
    WHO_COMMITS,
    as_users_start_it,
    with_subscription,
    without_login,
)
from tests.agents.refusals import REFUSALS, UNTIL
from tests.agents.script import Dropping, Failing, Hanging, Limited, Say, Shell, Write
from tests.agents.server import Model
from tests.support.agent_script import TRUSTED
from tests.support.processes import left, running
from tests.support.sessions import Session, assert_ended_by, read_events
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.agents.programs import Program
    from tests.agents.script import Turn
    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = [
    pytest.mark.agents,
    pytest.mark.timeout(180),  # opencode takes 4 to 8 s for an answer that comes at once
]

PATIENCE = 150.0  # seconds
ASKED = f"Do the task.\nWhen it is done, answer\n{PROMISE}\n"  # the promise is a line of the prompt
COMMIT = 'git add counted; git commit -qm "turn $RALPH_ITERATION"'
WORK = Shell(f'echo "$RALPH_ITERATION" >> counted; {COMMIT}; echo; echo "{PROMISE}"', "Working.")
TOKENS = 1100  # of a turn


@dataclass
class Running:
    """A session that runs, and the model that its agent talks to."""

    session: Session
    model: Model

    def wait_for(self, event: str) -> None:
        """Wait for an event, as long as a real agent may take."""

        def look() -> bool:
            return event in {entry["event"] for entry in read_events(self.session.directory)}

        eventually(look, f"event {event}", cap=PATIENCE)

    def finish(self) -> Result:
        """Wait for the session's end."""
        return self.session.finish(PATIENCE)


@contextlib.contextmanager
def _running(
    program: Program,
    repo: Repo,
    tmp_path: Path,
    script: Sequence[Sequence[Turn]],
    *options: str,
    change: Callable[[dict[str, str]], Mapping[str, str]] = dict,
    late: bool = False,
) -> Iterator[Running]:
    with Model(script, tmp_path / "iteration", late=late) as model:
        env = change(program.set_up(tmp_path / "home", model.url, tmp_path / "iteration"))
        arguments = ("-a", program.name, "-p", ASKED, "--ignore", "exclude", *options)
        with Session(repo.path, *arguments, env=env) as session:
            yield Running(session, model)


@pytest.mark.parametrize("program", WHO_COMMITS, indirect=True)
def test_it_keeps_its_promise_at_the_second_iteration(program: Program, repo: Repo, tmp_path: Path) -> None:
    """It works and commits in its worktree; prompt, tools, thoughts and earlier words keep no promise."""
    script: list[list[Turn]] = [
        [WORK, Write("notes.txt", "noted\n"), Say(f"I will say {PROMISE} later.", thought=f"{PROMISE}\n")],
        [WORK, Say(f"All of it is done.\n{PROMISE}", pieces=4, pause=0.05)],
    ]
    before = repo.fingerprint()
    with _running(program, repo, tmp_path, script) as running_:
        result = running_.finish()
    assert result.ending == ("promise", 2, 0)
    report = result.report
    assert repo.show(f"{report['branch']}:counted") == b"1\n2\n"
    assert repo.git("log", "--format=%s", f"{report['base']}..{report['branch']}").split("\n") == [
        *("turn 2", "turn 1")
    ]
    assert (report["saved_paths"], repo.show(f"{report['saved']}:notes.txt").strip()) == (
        ["notes.txt"],
        b"noted",
    )
    if program.name in {"copilot", "kimi"}:
        assert not report["tokens"]
    else:
        assert report["tokens"] == TOKENS * 5
    assert bool(report["cost_usd"]) is (program.name in {"claude", "opencode"})
    assert repo.fingerprint() == before
    assert repo.worktrees() == []
    assert left(tmp_path / "home") == {}
    lines = result.stdout.decode().splitlines()
    assert (lines[-2:], lines.count("Working.")) == (["All of it is done.", PROMISE], 2)
    assert sum(line.startswith("> ") and COMMIT in line for line in lines) == 2
    assert not any(line.startswith("{") for line in lines)


@pytest.mark.parametrize("program", ["claude", "codex"], indirect=True)
def test_raw_is_the_stream_as_it_comes(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Each line of it is JSON, and it is what is in the log, too; the promise counts all the same."""
    with _running(program, repo, tmp_path, [[Say(PROMISE)]], "--raw") as running_:
        result = running_.finish()
    assert result.ending == ("promise", 1, 0)
    assert {type(json.loads(line)) for line in result.stdout.splitlines()} == {dict}
    logged = result.output_log.splitlines()
    assert [line for line in logged if line.startswith(b'{"type"')] == result.stdout.splitlines()


@pytest.mark.parametrize("program", [*IN_EVERY_TEST, "copilot", "qwen", "kimi"], indirect=True)
def test_a_usage_limit_is_known_with_its_time(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Whatever the exit status; those that tell when it ends are believed, and it is waited for.

    Droid asks again for a minute and a half: its stream alone is read, as it was captured.
    """
    change = with_subscription if program.name == "claude" else dict
    script: list[list[Turn]] = [[Limited(UNTIL)]]
    with _running(program, repo, tmp_path, script, "-n", "1", change=change) as running_:
        running_.wait_for("limit.waiting")
        running_.session.send(signal.SIGTERM)
        result = running_.finish()
    assert_ended_by(result, signal.SIGTERM)
    (printed,) = [event for event in result.events if event["event"] == "agent.limited"]
    # Codex tells no seconds, opencode and Kimi Code how long it lasts, the others no time.
    assert printed["until"] == {
        "claude": UNTIL,
        "codex": UNTIL + 20,
        "opencode": pytest.approx(UNTIL, abs=60),
        "kimi": pytest.approx(UNTIL, abs=60),
    }.get(program.name)
    assert printed["level"] == "warning"


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_codex_goes_on_while_the_limit_of_claude_holds(program: Program, repo: Repo, tmp_path: Path) -> None:
    """And Claude Code again after it; each goes on with its own conversation, model and permissions."""
    codex = PROGRAMS["codex"]
    repo.write(".ralph/config.toml", "keep_conversation = true\n")
    # Each launcher tells its own model of the iteration.
    claude_iteration, codex_iteration = tmp_path / "claude-iteration", tmp_path / "codex-iteration"
    of_claude: list[list[Turn]] = [[WORK, Say("On.")], [Limited(UNTIL)]]
    of_codex: list[list[Turn]] = [[WORK, Say("On.")]]
    with Model(of_claude, claude_iteration) as first, Model(of_codex, codex_iteration) as second:
        env = with_subscription(program.set_up(tmp_path / "home", first.url, claude_iteration))
        env |= codex.set_up(tmp_path / "home", second.url, codex_iteration)
        words = ("-a", "claude", "--model", "opus", "--fallback", "codex", "--delay", "4s", "-p", ASKED)
        with Session(repo.path, *words, "--ignore", "exclude", env={**env, **TRUSTED}) as session:

            def codex_has_worked_twice() -> bool:
                events = read_events(session.directory)
                ended = [event for event in events if event["event"] == "iteration.ended"]
                return [event["agent"] for event in ended].count("codex") > 1

            eventually(codex_has_worked_twice, "two iterations of Codex", cap=PATIENCE)
            of_claude[1:] = [[Say(PROMISE)]]  # the limit has ended, which a user may say
            (limit,) = repo.path.glob(".ralph/run/limits/claude-*.json")
            limit.unlink()
            result = session.finish(PATIENCE)
    turns = [event["agent"] for event in result.events if event["event"] == "iteration.started"]
    assert (result.report["ended_by"], turns[:3], turns[-1]) == (
        "promise",
        ["claude", "claude", "codex"],
        "claude",
    )
    assert set(turns[2:-1]) == {"codex"}
    started = [event for event in result.events if event["event"] == "agent.started"]
    resumed = [event["resumed"] for event in started]
    of_first = {event["resumed"] for event in started[1:] if event["agent"] == "claude"}
    assert (resumed[0], resumed[2], len(of_first), None in of_first) == (None, None, 1, False)
    assert not of_first & {event["resumed"] for event in started if event["agent"] == "codex"}
    assert {body["model"] for _, body in second.requests} == {"scripted"}
    shares = {entry["agent"]: entry for entry in result.report["agents"]}
    assert (shares["claude"]["cost_usd"] > 0, shares["codex"]["cost_usd"]) == (True, None)
    assert shares["codex"]["iterations"] == turns.count("codex")


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "opencode"], indirect=True)
def test_without_a_login_the_session_ends_at_once(program: Program, repo: Repo, tmp_path: Path) -> None:
    """With its words, after one iteration; opencode needs none for the model that it is set up for."""
    script: list[list[Turn]] = [[Say(PROMISE)]]
    change = partial(without_login, program.name)
    with _running(program, repo, tmp_path, script, change=change) as running_:
        result = running_.finish()
    assert result.ending == ("not-logged-in", 1, 77), result.stderr
    assert result.report["error"].startswith(
        {
            "claude": "Not logged in",
            "codex": "Missing environment variable",
            "gemini": "When using Gemini API, you must specify",
            "qwen": "Missing API key",
            "copilot": "Error: No authentication information found.",
            "kimi": "error: failed to run prompt: No model configured.",
            "droid": "Error: Authentication failed.",
        }[program.name]
    )


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_a_login_that_is_refused_ends_the_session_at_once(
    program: Program, repo: Repo, tmp_path: Path
) -> None:
    """The service has answered with 401, whatever the agent makes of it."""
    of_whom = "qwen" if program.name == "kimi" else program.name  # its stream tells nothing, its stderr does
    script: list[list[Turn]] = [[REFUSALS[of_whom]["unauthorized"].answer]]
    with _running(program, repo, tmp_path, script) as running_:
        result = running_.finish()
    assert result.ending == ("not-logged-in", 1, 77), result.stderr


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_a_usage_limit_is_waited_for(program: Program, repo: Repo, tmp_path: Path) -> None:
    """The same iteration is done again when it has ended, and keeps its promise; nothing has counted."""
    until = int(time.time()) + 25  # it takes 2 s to start, and up to 15 where others want the processor
    script: list[list[Turn]] = [[Limited(until), Say(PROMISE)]]
    strict = ("-n", "1", "--max-failures", "1", "--max-stalls", "1")
    with _running(program, repo, tmp_path, script, *strict, change=with_subscription) as running_:
        result = running_.finish()
    assert result.ending == ("promise", 1, 0)
    (waiting,) = [event for event in result.events if event["event"] == "limit.waiting"]
    assert (abs(waiting["until"] - until) < 1, waiting["iteration"]) == (True, 1)
    assert [event["iteration"] for event in result.events if event["event"] == "iteration.started"] == [1, 1]


@pytest.mark.parametrize(
    ("program", "case"),
    [
        *(("codex", "quota"), ("codex", "rate"), ("codex", "error"), ("codex", "capacity")),
        *(("gemini", "minute"), ("gemini", "exhausted"), ("gemini", "capacity")),
    ],
    indirect=["program"],
)
def test_a_refusal_is_a_limit_or_passes(program: Program, repo: Repo, tmp_path: Path, case: str) -> None:
    """As the vendor's documentation says: a session waits until the time that it names, or backs off."""
    refusal = REFUSALS[program.name][case]
    begun = time.time()
    with _running(program, repo, tmp_path, [[refusal.answer]], "-n", "1", "--max-failures", "1") as running_:
        if refusal.means == "limit":
            running_.wait_for("limit.waiting")
            running_.session.send(signal.SIGTERM)
        result = running_.finish()
    printed = {event["event"]: event for event in result.events}
    if refusal.means == "passing":
        assert (result.ending[:2], printed["agent.failed"]["passing"]) == (("max-failures", 1), True)
        return
    assert_ended_by(result, signal.SIGTERM)
    assert "agent.failed" not in printed
    until = printed["agent.limited"]["until"]
    assert (until is None) is (refusal.wait is None)
    assert refusal.wait is None or 0 <= until - begun - refusal.wait <= time.time() - begun


@pytest.mark.parametrize("program", ["codex"], indirect=True)
def test_an_agent_waits_for_the_network(program: Program, repo: Repo, tmp_path: Path) -> None:
    """At first there is no server. The session sees that the agent waits; with a server it works."""
    with _running(program, repo, tmp_path, [[Say(PROMISE)]], "-n", "1", late=True) as running_:
        running_.wait_for("agent.started")
        log = running_.session.directory / "output.log"
        eventually(lambda: b"waiting for network" in log.read_bytes(), "that it waits", cap=60)
        running_.model.listen()
        result = running_.finish()
    assert result.ending == ("promise", 1, 0)
    assert b"! Reconnecting... waiting for network" in result.stdout


@pytest.mark.parametrize(
    ("program", "turns"),
    [
        ("claude", [Shell("echo half > half; sleep 1000", "Working.")]),
        # It tells what a turn has cost when its tools have ended.
        ("opencode", [Shell("echo half > half", "Working."), Shell("sleep 1000")]),
    ],
    indirect=["program"],
)
def test_tokens_end_an_iteration_while_it_streams(
    program: Program, repo: Repo, tmp_path: Path, turns: list[Turn]
) -> None:
    """Before its tool has ended, and with all that it has started."""
    script: list[list[Turn]] = [[*turns, Say(PROMISE)]]
    with _running(program, repo, tmp_path, script, "--max-tokens", "1000", "--grace", "3s") as running_:
        result = running_.finish()
    assert result.ending == ("max-tokens", 1, 124)
    assert result.report["tokens"] >= 1000
    assert left(tmp_path / "home") == {}


LONG = Shell("sleep 0.5", output_tokens=10_000)
LONG_TOKENS, LONG_COST = 11_000, 0.255


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_a_limit_on_tokens_is_exceeded_by_one_turn_at_most(
    program: Program, repo: Repo, tmp_path: Path
) -> None:
    """The output tokens of each turn count at its end, while the agent works on."""
    script: list[list[Turn]] = [[*[LONG] * 40, Say(PROMISE)]]
    with _running(program, repo, tmp_path, script, "--max-tokens", "50000", "--grace", "3s") as running_:
        result = running_.finish()
    assert result.ending == ("max-tokens", 1, 124)
    assert 50_000 <= result.report["tokens"] <= 50_000 + LONG_TOKENS


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_a_limit_on_cost_is_exceeded_by_one_turn_at_most(
    program: Program, repo: Repo, tmp_path: Path
) -> None:
    """In the first iteration, for which the session has no price yet."""
    script: list[list[Turn]] = [[*[LONG] * 40, Say(PROMISE)]]
    with _running(program, repo, tmp_path, script, "--max-cost", "1") as running_:
        result = running_.finish()
    assert result.ending == ("max-cost", 1, 124)
    assert 1 <= result.report["cost_usd"] <= 1 + LONG_COST


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_the_turn_of_the_final_answer_is_not_cut_short(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Its tokens exceed the limit at its end, when the promise is already on its way."""
    script: list[list[Turn]] = [[Shell("true"), Say(PROMISE)]]
    with _running(program, repo, tmp_path, script, "--max-tokens", str(TOKENS * 2 - 10)) as running_:
        result = running_.finish()
    assert (result.ending, result.report["tokens"]) == (("promise", 1, 0), TOKENS * 2)


@pytest.mark.parametrize("program", ["codex", "gemini"], indirect=True)
def test_tokens_end_the_loop_after_an_iteration(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Where the agent does not tell before its end; it has done its work, and does no more."""
    script: list[list[Turn]] = [[Shell("echo whole > whole"), Say("Not yet.")]]
    with _running(program, repo, tmp_path, script, "--max-tokens", "1000", "-n", "3") as running_:
        result = running_.finish()
    assert result.ending == ("max-tokens", 1, 0)
    assert (result.report["tokens"], result.report["saved_paths"]) == (TOKENS * 2, ["whole"])


@pytest.mark.parametrize("program", ["claude"], indirect=True)
def test_its_own_cap_is_the_rest_of_the_budget(program: Program, repo: Repo, tmp_path: Path) -> None:
    """By which it ends itself; a turn costs more than is left after the first one."""
    script: list[list[Turn]] = [[Say("Not yet.")], [Shell("echo one"), Shell("echo two"), Say(PROMISE)]]
    with _running(program, repo, tmp_path, script, "--max-cost", "0.008") as running_:
        result = running_.finish()
    assert result.ending == ("max-cost", 2, 124)
    assert [event["cut"] for event in result.events if event["event"] == "iteration.ended"] == [
        *(None, "max-cost")
    ]
    (failed,) = [event["message"] for event in result.events if event["event"] == "agent.failed"]
    assert failed.startswith("the agent failed: Reached maximum budget")
    assert 0.008 < result.report["cost_usd"] < 0.03


def test_an_agent_that_is_refused_fails(program: Program, repo: Repo, tmp_path: Path) -> None:
    """By a request that the service does not understand, so that the same will not work later."""
    with _running(program, repo, tmp_path, [[Failing(400)]], "-n", "1") as running_:
        result = running_.finish()
    assert (result.ending[:2], result.status != 0) == (("max-iterations", 1), True)
    failed = [event for event in result.events if event["event"] == "agent.failed"]
    assert [event["passing"] for event in failed] == [False]


# opencode repeats what was dropped and tells nothing; to gemini half of an answer is a whole one.
@pytest.mark.parametrize(
    ("program", "turn"),
    [
        *(("claude", Failing(529)), ("codex", Failing(529)), ("gemini", Failing(529))),
        ("opencode", Failing(529)),
        *(("claude", Dropping()), ("codex", Dropping())),
    ],
    indirect=["program"],
)
def test_a_service_in_trouble_makes_no_progress(
    program: Program, repo: Repo, tmp_path: Path, turn: Turn
) -> None:
    """An overload, or a connection that ends half way."""
    with _running(program, repo, tmp_path, [[turn]], "-n", "1") as running_:
        result = running_.finish()
    assert (result.ending[:2], result.status != 0) == (("max-iterations", 1), True)
    assert "agent.failed" in result.names


@pytest.mark.parametrize("program", ["claude", "gemini"], indirect=True)
def test_an_agent_without_a_network_may_work_later(program: Program, repo: Repo, tmp_path: Path) -> None:
    """It gives up where another one waits; that is no limit, and tells nothing of the work."""
    with _running(program, repo, tmp_path, [[Say(PROMISE)]], "--max-failures", "1", late=True) as running_:
        result = running_.finish()
    assert result.ending[:2] == ("max-failures", 1)
    assert [event["passing"] for event in result.events if event["event"] == "agent.failed"] == [True]


def test_an_agent_that_hangs_is_idle(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Nothing comes from the model: --idle-timeout ends it, and nothing of it is left."""
    silence = "15s" if program.name == "opencode" else "6s"
    options = ("-n", "1", "--idle-timeout", silence, "--grace", "2s")
    with _running(program, repo, tmp_path, [[Hanging()]], *options) as running_:
        result = running_.finish()
    assert result.ending == ("max-iterations", 1, 124)
    assert [event["cut"] for event in result.events if event["event"] == "iteration.ended"] == [
        "idle-timeout"
    ]
    assert left(tmp_path / "home") == {}


@pytest.mark.parametrize(
    ("program", "number"),
    [
        *((name, signal.SIGTERM) for name in PROGRAMS),
        *((name, signal.SIGINT) for name in ("claude", "codex")),
    ],
    indirect=["program"],
)
def test_an_agent_is_interrupted_in_its_shell(
    program: Program, repo: Repo, tmp_path: Path, number: signal.Signals
) -> None:
    """Its work is saved, and no process is left: not even a shell that has left its group."""
    mark = tmp_path / "in-the-shell"
    script: list[list[Turn]] = [[Shell(f"echo half > half; touch {mark}; exec sleep 1000"), Say(PROMISE)]]
    options = ("--grace", "3s")
    with _running(program, repo, tmp_path, script, *options, change=as_users_start_it) as running_:
        eventually(mark.exists, "the agent's shell", cap=60)
        # The control: it is there to be left.
        eventually(lambda: "sleep 1000" in running(tmp_path / "home").values(), "what its shell has become")
        running_.session.send(number)
        result = running_.finish()
    assert_ended_by(result, number)
    assert repo.show(f"{result.report['saved']}:half") == b"half\n"
    assert repo.worktrees() == []
    assert left(tmp_path / "home") == {}
