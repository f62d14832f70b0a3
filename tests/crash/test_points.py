"""Which points of a matrix are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.points import chosen
from tests.crash.world import World
from tests.support import sampling

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.fork_server import ForkServer

STATES = [*"aabbbacdddd"]


def test_one_point_of_each_state_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without states, each point is one; a first point leaves out those before it."""
    monkeypatch.setattr(sampling, "EVERY_POINT", False)
    assert [STATES[number - 1] for number in chosen(11, states=STATES)] == [*"abacd"]
    assert [STATES[number - 1] for number in chosen(11, first=6, states=STATES)] == [*"acd"]
    assert chosen(4) == [1, 2, 3, 4]


def test_each_point_is_tried_on_some_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few of the states one day takes; and on each day one at least."""
    monkeypatch.setattr(sampling, "EVERY_POINT", False)
    for each in (1, 3, 50):
        tried = []
        for day in range(400):
            monkeypatch.setenv("SAMPLE_SEED", str(day))
            tried.append(chosen(11, each=each, states=STATES))
        assert {number for numbers in tried for number in numbers} == {*range(1, 12)}
        assert all(tried)


def test_every_point_is_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable."""
    monkeypatch.setattr(sampling, "EVERY_POINT", True)
    assert chosen(11, first=3, each=5, states=STATES) == [*range(3, 12)]


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
