"""What a worker looks at beside its session: the request to stop it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.remote import start_remote_listing
from ralph_wrap.interfaces.fleet import watch
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from tests.support.wait import eventually

if TYPE_CHECKING:
    import pytest

    from ralph_wrap.system.process import RunningCommand
    from tests.interfaces.fleet.runs import FleetRun

STOP = "refs/ralph/fleet/r1/stop/0123abcd"


def test_a_running_session_is_asked_to_stop(fleet_run: FleetRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the ref is there, also if the agent has moved the project away for a moment; not before."""
    looks: list[Git] = []

    def listing(git: Git, remote: str, ref: str) -> RunningCommand:
        looks.append(git)
        return start_remote_listing(git, remote, ref)

    monkeypatch.setattr(watch, "_INTERVAL", 0.05)
    monkeypatch.setattr(watch, "start_remote_listing", listing)
    git = Git(fleet_run.repo.path, git_environment(os.environ))
    asked: list[str] = []
    with watch.StopWatch(FleetRemote(git, "origin"), STOP, lambda: asked.append(STOP)) as stop:

        def looks_again() -> None:
            wanted = len(looks) + 3

            def has_looked() -> bool:
                stop.look()
                return len(looks) >= wanted

            eventually(has_looked, "the look at the remote")

        looks_again()
        for part in (fleet_run.repo.path / ".git", fleet_run.repo.path):
            part.rename(fleet_run.directory / "away")
            looks_again()
            (fleet_run.directory / "away").rename(part)
        assert not asked
        fleet_run.repo.git("push", "-q", "origin", f"HEAD:{STOP}")
        looks_again()
    assert asked
