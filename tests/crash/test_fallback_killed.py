"""SIGKILL while the turn goes to another agent: its work is whole, and so is what was there before."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World
from tests.support.agent_script import TRUSTED, limited

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fork_server import ForkServer
    from tests.support.sessions import Result

POINTS = (
    "before agent.limited",
    "after agent.limited",
    "before agent.changed",
    "after agent.changed",
    "before agent.started",
    "before iteration.ended",
    "before session.released",
)


def _run(world: World, fault: str = "count", number: int = 0) -> Result:
    """Run a session whose first agent has reached its limit; the second one is that of the world."""
    refused = world.directory / "refused"
    refused.write_text(f"#!/bin/sh\ncat >/dev/null\necho refused > refused\n{limited(3600)}exit 1\n")
    refused.chmod(0o755)
    world.repo.write(
        ".ralph/config.toml",
        f"[agents.first]\ncommand = [{json.dumps(str(refused))}]\noutput = 'claude'\n"
        f"[agents.second]\ncommand = [{json.dumps(str(world.agent))}]\n",
    )
    words = ("run", "--isolation", "require", "-n", "1", "-p", "x", "-a", "first", "--fallback", "second")
    return world.command(*words, fault=fault, number=number, env=TRUSTED)


@pytest.mark.timeout(300)
def test_a_session_killed_while_another_agent_goes_on_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer
) -> None:
    """What both agents had done is saved by the sweep, and no worktree, lock or process is left."""
    fresh = World.make(tmp_path / "fresh", home, program, "dirty")
    ended = fresh.copy(tmp_path / "ended")
    assert _run(ended).status == 0
    assert [entry["agent"] for entry in ended.report["agents"]] == ["first", "second"]
    reached, expected = ended.reached, ended.work()
    for name in POINTS:
        world = fresh.copy(tmp_path / name.replace(" ", "-"))
        positions = [position for position, point in enumerate(reached) if point == name]
        assert positions, name
        killed = _run(world, "kill", positions[-1] + 1)
        assert killed.status == -signal.SIGKILL, name
        second_began = world.agent_started
        if second_began:
            world.await_agent()
        untouched = world.repo.fingerprint()
        assert world.sweep(env=TRUSTED).status == 0, name
        assert world.remains() == {}, name
        assert world.repo.fingerprint() == untouched, name
        (wip,) = [trees for ref, trees in world.work().items() if ref.endswith("-wip")]
        if second_began:
            assert world.work() == expected, name
        else:
            assert world.repo.show(f"{wip[0]}:refused") == b"refused\n", name
