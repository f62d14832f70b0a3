"""Registry, inventory and sweep against a model: whatever is done to sessions, in whatever order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.support.expected_session import ENDS, INNER, REWRITINGS, SPOILINGS
from tests.support.profiles import costly_examples
from tests.support.repo import make_repo

if TYPE_CHECKING:
    Deed = tuple[str, str]
    Life = tuple[dict[str, Any], str, list[Deed], list[Deed], list[Deed]]
from tests.commands.sweep.deeds import OPTIONS
from tests.commands.sweep.model import Sessions


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Sessions]:
    """Return the machine, with a repository to copy."""
    monkeypatch.setattr(
        "ralph_wrap.commands.sweep._LAST_BREATH", 0.0
    )  # no process here lets go of a lock while it dies
    repo = make_repo(tmp_path / "template")
    repo.write(".gitignore", ".ralph/\n")
    repo.write("second", "two\n")
    repo.commit("second")
    make_repo(tmp_path / INNER)

    class Here(Sessions):
        template = repo.path

    return Here


@pytest.mark.timeout(600)  # a failure is made as small as possible, which takes up to five minutes
def test_sweeps_and_inventories_do_what_the_model_says(sessions: type[Sessions]) -> None:
    """Live, foreign and unknown sessions stay untouched; a dead one is finished, and nothing is lost."""
    run_state_machine_as_test(
        sessions,
        settings=settings(
            max_examples=costly_examples(),
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


MEDDLINGS = [
    *(("record", how) for how in (*REWRITINGS, *SPOILINGS)),
    *(("lock", how) for how in ("copied", "away")),
    *(("worktree", how) for how in ("away", "renamed", "unregistered")),
    *(("process", how) for how in ("a child", "elsewhere", "a person")),
]


@pytest.mark.parametrize("deed", MEDDLINGS, ids=": ".join)
def test_each_meddling_has_its_consequence(sessions: type[Sessions], deed: Deed) -> None:
    """With the session of a dead owner, and with one whose owner dies later: chance may leave one out."""
    dead: Life = ({}, "begun", [("work", "write")], [("end", "killed")], [deed])
    alive: Life = ({}, "begun", [("work", "write")], [], [deed])
    _play(sessions, [dead, alive], ["ask", "sweep", ("end", "killed"), "sweep", "adopt all"])


@pytest.mark.parametrize("how", ENDS)
def test_each_end_has_its_consequence(sessions: type[Sessions], how: str) -> None:
    """Later changes are not lost, and neither is what was saved before."""
    works = [("work", name) for name in ("commit", "amend", "write")]
    lives: list[Life] = [(options, "begun", works, [("end", how)], []) for options in OPTIONS[2:]]
    _play(sessions, lives, [("work", "change"), "ask", "sweep", "sweep"])


def _play(sessions: type[Sessions], lives: list[Life], acts: list[Deed | str]) -> None:
    """Do the same to each session, one thing after the other, and look at everything each time."""
    machine = sessions()
    try:
        machine.begin(lives, named_like_ours=True)
        for act in [None, *acts]:
            if isinstance(act, str):
                machine.then(act, machine.sessions[-1])
            elif act is not None:
                for session in machine.sessions:
                    machine.be(session, act)
            machine.the_inventory_is_the_model()
            machine.the_disk_is_the_model()
            machine.the_main_checkout_is_left_alone()
    finally:
        machine.teardown()
