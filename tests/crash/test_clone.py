"""The crash matrix of sessions in a private clone: SIGKILL, a sweep, and the proof of what is left."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import WORK, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer
    from tests.support.sessions import Result

EACH = 100
"""One state of this number is tried; a session has more than 150."""


def run(world: World, fault: str = "count", number: int = 0, *options: str) -> Result:
    """Run a session in a clone that meets a fault at a point; the user approves its configuration."""
    options = ("--isolation", "clone", "-n", "1", *options)
    agent, env = os.fspath(world.agent), {"RALPH_TRUST": "1"}
    return world.command("run", *options, "--", agent, fault=fault, number=number, env=env)


def remains(world: World) -> dict[str, object]:
    """Return what must not be there once everything is finished: of any session, or of one in a clone."""
    root = world.repo.path / ".ralph"
    found = {
        "clones": sorted(path.name for path in root.glob("clones/*") if path.name != ".gitignore"),
        "replicas": sorted(path.name for path in root.glob("run/replicas/*")),
        "bundles": sorted(path.name for path in root.glob("run/bundles/*")),
    }
    return world.remains() | {name: there for name, there in found.items() if there}


def killed_and_swept(fresh: World, directory: Path, number: int, at: str) -> tuple[World, bool]:
    """Return a copy in which a session was killed at a point and swept, and whether its agent had started."""
    world = fresh.copy(directory)
    assert run(world, "kill", number).status == -signal.SIGKILL, at
    if agent_started := world.agent_started:
        world.await_agent()
    swept = world.sweep()
    assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
    assert remains(world) == {}, at
    return world, agent_started


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WORK)
def test_a_session_in_a_clone_killed_at_any_point_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, kind: str, choose: Choose
) -> None:
    """What it had done is in the repository as at its own end; clone, replica and bundle are gone."""
    fresh = World.make(tmp_path / "fresh", home, program, kind)
    ended = fresh.copy(tmp_path / "ended")
    assert run(ended, "watch").status == 0
    assert remains(ended) == {}
    expected, untouched, points = ended.work(), fresh.repo.fingerprint(), ended.reached
    for number in choose(len(points), each=EACH, states=ended.states):
        at = f"point {number}: {points[number - 1]}"
        world, agent_started = killed_and_swept(fresh, tmp_path / f"killed-{number}", number, at)
        assert world.repo.fingerprint() == untouched, at
        assert world.work() == (expected if agent_started else {}), at


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WORK)
def test_a_sweep_of_a_clone_killed_at_any_point_is_repeated(
    tmp_path: Path, home: Path, program: ForkServer, kind: str, choose: Choose
) -> None:
    """Whatever step of a sweep was the last, the next sweep goes on from there."""
    fresh = World.make(tmp_path / "fresh", home, program, kind)
    ended = fresh.copy(tmp_path / "ended")
    assert run(ended).status == 0
    expected, points = ended.work(), ended.reached
    killed = fresh
    assert run(killed, "kill", points.index("after agent.started") + 1).status == -signal.SIGKILL
    killed.await_agent()
    aside = killed.put_aside()
    assert killed.sweep("watch").status == 0
    steps, states = killed.reached, killed.states
    for number in choose(len(steps), each=EACH, states=states):
        at = f"point {number}: {steps[number - 1]}"
        killed.bring_back(aside)
        assert killed.sweep("kill", number).status == -signal.SIGKILL, at
        swept = killed.sweep()
        assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
        assert remains(killed) == {}, at
        assert killed.work() == expected, at
