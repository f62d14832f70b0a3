"""The crash matrix for a session with submodules: their work is found again, or was not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World
from tests.support.repo import Repo
from tests.support.submodules import ALLOWED, SUB, make_project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.support.fork_server import ForkServer

pytestmark = pytest.mark.usefixtures("trusted")

_EACH = 60  # one point takes two seconds, and most are those of a session like any other
_OF_A_FILE = ("open ", "os.chmod ", "os.chown ", "fcntl.flock ")
"""The steps on the way to a file that replaces another: see ``test_matrix`` for each of it."""


WORK = f"""
cd {SUB}
echo committed > committed; git add committed; git commit -qm work
echo staged > staged; git add staged
echo changed >> file.txt
echo away > away; git add away; git commit -qm away; git reset -q --hard HEAD~1
echo untracked > untracked
echo deep > deep/new
cd ../..
"""


def make(directory: Path, home: Path, program: ForkServer) -> World:
    """Make a world whose agent works in submodules, too."""
    world = World.make(directory, home, program, "merge")
    make_project(directory / "world")
    world.repo.git(*ALLOWED, "submodule", "--quiet", "add", directory / "world" / "upstream", SUB)
    world.repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    world.repo.git("commit", "-q", "-m", "with submodule")
    world.repo.write(".ralph/config.toml", 'submodules = "init"\n')
    world.repo.write(".git/info/exclude", ".ralph/config.toml\n")
    world.agent.write_text(world.agent.read_text().replace("cat >/dev/null\n", f"cat >/dev/null\n{WORK}"))
    return world


def _work(world: World) -> dict[str, object]:
    """Return what is kept: that of the project, and the trees that snapshots of each submodule hold."""
    found: dict[str, object] = dict(world.work())
    for name in (SUB, f"{SUB}/modules/deep"):
        store = Repo(world.repo.path / ".git" / "modules" / name)
        rows = store.git("for-each-ref", "--format=%(tree) %(parent)", "refs/ralph/").splitlines()
        found[name] = sorted(
            [tree, *(store.git("rev-parse", f"{parent}^{{tree}}") for parent in parents)]
            for tree, *parents in map(str.split, rows)
        )
    return found


@pytest.mark.timeout(600)
def test_a_session_killed_at_any_point_loses_nothing_of_its_submodules(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """Byte for byte as at its own end; nothing else is left of it."""
    fresh = make(tmp_path / "fresh", home, program)
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run("watch").status == 0
    points, states = ended.reached, ended.states
    expected, untouched = _work(ended), fresh.repo.fingerprint()
    nothing = _work(fresh)
    assert ended.remains() == {}
    assert all(expected[name] for name in (SUB, f"{SUB}/modules/deep"))
    # Up to there it is a session like any other (see ``test_matrix``).
    first = next(number for number, name in enumerate(points, 1) if " submodule update " in name)
    numbers = [
        number for number, name in enumerate(points, 1) if number >= first and not name.startswith(_OF_A_FILE)
    ]
    for position in choose(len(numbers), each=_EACH, states=[states[number - 1] for number in numbers]):
        number = numbers[position - 1]
        world = fresh.copy(tmp_path / f"killed-{number}")
        at = f"point {number}: {points[number - 1]}"
        agent_started = world.run_killed_and_sweep(number, at)
        remains = world.remains()
        assert remains == {}, f"{at}: {remains}"
        assert world.repo.fingerprint() == untouched, at
        assert _work(world) == (expected if agent_started else nothing), at
