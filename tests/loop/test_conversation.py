"""Which session of its own an agent takes up, and by which command line."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ralph_wrap.agents import known
from ralph_wrap.config import Settings
from ralph_wrap.config.settings import AgentInvocation
from ralph_wrap.loop.conversation import AgentConversation, last_conversation
from ralph_wrap.loop.policy import CutReason, Iteration, UsageLimitRefusal
from tests.support.wait import CAP

FINE, FAILED = Iteration(0), Iteration(1)


def _resumption(command: tuple[str, ...] = ("x",), agent: str = "claude") -> AgentConversation:
    invocation = AgentInvocation(resume=known(agent).resume)
    settings = Settings(project=Path("/x"), command=command, invocation=invocation, keep_conversation=True)
    return AgentConversation(settings)


@pytest.mark.parametrize(
    ("agent", "command", "given"),
    [
        ("claude", "claude -p", "claude -p --resume s-1"),
        ("claude", "claude -p {prompt}", "claude -p {prompt} --resume s-1"),
        ("claude", "claude -p -- {prompt}", "claude -p --resume s-1 -- {prompt}"),
        ("gemini", "gemini -p {prompt}", "gemini -p {prompt} --resume s-1"),
        ("opencode", "opencode run --auto", "opencode run --auto --session s-1"),
        ("codex", "codex exec --json", "codex exec --json resume s-1"),
        ("codex", "codex exec --json {prompt}", "codex exec --json resume s-1 {prompt}"),
        ("codex", "codex exec -- {prompt}", "codex exec resume s-1 -- {prompt}"),
    ],
)
def test_a_command_line(agent: str, command: str, given: str) -> None:
    """Options stand at its end; a sub-command stands before the task."""
    resumption = _resumption(tuple(command.split()), agent)
    assert resumption.command() == tuple(command.split())
    resumption.note(FINE, "s-1")
    assert resumption.command() == tuple(given.split())


@pytest.mark.parametrize(
    "name", ["--help", "-x", "a b", "a\nb", "a\n", "", "x" * 129, "../a", "$(x)", "{left}"]
)
def test_a_word_that_is_no_name_is_not_put_into_a_command(name: str) -> None:
    """It could be an option."""
    resumption = _resumption()
    resumption.note(FINE, name)
    assert resumption.session == ""


@pytest.mark.parametrize(
    ("iteration", "named", "session"),
    [
        (FINE, "a-1", "a-1"),
        (FINE, "b-2", "b-2"),
        (FINE, "", "a-1"),
        (FAILED, "a-1", ""),
        (FAILED, "b-2", ""),
        (FAILED, "", ""),
        (Iteration(1, promised=True), "", "a-1"),
        (Iteration(1, passing=True), "", "a-1"),
        (Iteration(124, cut=CutReason.ITERATION_TIMEOUT), "", "a-1"),
        (Iteration(1, refused=UsageLimitRefusal()), "b-2", "a-1"),
    ],
)
def test_what_the_next_iteration_takes_up(iteration: Iteration, named: str, session: str) -> None:
    """Not what the agent has failed with, unless something else was the reason."""
    resumption = _resumption()
    resumption.note(FINE, "a-1")
    resumption.note(iteration, named)
    assert resumption.session == session


def test_a_new_session_is_taken_up_again() -> None:
    """The one that has failed is the only one that is given up."""
    resumption = _resumption()
    for iteration, named in ((FINE, "a-1"), (FAILED, ""), (FINE, "b-2")):
        resumption.note(iteration, named)
    assert resumption.session == "b-2"


def test_an_iteration_of_which_nothing_came_is_nothing_to_go_on_with() -> None:
    """It was refused for the account's usage limit, and is repeated as it was."""
    resumption = _resumption()
    resumption.note(Iteration(1, refused=UsageLimitRefusal()), "a-1")
    assert resumption.session == ""


def test_a_first_iteration_that_fails_can_be_gone_on_with() -> None:
    """It may have done something."""
    resumption = _resumption()
    resumption.note(FAILED, "a-1")
    assert resumption.session == "a-1"


def test_a_fifo_in_the_place_of_the_output_makes_nobody_wait(tmp_path: Path) -> None:
    """An agent can put it there, and a resumed session looks for the name of the conversation."""
    fifo = tmp_path / "output.log"
    os.mkfifo(fifo)
    look = threading.Thread(target=last_conversation, args=(fifo, "claude"), daemon=True)
    look.start()
    look.join(CAP)
    is_waiting = look.is_alive()
    os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))  # whoever waits goes on
    look.join()
    assert not is_waiting
