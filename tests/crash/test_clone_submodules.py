"""The crash matrix of a session in a clone with submodules: their work comes out, or was not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.test_clone import killed_and_swept, remains, run
from tests.crash.test_submodules import make

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.points import Choose
    from tests.crash.world import World
    from tests.support.fork_server import ForkServer

pytestmark = pytest.mark.usefixtures("trusted")

_FEWER = (
    40  # points: runs differ by a dozen, because git makes a different number of packs, reflogs and objects
)
_EACH = 500  # one point takes some seconds, and most are those of a session like any other


def _work(world: World) -> tuple[list[str], list[list[str]]]:
    """Return what is kept: the refs, and their trees. The numbers of several commits have no order."""
    found = world.work()
    return sorted(found), sorted(found.values())


@pytest.mark.timeout(600)
def test_a_clone_killed_at_any_point_loses_nothing_of_its_submodules(
    tmp_path: Path, home: Path, program: ForkServer, choose: Choose
) -> None:
    """The repository gets the work of the project and of each submodule, as at the session's own end."""
    fresh = make(tmp_path / "fresh", home, program)
    ended = fresh.copy(tmp_path / "ended")
    assert run(ended).status == 0
    assert remains(ended) == {}
    expected, untouched, points = _work(ended), fresh.repo.fingerprint(), ended.reached
    assert len(expected[0]) > 2, expected
    first = next(number for number, name in enumerate(points, 1) if " submodule " in name)
    numbers = [
        *range(first, len(points) + 1 - _FEWER)
    ]  # the last ones are those of any clone: see ``test_clone``
    for position in choose(len(numbers), each=_EACH):
        number = numbers[position - 1]
        at = f"point {number}: {points[number - 1]}"
        world, agent_started = killed_and_swept(fresh, tmp_path / f"killed-{number}", number, at)
        assert world.repo.fingerprint() == untouched, at
        assert _work(world) == (expected if agent_started else ([], [])), at
