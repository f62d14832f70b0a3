"""SIGKILL before, in and after the teardown: it runs, the work is whole, and nothing of it is left."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fork_server import ForkServer

TEARDOWN = 'echo torn >> "$RALPH_PROJECT/../torn"; sleep 600 & test -e untracked'
EVENTS = [f"{when} teardown.{what}" for what in ("started", "ended") for when in ("before", "after")]


@pytest.fixture
def fresh(tmp_path: Path, home: Path, program: ForkServer, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world whose project has a teardown."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    world = World.make(tmp_path / "fresh", home, program, "dirty")
    world.repo.write(".ralph/config.toml", f"teardown = '''{TEARDOWN}'''\n")
    return world


def torn(world: World) -> int:
    """Return how often the teardown has begun."""
    path = world.directory / "torn"
    return len(path.read_text().splitlines()) if path.exists() else 0


def moments(reached: list[str]) -> dict[str, int]:
    """Return the numbers of the points of the teardown, by their names: its events, and its file."""
    return {
        name: number for number, name in enumerate(reached, 1) if name in EVENTS or "teardown.json" in name
    }


@pytest.mark.timeout(300)
def test_a_session_killed_around_its_teardown(tmp_path: Path, fresh: World) -> None:
    """It has run once, or twice if the kill came in its middle; the sweep saves what the agent has done."""
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    assert (ended.report["teardown"]["result"], torn(ended)) == ("passed", 1)
    expected, untouched = ended.work(), fresh.repo.fingerprint()
    points = moments(ended.reached)
    assert {*EVENTS} <= points.keys()
    assert len(points) > len(EVENTS)
    for name, number in points.items():
        world = fresh.copy(tmp_path / str(number))
        started = world.run_killed_and_sweep(number, name)
        assert world.remains() == {}, name
        assert world.repo.fingerprint() == untouched, name
        assert world.work() == (expected if started else {}), name
        assert torn(world) in ({1, 2} if started else {0, 1}), name
        assert [*world.repo.path.glob(".ralph/run/sessions/*/*teardown.json*")] == [], name


@pytest.mark.timeout(300)
def test_a_sweep_killed_in_the_teardown_of_a_session(tmp_path: Path, fresh: World) -> None:
    """The next sweep ends what it has started, and runs it again."""
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    world = fresh.copy(tmp_path / "world")
    assert world.run("kill", ended.reached.index("after agent.exited") + 1).status == -signal.SIGKILL
    aside = world.put_aside()
    assert world.sweep().status == 0
    expected, untouched = ended.work(), fresh.repo.fingerprint()
    points = moments(world.reached)
    assert {*EVENTS} <= points.keys()
    for name, number in points.items():
        world.bring_back(aside)
        assert world.sweep("kill", number).status == -signal.SIGKILL, name
        swept = world.sweep()
        assert swept.status == 0, f"{name}\n{swept.stdout!r} {swept.stderr}"
        assert world.remains() == {}, name
        assert world.repo.fingerprint() == untouched, name
        assert world.work() == expected, name
        assert torn(world) in {1, 2}, name
