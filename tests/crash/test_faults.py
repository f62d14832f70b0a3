"""A full disk and a broken one: ENOSPC and EIO at each operation of a session and of a sweep."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.crash.world import Reference
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.orphans import orphan, sweep
from tests.support.repo import make_repo
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer
    from tests.support.repo import Repo
    from tests.support.sessions import Result

FAULTS = [("ENOSPC", "dirty"), ("EIO", "merge")]


def _explains(result: Result) -> bool:
    """Return whether a command that failed says why, in words, and without a traceback."""
    words = [printed["message"] for printed in result.narration if printed["level"] == "error"]
    return bool(words) and "please report this" not in result.stderr and "Traceback" not in result.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_a_session_that_meets_a_failing_disk_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, fault: str, kind: str, choose: Choose
) -> None:
    """The session or the next sweep finishes everything, or the worktree stays as it was with a reason."""
    reference = Reference.make(tmp_path, home, program, kind, fault)
    for number in choose(len(reference.points), each=30):
        at = f"{fault} at {number}: {reference.points[number - 1]}"
        world = reference.fresh.copy(tmp_path / f"{number}")
        result = world.run(fault, number)
        assert result.status in ({0} if world.done.exists() else {125}), f"{at}: {result.stderr}"
        assert result.status == 0 or _explains(result), f"{at}: {result.stderr}"
        swept = world.sweep()
        assert swept.status in {0, 5}, f"{at}: {swept.stderr}"
        reference.check(world, at, result.stderr + swept.stderr)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_a_sweep_that_meets_a_failing_disk_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, fault: str, kind: str, choose: Choose
) -> None:
    """The next one finishes the rest, or the worktree stays as it was with a reason."""
    reference = Reference.make(tmp_path, home, program, kind, "count")
    world = reference.fresh.copy(tmp_path / "world")
    died = reference.points.index("after agent.exited") + 1
    assert world.run("kill", died).status == -signal.SIGKILL
    aside = world.put_aside()
    assert world.sweep(fault).status == 0
    points = world.reached
    for number in choose(len(points), each=30):
        at = f"{fault} at {number}: {points[number - 1]}"
        world.remains()
        world.bring_back(aside)
        first = world.sweep(fault, number)
        assert first.status in {0, 5}, f"{at}: {first.stderr}"
        assert first.status == 0 or _explains(first), f"{at}: {first.stderr}"
        second = world.sweep()
        assert second.status in {0, 5}, f"{at}: {second.stderr}"
        reference.check(world, at, first.stderr + second.stderr)


# A disk that is really full

FILLING = "echo new > new; cat /dev/zero > {filler} 2>/dev/null; true"
INSIDE, OUTSIDE = "filler", "$RALPH_PROJECT/filler"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Repo]:
    """Yield a repository on a small disk."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as temporary:
        yield make_repo(temporary / "project")


def _work(worktree: Path) -> dict[str, int]:
    """Return names and sizes of what an agent has left."""
    return {path.name: path.stat().st_size for path in worktree.iterdir() if path.name != ".git"}


@needs_mounts
@pytest.mark.parametrize("filler", [INSIDE, OUTSIDE])
def test_an_agent_that_fills_the_disk_loses_nothing(small: Repo, filler: str) -> None:
    """Its session ends as it would have, and what cannot be saved is kept, with a reason."""
    result = run(small.path, "-n", "1", "--", "sh", "-c", FILLING.format(filler=filler))
    assert (result.status, "\nTraceback" in result.stderr) == (0, False), result.stderr
    (worktree,) = (small.path / ".ralph" / "worktrees").iterdir()
    before = _work(worktree)
    assert before["new"] == 4
    assert [printed["path"] for printed in result.warnings if printed["event"] == "worktree.kept"] == [
        str(worktree)
    ]
    _make_room(small)
    assert sweep(small).status in {0, 5}
    _check_nothing_is_lost(small, worktree, before)


@needs_mounts
@pytest.mark.parametrize("filler", [INSIDE, OUTSIDE])
def test_a_sweep_on_a_full_disk_loses_nothing(small: Repo, filler: str) -> None:
    """It says what it could not do, and the next one, with room, does it."""
    left = orphan(small, work=FILLING.format(filler=filler))
    before = _work(left.worktree)
    swept = sweep(small)
    assert (swept.status, _explains(swept)) == (5, True), swept.stderr
    assert _work(left.worktree) == before
    _make_room(small)
    assert sweep(small).status in {0, 5}
    _check_nothing_is_lost(small, left.worktree, before)


def _make_room(repo: Repo) -> None:
    subprocess.run(("mount", "-o", "remount,size=64m", repo.path.parent), check=True)


def _check_nothing_is_lost(repo: Repo, worktree: Path, work: dict[str, int]) -> None:
    if worktree.exists():
        assert _work(worktree) == work
    else:
        rows = repo.git("ls-tree", "-l", f"ralph/{worktree.name[-4:]}-wip").splitlines()
        saved = {row.split("\t")[1]: int(row.split("\t")[0].split()[3]) for row in rows}
        assert {name: saved[name] for name in work} == work
    assert repo.git("fsck", "--no-dangling") == ""
