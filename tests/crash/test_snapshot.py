"""SIGKILL at every point between two iterations, while what the first has left is kept."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import WORK, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

FIRST_ONLY = '[ "$RALPH_ITERATION" = 1 ] || exit 0\n'
SNAPSHOT = "refs/ralph/snapshots/ID/1"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WORK)
def test_a_session_killed_at_a_snapshot_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, kind: str, choose: Choose
) -> None:
    """The snapshot is there in full or not at all, and everything else as if there had been none."""
    fresh = World.make(tmp_path / "fresh", home, program, kind)
    script = fresh.agent.read_text()
    fresh.agent.write_text(script.replace("cat >/dev/null\n", f"cat >/dev/null\n{FIRST_ONLY}"))
    words = ("run", "--isolation", "require", "-n", "2", "--")
    ended = fresh.copy(tmp_path / "ended")
    assert ended.command(*words, str(ended.agent), fault="watch").status == 0
    expected, points = ended.work(), ended.reached
    snapshot = expected.pop(SNAPSHOT)
    first, last = points.index("after iteration.ended") + 1, points.index("before iteration.kept") + 1
    assert "--no-deref -m" in "\n".join(points[first:last])
    found = []
    for number in (*choose(last - 1, first=first, each=10, states=ended.states), last):
        world = fresh.copy(tmp_path / f"killed-{number}")
        at = f"point {number}: {points[number - 1]}"
        killed = world.command(*words, str(world.agent), fault="kill", number=number)
        assert killed.status == -signal.SIGKILL, at
        swept = world.sweep()
        assert swept.status == 0, f"{at}\n{swept.stdout!r} {swept.stderr}"
        assert world.remains() == {}, at
        work = world.work()
        found.append(work.pop(SNAPSHOT, None))
        assert work == expected, at
    assert found[0] is None
    assert found[-1] == snapshot
    assert all(one in (None, snapshot) for one in found)
