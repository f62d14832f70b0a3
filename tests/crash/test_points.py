"""Which points of a matrix are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.points import Choose
from tests.crash.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fork_server import ForkServer

STATES = [*"aabbbacdddd"]


def test_the_first_point_of_each_state_is_tried() -> None:
    """Without states, each point is one; a first point leaves out those before it."""
    choose = Choose(every=False)
    assert choose(11, states=STATES) == [1, 3, 6, 7, 8]
    assert choose(11, first=4, states=STATES) == [4, 6, 7, 8]
    assert choose(11, each=2, states=STATES) == [1, 6, 8]
    assert choose(4) == [1, 2, 3, 4]


def test_every_point_is_every_point() -> None:
    """In the whole matrix."""
    assert Choose(every=True)(11, first=3, each=5, states=STATES) == [*range(3, 12)]


def test_a_change_on_disk_is_another_state(tmp_path: Path, home: Path, program: ForkServer) -> None:
    """A rename, a link or a line of a log is one; a command of git that only reads is none."""
    world = World.make(tmp_path / "world", home, program, "dirty")
    assert world.run("watch").status == 0
    points, states = world.reached, world.states
    assert len(points) == len(states)
    beside = [*zip(points, states, states[1:], strict=False)]
    changing = [(name, old != new) for name, old, new in beside if name.startswith(("os.rename", "os.link"))]
    assert len(changing) > 10
    # New objects are apart at first, where no later start looks at them.
    unchanged = [name for name, changed in changing if not changed]
    assert [name for name in unchanged if "/objects/ralph-wrap-save-" not in name] == []
    written = [old != new for name, old, new in beside if name == "before session.registered"]
    asked = [old != new for name, old, new in beside if " --git-common-dir " in name]
    assert (written, asked) == ([True], [False])
