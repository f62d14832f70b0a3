"""A resume that is killed at any point: nothing is lost, and it can be typed again."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World
from tests.support.trees import in_git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

GOING_ON = "#!/bin/sh\ncat >/dev/null\n[ -e more ] || echo more > more\ntouch {directory}/done\n"


def _ended(directory: Path, home: Path, program: ForkServer) -> tuple[World, str]:
    """Return a world in which a session has ended with saved work, and its agent id."""
    world = World.make(directory, home, program, "dirty")
    assert world.run().status == 0
    world.agent.write_text(GOING_ON.format(directory=directory))
    (report,) = world.repo.path.glob(".ralph/run/sessions/*/report.json")
    agent_id: str = json.loads(report.read_text())["id"]
    return world, agent_id


def _saved(world: World) -> set[str]:
    """Return the commits that branches of saved work and snapshots name."""
    return {
        *world.repo.git("for-each-ref", "--format=%(objectname)", "refs/heads/ralph/", "refs/ralph/").split()
    }


@pytest.mark.timeout(300)
def test_a_resume_killed_at_any_point_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """After a sweep the former work is there, and a second resume goes on with it: files, index and all."""
    world, agent_id = _ended(tmp_path / "world", home, program)
    wip = f"ralph/{agent_id}-wip"
    saved = world.repo.git("rev-parse", wip)
    files, index = in_git(world.repo, saved), in_git(world.repo, f"{saved}^2")
    untouched = world.repo.fingerprint()
    aside = world.put_aside()
    assert world.command("resume", agent_id, fault="watch").status == 0
    points, kills = world.reached, 0
    numbers = choose(len(points), each=20, states=world.states)
    for number in numbers:
        at = f"point {number}: {points[number - 1]}"
        world.bring_back(aside)
        killed = world.command("resume", agent_id, fault="kill", number=number).status == -signal.SIGKILL
        # One that waits for a lock reaches more points than one that does not.
        assert killed or len(world.reached) < number, at
        kills += killed
        swept = world.sweep()
        assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
        assert world.remains() == {}, at
        assert saved in _saved(world), at
        again = world.command("resume", agent_id)
        assert again.status == 0, f"{at}\n{again.stderr}"
        assert saved in _saved(world), at
        assert in_git(world.repo, wip) == files | {b"more": ("100644", b"more\n")}, at
        assert in_git(world.repo, f"{wip}^2") == index, at
        assert world.repo.fingerprint() == untouched, at
    assert 2 * kills >= len(numbers) - 1


def test_the_resume_has_enough_points(tmp_path: Path, home: Path, program: ForkServer) -> None:
    """The restore and the second save are among them."""
    world, agent_id = _ended(tmp_path / "world", home, program)
    assert world.command("resume", agent_id).status == 0
    names = "\n".join(world.reached)
    for point in (
        "--no-sparse-checkout",
        "before work.restored",
        "start commit-tree",
        "after session.released",
    ):
        assert point in names
    assert len(world.reached) >= 80
