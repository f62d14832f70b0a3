"""SIGKILL of who tells, of who reads, and between: a message is whole or not there, and is never lost."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state import told
from tests.crash.world import World
from tests.support.sessions import PROGRAM
from tests.support.told_agent import PROMPT, telling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fork_server import ForkServer

MESSAGE = "Do not forget."
POINTS = (
    "before agent.started",
    "after agent.started",
    "os.rename {messages}",
    "before message.delivered",
    "after message.delivered",
    "before agent.exited",
    "os.remove {messages}",
    "before iteration.ended",
    "after iteration.ended",
)
"""The points of a session that reads a message."""

TELLING = ("os.mkdir {messages}", "open {messages}", "os.rename {messages}", "before session.told")
"""The points of a command that tells something; at the last one it is told."""

_AGENT = """#!/bin/sh
{{ cat; printf '\\0'; }} >> {0}/prompts
[ -e more ] || echo more > more
touch {0}/almost; mv {0}/almost {0}/done
"""


def _number(reached: list[str], point: str) -> int:
    """Return the number of a point; one with a path is found by its beginning, and by the directory in it."""
    verb, with_path, _ = point.partition("{messages}")
    found = (
        number
        for number, name in enumerate(reached, 1)
        if (name.startswith(verb) and "/messages" in name if with_path else name == point)
    )
    return next(found)


def _prompts(world: World) -> list[str]:
    path = world.directory / "prompts"
    return path.read_text().split("\0")[:-1] if path.exists() else []


@pytest.mark.timeout(600)
def test_a_session_killed_while_it_reads_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report has the message until the iteration has ended well, and resume begins with it."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    fresh = World.make(tmp_path / "fresh", home, program, "dirty")
    mark = "../../../../told"  # in the directory of the world
    tell = f"[ -e {mark} ] || {{ {PROGRAM} tell $RALPH_SESSION_ID '{MESSAGE}' && touch {mark}; }}"
    fresh.repo.write(".ralph/config.toml", f"setup = {json.dumps(tell)}\n")
    fresh.agent.write_text(_AGENT.format(fresh.directory))
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    assert (_prompts(ended), ended.report["unread"]) == ([f"{MESSAGE}\n\n"], [])
    reached, untouched = ended.reached, fresh.repo.fingerprint()
    for place, name in enumerate(POINTS):
        world = fresh.copy(tmp_path / f"killed-{place}")
        assert world.run("kill", _number(reached, name)).status == -signal.SIGKILL, name
        # Another run may come to a neighbouring point: what it was about to do there has not happened.
        gone = [at for at in world.reached[:-1] if at.startswith("os.remove ") and "/messages/" in at]
        assert world.sweep().status == 0, name
        assert world.remains() == {}, name
        assert world.report["unread"] == ([] if gone else [MESSAGE]), name
        before = len(_prompts(world))
        again = world.command("resume", world.report["id"])
        assert again.status == 0, f"{name}\n{again.stderr}"
        [prompt] = _prompts(world)[before:] or [""]
        assert prompt.startswith(MESSAGE) is (not gone), name
        assert world.repo.fingerprint() == untouched, name


@pytest.mark.timeout(300)
def test_a_message_is_whole_or_not_there(tmp_path: Path, home: Path, program: ForkServer) -> None:
    """Of commands that are killed at any of their points; the others are read in their order."""
    world = World.make(tmp_path / "world", home, program, "dirty")
    with telling(world.repo, tmp_path / "agent", "-n", "2") as running:
        running.await_prompt(1)
        assert world.command("tell", running.id, "0").status == 0
        reached, directory = world.reached, running.session.directory
        for path in (directory / "messages").iterdir():
            path.unlink()
        for number, name in enumerate(TELLING):
            if "mkdir" in name:
                (directory / "messages").rmdir()
            killed = world.command(
                "tell", running.id, f"{number}", fault="kill", number=_number(reached, name)
            )
            assert killed.status == -signal.SIGKILL, name
            assert world.command("tell", running.id, f"after {number}").status == 0, name
        expected = [*(f"after {number}" for number in range(3)), "3", "after 3"]
        assert [message.text for message in told.waiting(directory)] == expected
        running.let_go(1)
        assert running.await_prompt(2) == "\n\n".join([*expected, PROMPT])
        running.let_go(2)
        assert running.session.finish().status == 0
