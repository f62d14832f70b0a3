"""The crash matrix with a pool: a session that takes a warm worktree, and the process that fills the pool."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.warm import READY
from tests.crash.world import World
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

pytestmark = pytest.mark.usefixtures("trusted")

SIZE = 2


def _world(tmp_path: Path, home: Path, program: ForkServer) -> World:
    """Return a world with a pool that is filled, at a commit that is not the newest any more."""
    world = World.make(tmp_path / "fresh", home, program, "dirty")
    repo = world.repo
    repo.write("left behind", "only in the commit before\n")
    repo.commit("before")
    (repo.path / ".ralph").mkdir(exist_ok=True)
    (repo.path / ".ralph" / "config.toml").write_text(f'pool = {SIZE}\npool_keep = ["kept"]\n')
    repo.write(".gitignore", ".ralph/worktrees/\n.ralph/config.toml\n*.log\nkept/\n")
    repo.commit("rule")
    assert world.command("pool", "--fill").status == 0
    repo.git("rm", "-q", "left behind")
    repo.write("both", "as it is now\n")
    repo.commit("after")
    return world


def _settled(world: World) -> dict[str, object]:
    """Return what is left of sessions once no process fills the pool any more."""
    eventually(lambda: "processes" not in world.remains(), "the pool to be filled")
    remains = world.remains()
    warm = {path.name for path in (world.repo.path / ".ralph/run/pool").glob("warm-*")}
    left = sorted({*remains.pop("registrations", ())} - warm)  # type: ignore[misc]
    return {**remains, "registrations": left} if left else remains


def _check_pool(world: World, at: str) -> None:
    """Fail unless the pool is, or can be, filled with worktrees that hold nothing of any session."""
    filled = world.command("pool", "--fill", "--json")
    assert filled.status == 0, f"{at}\n{filled.stdout!r} {filled.stderr}"
    assert "pool.unknown" not in filled.stderr, at
    assert "pool.changed" not in filled.stderr, at
    entries = json.loads(filled.stdout)["data"]
    assert [entry["ready"] for entry in entries] == [True] * SIZE, at
    for entry in entries:
        assert world.repo.git("status", "--porcelain", "--ignored", cwd=entry["path"]) == "", at
        assert world.repo.git("rev-parse", "HEAD", cwd=entry["path"]) == entry["commit"], at
    assert _settled(world) == {}, at


@pytest.mark.timeout(300)
def test_a_session_with_a_pool_killed_at_any_point_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """As without one; and the pool shows nothing of it."""
    fresh = _world(tmp_path, home, program)
    ended = fresh.copy(tmp_path / "ended")
    result = ended.run("watch")
    assert result.status == 0, result.stderr
    points, states = ended.reached, ended.states
    expected, untouched = ended.work(), fresh.repo.fingerprint()
    _check_pool(ended, "the end")
    assert [point for point in points if "pool/warm-" in point and "os.rename" in point], "none was taken"
    for number in choose(len(points), each=25, states=states):
        world = fresh.copy(tmp_path / f"killed-{number}")
        at = f"point {number}: {points[number - 1]}"
        agent_started = world.run_killed_and_sweep(number, at)
        assert _settled(world) == {}, at
        assert world.repo.fingerprint() == untouched, at
        assert world.work() == (expected if agent_started else {}), at
        _check_pool(world, at)


@pytest.mark.timeout(300)
def test_a_pool_whose_filling_was_killed_at_any_point_is_filled(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """And the next session runs in the meantime."""
    fresh = _world(tmp_path, home, program)
    (fresh.repo.path / ".ralph" / "config.toml").write_text(f"pool = {SIZE + 1}\n")
    counted = fresh.copy(tmp_path / "counted")
    assert counted.command("pool", "--fill", fault="watch").status == 0
    points, states = counted.reached, counted.states
    (fresh.repo.path / ".ralph" / "config.toml").write_text(f"pool = {SIZE}\n")
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    expected = ended.work()
    for number in choose(len(points), each=25, states=states):
        world = fresh.copy(tmp_path / f"killed-{number}")
        config = world.repo.path / ".ralph" / "config.toml"
        at = f"point {number}: {points[number - 1]}"
        config.write_text(f"pool = {SIZE + 1}\n")
        killed = world.command("pool", "--fill", fault="kill", number=number)
        assert killed.status == -signal.SIGKILL, at
        config.write_text(f"pool = {SIZE}\n")
        assert world.run().status == 0, at
        assert world.work() == expected, at
        _check_pool(world, at)


@pytest.mark.timeout(300)
def test_a_pool_whose_emptying_was_killed_at_any_point_is_emptied(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """What was on its way out is back in the pool, or gone."""
    fresh = _world(tmp_path, home, program)
    (fresh.repo.path / ".ralph" / "config.toml").write_text("pool = 0\n")
    counted = fresh.copy(tmp_path / "counted")
    assert counted.command("pool", "--fill", fault="watch").status == 0
    points, states = counted.reached, counted.states
    assert _settled(counted) == {}
    for number in choose(len(points), each=25, states=states):
        world = fresh.copy(tmp_path / f"killed-{number}")
        at = f"point {number}: {points[number - 1]}"
        killed = world.command("pool", "--fill", fault="kill", number=number)
        assert killed.status == -signal.SIGKILL, at
        emptied = world.command("pool", "--fill", "--json")
        assert (emptied.status, json.loads(emptied.stdout)["data"]) == (0, []), f"{at} {emptied.stderr}"
        assert world.command("sweep").status == 0
        assert "registrations" not in world.remains(), at
        assert [*(world.repo.path / ".ralph/run/pool").glob("warm-*")] == [], at


def test_the_matrix_meets_a_worktree_that_is_half_taken(
    tmp_path: Path, home: Path, program: ForkServer
) -> None:
    """Negative control: killed right behind the rename, the worktree is neither in the pool nor usable."""
    world = _world(tmp_path, home, program)
    ended = world.copy(tmp_path / "ended")
    assert ended.run().status == 0
    moved = next(
        n
        for n, name in enumerate(ended.reached, 1)
        if name.startswith("os.rename") and name.endswith("gitdir") is False and "worktrees/warm-" in name
    )
    world = world.copy(tmp_path / "killed")
    assert world.run("kill", moved).status == -signal.SIGKILL
    (worktree,) = world.worktrees
    assert world.repo.git("rev-parse", "--show-toplevel", cwd=worktree) != str(worktree)
    assert [path.parent.name[:5] for path in world.repo.path.glob(f".git/worktrees/*/{READY}")] == [
        "warm-"
    ] * SIZE
