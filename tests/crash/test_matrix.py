"""The crash matrix: SIGKILL at every point of a session's life, a sweep, and the proof of what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.world import WORK, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer


def _reference(tmp_path: Path, home: Path, program: ForkServer, kind: str) -> tuple[World, World]:
    """Return a fresh world, and one in which a session has ended well, whose points are known."""
    fresh = World.make(tmp_path / "fresh", home, program, kind)
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run("watch").status == 0
    return fresh, ended


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WORK)
def test_a_session_killed_at_any_point_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, kind: str, choose: Choose
) -> None:
    """What it had done is on its branches, byte for byte as at its own end; nothing else is left of it."""
    fresh, ended = _reference(tmp_path, home, program, kind)
    points, expected, untouched = ended.reached, ended.work(), fresh.repo.fingerprint()
    assert ended.remains() == {}
    for number in choose(len(points), each=16, states=ended.states):
        world = fresh.copy(tmp_path / f"killed-{number}")
        at = f"point {number}: {points[number - 1]}"
        agent_started = world.run_killed_and_sweep(number, at)
        assert world.remains() == {}, at
        assert world.repo.fingerprint() == untouched, at
        if agent_started:
            assert world.work() == expected, at
        else:
            assert world.work() == {}, at


@pytest.mark.parametrize("kind", WORK)
def test_the_matrix_has_enough_points(tmp_path: Path, home: Path, program: ForkServer, kind: str) -> None:
    """At least 150 in all, and each git command and each event is among them."""
    _, ended = _reference(tmp_path, home, program, kind)
    points = ended.reached
    assert len(points) * len(WORK) >= 150
    names = "\n".join(points)
    for command in (
        "update-ref --no-deref",
        "read-tree --reset",
        "write-tree",
        "commit-tree",
        "worktree remove",
    ):
        assert command in names
    for event in (
        "session.registered",
        "agent.started",
        "work.saved",
        "worktree.removed",
        "session.released",
    ):
        assert f"before {event}" in points
        assert f"after {event}" in points
