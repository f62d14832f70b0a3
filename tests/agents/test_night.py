"""Claude Code and Codex through what a night needs: a gate, a question, and a word from a person."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.agents.script import Hanging, Say, Shell
from tests.agents.server import Model
from tests.support.agent_script import PROMISE
from tests.support.processes import left
from tests.support.sessions import PROGRAM, Session, start
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.agents.programs import Program
    from tests.agents.script import Turn
    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = [
    pytest.mark.agents,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("program", ["claude", "codex"], indirect=True),
]

PATIENCE = 150.0  # seconds
PROMPT = "Do the task."
BLOCKED = "<promise>BLOCKED</promise>"
MESSAGE = "Use the new database."


@dataclass
class Night:
    """A session that runs, its model, and the environment of its agent."""

    session: Session
    model: Model
    env: dict[str, str]

    def finish(self) -> Result:
        """Wait for the session's end."""
        return self.session.finish(PATIENCE)

    def asked(self) -> list[str]:
        """Return what the model was shown, request by request."""
        return [json.dumps(body) for _, body in self.model.requests]


@contextlib.contextmanager
def _night(
    program: Program, repo: Repo, tmp_path: Path, script: Sequence[Sequence[Turn]], *options: str
) -> Iterator[Night]:
    with Model(script, tmp_path / "iteration") as model:
        env = program.set_up(tmp_path / "home", model.url, tmp_path / "iteration")
        words = ("-a", program.name, "-p", PROMPT, "--ignore", "exclude", *options)
        with Session(repo.path, *words, env=env) as session:
            yield Night(session, model, env)


def test_a_promise_has_to_pass_the_gate(program: Program, repo: Repo, tmp_path: Path) -> None:
    """The second iteration is shown what failed, and its promise counts."""
    script: list[list[Turn]] = [
        [Shell("echo one > made"), Say(PROMISE)],
        [Shell("echo two > proven"), Say(PROMISE)],
    ]
    gate = "cat proven || { echo nothing is proven; exit 7; }"
    with _night(program, repo, tmp_path, script, "--verify", gate) as night:
        result = night.finish()
        shown = night.asked()
    assert result.ending == ("promise", 2, 0)
    assert (result.report["verify"]["result"], result.report["verify"]["runs"]) == ("passed", 2)
    heard = ["nothing is proven" in body and "it ended with status 7" in body for body in shown]
    assert heard == [False, False, True, True]


def test_a_question_is_asked_and_answered(program: Program, repo: Repo, tmp_path: Path) -> None:
    """The loop ends with the words of the agent; the one that resumes is shown the answer."""
    asks: list[list[Turn]] = [[Say(f"I looked.\n\n{BLOCKED}\nThe old database or the new one?")]]
    with _night(program, repo, tmp_path, asks) as night:
        first = night.finish()
    assert first.ending == ("blocked", 1, 75)
    assert first.report["question"] == "The old database or the new one?"
    (tmp_path / "later").mkdir()
    with Model([[Say(PROMISE)]], tmp_path / "later" / "iteration") as model:
        env = program.set_up(tmp_path / "later" / "home", model.url, tmp_path / "later" / "iteration")
        with start("resume", first.report["id"], "-m", "The new one.", cwd=repo.path, env=env) as resumed:
            _, errors = resumed.communicate(timeout=PATIENCE)
            assert resumed.wait() == 0, errors
        shown = [json.dumps(body) for _, body in model.requests]
    assert [body.count("The new one.") for body in shown] == [1]


def test_a_message_is_in_the_next_prompt(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Of the next iteration alone, and before everything else that it is asked."""
    tell = Shell(f"{PROGRAM} tell $RALPH_SESSION_ID '{MESSAGE}'")
    script: list[list[Turn]] = [[tell, Say("Not yet.")], [Say("Not yet.")], [Say(PROMISE)]]
    with _night(program, repo, tmp_path, script, "--max-stalls", "0") as night:
        result = night.finish()
        shown = night.asked()
    assert result.ending == ("promise", 3, 0)
    prompt = json.dumps(f"{MESSAGE}\n\n{PROMPT}")[1:-1]
    assert [prompt in body for body in shown] == [False, False, True, False]
    delivered = [event["iteration"] for event in result.events if event["event"] == "message.delivered"]
    assert delivered == [2]


def test_a_message_can_interrupt(program: Program, repo: Repo, tmp_path: Path) -> None:
    """With --now: what the agent has done is kept, nothing of it runs on, and the next one hears it."""
    script: list[list[Turn]] = [[Shell("echo half > half"), Hanging()], [Say(PROMISE)]]
    with _night(program, repo, tmp_path, script, "--grace", "5s") as night:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/half")], "its work", cap=PATIENCE)
        name = night.session.directory.name
        with start("tell", name, "--now", MESSAGE, cwd=repo.path) as told:
            told.communicate(timeout=PATIENCE)
            assert told.wait() == 0
        result = night.finish()
        shown = night.asked()
    assert result.ending == ("promise", 2, 0)
    assert [event["cut"] for event in result.events if event["event"] == "iteration.ended"] == ["tell", None]
    assert repo.show(f"{result.report['saved']}:half") == b"half\n"
    assert MESSAGE in shown[-1]
    assert not any(MESSAGE in body for body in shown[:-1])
    assert "agent.failed" not in result.names
    assert left(tmp_path / "home") == {}
