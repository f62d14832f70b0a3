"""A batch that is killed at any point, or one of its sessions: each task is done exactly once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

TASKS = "- [ ] one\n- [ ] two\n"
# An agent that was killed in its work finds what it has done: it is asked to go on, not to begin again.
WORK = """#!/bin/sh
task=$(head -n 1)
echo "$task $RALPH_AGENT_ID" >> {directory}/calls
[ -e "$task.txt" ] || echo "$task" > "$task.txt"
git add "$task.txt"
git diff --cached --quiet || git commit -qm "$task"
echo '<promise>COMPLETE</promise>'
"""


def _made(directory: Path, home: Path, program: ForkServer) -> World:
    world = World.make(directory, home, program, "merge")
    world.agent.write_text(WORK.format(directory=directory))
    world.repo.write("TASKS.md", TASKS)
    return world


def _batch(world: World, fault: str = "count", number: int = 0) -> int:
    done = world.command("batch", "TASKS.md", "-j", "2", "--", str(world.agent), fault=fault, number=number)
    return done.status


def _commits(world: World) -> list[str]:
    """Return the subjects of the commits on all branches of sessions."""
    return sorted(world.repo.git("log", "--format=%s", "--glob=refs/heads/ralph/*", "--not", "HEAD").split())


@pytest.mark.timeout(600)
def test_each_task_is_done_once(tmp_path: Path, home: Path, program: ForkServer, choose: Choose) -> None:
    """The kill meets the batch, and at points after a fork also its sessions."""
    world = _made(tmp_path / "world", home, program)
    aside = world.put_aside()
    assert _batch(world) == 0
    count, kills = len(world.reached) // 2, 0  # of three processes, each with points of its own
    for number in choose(count, each=80):
        at = f"point {number}"
        world.bring_back(aside)
        kills += _batch(world, "kill", number) == -signal.SIGKILL
        assert _batch(world) == 0, at
        assert _commits(world) == ["one", "two"], at
        branches = [name for name in world.repo.branches() if name.startswith("ralph/")]
        assert len(branches) == 2, f"{at}: {branches}"
        calls = (world.directory / "calls").read_text().splitlines()
        assert {call.split()[0] for call in calls} == {"one", "two"}, at
        assert len({*calls}) == 2, f"{at}: {calls}"
        assert _batch(world) == 0, at
        assert (world.directory / "calls").read_text().splitlines() == calls, at
        assert world.remains() == {}, at
    assert kills or not choose.every  # most points are those of a session
