"""SIGKILL while the gate is run: the work of its iteration is whole, and nothing of the gate is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fork_server import ForkServer

POINTS = (
    "before verify.started",
    "after verify.started",
    "before verify.ended",
    "after verify.ended",
    "before verify.passed",
    "after verify.passed",
    "before iteration.ended",
)


@pytest.mark.timeout(300)
def test_a_session_killed_during_its_gate_loses_nothing(
    tmp_path: Path, home: Path, program: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the agent had done is saved by the sweep, and the gate's processes have ended."""
    monkeypatch.setenv("RALPH_WRAP_VERIFY", "sleep 600 & test -e untracked")
    monkeypatch.setenv("RALPH_WRAP_VERIFY_EACH", "on")
    fresh = World.make(tmp_path / "fresh", home, program, "dirty")
    ended = fresh.copy(tmp_path / "ended")
    assert ended.run().status == 0
    assert ended.report["verify"]["result"] == "passed"
    reached, expected, untouched = ended.reached, ended.work(), fresh.repo.fingerprint()
    for name in POINTS:
        world = fresh.copy(tmp_path / name.replace(" ", "-"))
        assert world.run_killed_and_sweep(reached.index(name) + 1, name)
        assert world.remains() == {}, name
        assert world.repo.fingerprint() == untouched, name
        assert world.work() == expected, name
