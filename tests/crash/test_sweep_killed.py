"""A session that was killed, and then the sweep too, at every point of its life: the next one finishes it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

# Where the session dies: (kind of work, the point before which comes the one, how many points after it).
MOMENTS = {
    "the registration is half made": ("dirty", "open", "/.gitdir.", 0),
    "no agent has started yet": ("merge", "before iteration.started", "", 0),
    "the agent is done": ("dirty", "after agent.exited", "", 0),
    "in the middle of the save": ("merge", "start commit-tree ", "", 0),
    "renamed aside": ("merge", "os.rename", "/.ralph/worktrees/", 1),
    "the registration is dropped": ("dirty", "os.rename", ".leaving", 0),
    "the record is to be moved": ("merge", "after worktree.removed", "", 5),
}


def moment_of(points: list[str], moment: str) -> int:
    """Return the number of the point at which a moment comes."""
    _, beginning, part, later = MOMENTS[moment]
    fitting = [number for number, name in enumerate(points, 1) if name.startswith(beginning) and part in name]
    assert fitting, f"no point is {moment}"
    return fitting[0] + later


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_sweep_killed_at_any_point_leaves_the_rest_to_the_next_one(
    tmp_path: Path, home: Path, program: ForkServer, moment: str, choose: Choose
) -> None:
    """After the second sweep, work and remains are what the session's own end would have left."""
    fresh = World.make(tmp_path / "fresh", home, program, MOMENTS[moment][0])
    untouched = fresh.repo.fingerprint()
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    world = fresh.copy(tmp_path / "world")
    assert world.run("kill", moment_of(ended.reached, moment)).status == -signal.SIGKILL
    expected = ended.work() if world.agent_started else {}
    aside = world.put_aside()
    assert world.sweep("watch").status == 0
    points, kills = world.reached, 0
    numbers = choose(len(points), each=20, states=world.states)
    for number in numbers:
        at = f"point {number}: {points[number - 1]}"
        world.bring_back(aside)
        killed = world.sweep("kill", number).status == -signal.SIGKILL
        # A sweep that waits for a lock reaches more points than one that does not.
        assert killed or len(world.reached) < number, at
        kills += killed
        swept = world.sweep()
        assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
        assert world.remains() == {}, at
        assert world.repo.fingerprint() == untouched, at
        assert world.work() == expected, at
    assert 2 * kills >= len(numbers) - 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_each_moment_leaves_something_to_sweep(
    tmp_path: Path, home: Path, program: ForkServer, moment: str
) -> None:
    """Negative control: before any sweep, the proof fails."""
    world = World.make(tmp_path / "world", home, program, MOMENTS[moment][0])
    ended = world.copy(tmp_path / "ended")
    assert ended.run().status == 0
    assert world.run("kill", moment_of(ended.reached, moment)).status == -signal.SIGKILL
    assert world.remains(wait=False) != {}
