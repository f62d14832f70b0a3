"""Git itself killed at every call of a session and of a sweep: before it does anything, in the middle, after.

Not there: the middle of ``git worktree remove``, which starts nothing that could kill it at a known moment.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.crash.world import Reference, World
from tests.support.git_shim import deadly_filter, deadly_git, have_git_register

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer
    from tests.support.sessions import Result

WHOLE = [("git-before", "dirty"), ("git-after", "merge")]
MIDDLES = {
    "session": (" worktree add ", " read-tree --reset ", " update-index "),
    "sweep": (" update-index ",),
}


class Deadly(NamedTuple):
    """A world in which git may die.

    Attributes:
        reference: what there is without that.
        env: that finds the deadly git.

    """

    reference: Reference
    env: dict[str, str]

    @classmethod
    def make(cls, tmp_path: Path, home: Path, program: ForkServer, kind: str) -> Deadly:
        """Make it."""
        driver = deadly_filter(tmp_path / "filter")

        def prepare(world: World) -> None:
            world.repo.write(".gitattributes", "file.txt filter=deadly\n")
            for direction in ("clean", "smudge"):
                world.repo.git("config", "--global", f"filter.deadly.{direction}", driver)
            world.repo.git("add", ".gitattributes")
            world.repo.git("commit", "-q", "-m", "attributes")
            have_git_register(world.repo.path)

        reference = Reference.make(tmp_path, home, program, kind, "git-before", prepare)
        return cls(reference, {"PATH": deadly_git(tmp_path / "bin")})

    def check(self, world: World, at: str, *results: Result) -> None:
        """Fail unless everything is finished, or still in the worktree, and only sentences were printed."""
        printed = "".join(result.stderr for result in results)
        assert "\nTraceback" not in printed, f"{at}: {printed}"
        assert "please report this" not in printed, f"{at}: {printed}"
        self.reference.check(world, at, printed)


def _meet_in_session(deadly: Deadly, directory: Path, fault: str, number: int) -> None:
    at = f"{fault} {number}: {deadly.reference.points[number - 1]}"
    world = deadly.reference.fresh.copy(directory / f"{fault}-{number}")
    result = world.run(fault, number, env=deadly.env)
    assert result.status in ({0} if world.done.exists() else {125}), f"{at}: {result.stderr}"
    swept = world.sweep()
    assert swept.status in {0, 5}, f"{at}: {swept.stderr}"
    deadly.check(world, at, result, swept)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "kind"), WHOLE)
def test_git_killed_at_any_call_of_a_session_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, fault: str, kind: str, choose: Choose
) -> None:
    """The session ends as it should, or says why not; the work is on its branches or in its worktree."""
    deadly = Deadly.make(tmp_path, home, program, kind)
    for number in choose(len(deadly.reference.points), each=15):
        _meet_in_session(deadly, tmp_path, fault, number)


@pytest.mark.parametrize("words", MIDDLES["session"])
def test_git_killed_in_the_middle_of_a_session_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, words: str
) -> None:
    """The same, with half a registration, half a checkout, half of the files saved."""
    deadly = Deadly.make(tmp_path, home, program, "dirty")
    (number,) = [position for position, name in enumerate(deadly.reference.points, 1) if words in f"{name} "]
    _meet_in_session(deadly, tmp_path, "git-middle", number)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "kind"), [*WHOLE, ("git-middle", "dirty")])
def test_git_killed_at_any_call_of_a_sweep_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, fault: str, kind: str, choose: Choose
) -> None:
    """The next sweep finishes what is left, or the worktree stays as it was with a reason."""
    deadly = Deadly.make(tmp_path, home, program, kind)
    counted = deadly.reference.fresh.copy(tmp_path / "counted")
    assert counted.run().status == 0
    world = deadly.reference.fresh.copy(tmp_path / "world")
    died = counted.reached.index("after agent.exited") + 1
    assert world.run("kill", died).status == -signal.SIGKILL
    aside = world.put_aside()
    assert world.sweep("git-before").status == 0
    points = world.reached
    if fault == "git-middle":
        numbers = [
            number
            for number, name in enumerate(points, 1)
            if any(words in name for words in MIDDLES["sweep"])
        ]
        assert numbers
    else:
        numbers = choose(len(points), each=15)
    for number in numbers:
        at = f"{fault} {number}: {points[number - 1]}"
        world.remains()
        world.bring_back(aside)
        first = world.sweep(fault, number, env=deadly.env)
        assert first.status in {0, 3, 5, 125}, f"{at}: {first.stderr}"
        second = world.sweep()
        assert second.status in {0, 5}, f"{at}: {second.stderr}"
        deadly.check(world, at, first, second)


@pytest.mark.parametrize("fault", ["git-before", "git-middle", "git-after"])
def test_a_git_add_that_is_killed_is_done_again(
    tmp_path: Path, home: Path, program: ForkServer, fault: str
) -> None:
    """One process out of memory is no reason to keep a worktree."""
    deadly = Deadly.make(tmp_path, home, program, "dirty")
    (number,) = [
        position for position, name in enumerate(deadly.reference.points, 1) if " update-index " in name
    ]
    world = deadly.reference.fresh.copy(tmp_path / "world")
    result = world.run(fault, number, env=deadly.env)
    assert world.worktrees == [], result.stderr
    assert world.work() == deadly.reference.work


@pytest.mark.timeout(300)
def test_a_half_deleted_registration_is_finished(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """Everything dies while ``git worktree remove`` deletes: whichever files are left, nothing else is."""
    reference = Reference.make(tmp_path, home, program, "merge", "kill")
    world = reference.fresh.copy(tmp_path / "world")
    (last,) = [number for number, name in enumerate(reference.points, 1) if " worktree remove " in name]
    assert world.run("kill", last).status == -signal.SIGKILL
    (registration,) = (world.repo.path / ".git" / "worktrees").glob("2*")
    aside = world.put_aside()
    entries = sorted(registration.iterdir())
    # Git goes through the directory as the file system lists it: in any order.
    orders = (entries, entries[::-1], sorted(entries, key=lambda path: path.name[::-1]))
    beginnings = [order[:count] for order in orders for count in range(1, len(entries) + 1)]
    for number in choose(len(beginnings), each=8):
        deleted = beginnings[number - 1]
        at = f"without {', '.join(path.name for path in deleted)}"
        world.remains()
        world.bring_back(aside)
        for path in deleted:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        swept = world.sweep()
        assert swept.status == 0, f"{at}: {swept.stdout!r}"
        reference.check(world, at, swept.stderr)
        assert world.worktrees == [], at


@pytest.mark.parametrize("fault", ["git-before", "git-after", "git-middle"])
def test_git_does_die(tmp_path: Path, home: Path, program: ForkServer, fault: str) -> None:
    """Negative control: the parent of such a git sees that a signal has ended it."""
    deadly = Deadly.make(tmp_path, home, program, "dirty")
    repo = deadly.reference.fresh.repo
    repo.write("file.txt", "changed\n")
    done = subprocess.run(
        ("git", "add", "file.txt"),
        cwd=repo.path,
        env={**os.environ, **deadly.env, "DEADLY": fault},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    staged = repo.git("diff", "--cached", "--name-only", check=False)
    assert staged == ("file.txt" if fault == "git-after" else "")
