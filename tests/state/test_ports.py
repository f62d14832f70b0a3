"""Each session has ports of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.ports import port_for
from tests.support.sessions import Session, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo


pytestmark = pytest.mark.usefixtures("ended")


SH = ("-n", "1", "--", "sh", "-c")


# Ports


def test_the_agent_has_ports_of_its_own(repo: Repo) -> None:
    """Ten, the same in each iteration, and those of its id where no other session has them."""
    ended = run(repo.path, "-n", "2", "--", "sh", "-c", "echo $RALPH_PORT")
    first, second = map(int, ended.stdout.split())
    assert first == second == port_for(ended.report["id"], [])


def test_sessions_beside_each_other_have_other_ports(repo: Repo) -> None:
    """A session looks at the records of those that live."""
    agent = "echo $RALPH_PORT > $RALPH_PROJECT/../port-$RALPH_AGENT_ID; sleep 600"
    with Session(repo.path, *SH, agent) as session:
        [port] = eventually(lambda: [*repo.path.parent.glob("port-????")], "the first port")
        held = int(eventually(port.read_text, "its content"))
        beside = run(repo.path, *SH, "echo $RALPH_PORT")
        session.wait_for("session.registered")
        assert int(beside.stdout) == port_for(beside.report["id"], {held}) != held


def test_a_port_is_one_that_can_be_used(repo: Repo) -> None:
    """Of every id: 20000 to 59990, in steps of ten."""
    assert repo.path.is_dir()
    ports = {port_for(f"{number:04x}", []) for number in range(1 << 16)}
    assert ports == {*range(20_000, 60_000, 10)}


def test_ports_that_are_taken_are_passed_over() -> None:
    """By the next free ones, also from the last ones to the first ones; if none is free, they are shared."""
    first, second, third = (port_for("a3f2", {*taken}) for taken in ((), (39_700,), (39_700, 39_710)))
    assert (first, second, third) == (39_700, 39_710, 39_720)
    assert port_for("0f9f", {59_990}) == 20_000
    assert port_for("a3f2", {*range(20_000, 60_000, 10)}) == first
