"""One usage limit for a run: what one worker finds, all wait for."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet import watch
from ralph_wrap.interfaces.fleet.limits.background import Background
from ralph_wrap.interfaces.fleet.limits.usage_limit import RunUsageLimits
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import FleetSpec
from ralph_wrap.loop import usage_limit
from tests.interfaces.fleet.runs import RUN
from tests.support.agent_script import limited, result_line
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.interfaces.fleet.limits.background import Conversation
    from tests.interfaces.fleet.runs import FleetRun
    from tests.support.repo import Repo

LIMITS = f"refs/ralph/fleet/{RUN}/limit/"
SECONDS = 12  # of the usage limit
DAYS = 86400.0


def begin(run: FleetRun, size: int) -> None:
    """Put a run on the remote whose first agent finds a limit, and whose other agents note their start."""
    first = f"if mkdir {run.directory}/first; then\n{limited(SECONDS)}\nexit 1\nfi"
    run.repo.write("agent.sh", f"{first}\ndate +%s >> {run.directory}/starts\n{result_line('Fine.')}")
    run.repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["sh", "agent.sh"]\noutput = "claude"\n')
    options = {"agent": "mine", "prompt": "go", "max_iterations": "1"}
    run.begin("", size=size, parallel=size, options=options, command=())


def starts(run: FleetRun) -> list[int]:
    """Return when agents started to work, in seconds since the epoch."""
    file = run.directory / "starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def until(run: FleetRun) -> float:
    """Return the end of the only limit on the remote."""
    [ref] = run.refs(LIMITS)
    found: float = json.loads(run.remote.show(ref))["until"]
    return found


def test_all_workers_wait_for_the_limit_of_one(fleet_run: FleetRun) -> None:
    """Those that start later ask no agent before its end; then each index is done."""
    begin(fleet_run, 3)
    workers = [fleet_run.work(0)]
    eventually(lambda: fleet_run.refs(LIMITS), "the limit on the remote")
    workers += [fleet_run.work(index) for index in (1, 2)]
    for status, printed in [worker.ended() for worker in workers]:
        assert status == 0, printed
    assert [fleet_run.state(index)["state"] for index in range(3)] == ["done"] * 3
    assert len(starts(fleet_run)) == 3
    assert min(starts(fleet_run)) >= int(until(fleet_run))


@pytest.mark.parametrize(
    "forged",
    [
        {"mine-00000000": json.dumps({"version": 1, "until": time.time() + 400 * DAYS})},
        {"mine-00000000": json.dumps({"version": 1, "until": "soon"}), "other": "\0"},
        {"mine-00000000": '{"version": 9}', "UP.lock.x": json.dumps({"version": 1, "until": 9e99})},
    ],
)
def test_forged_limits_stop_no_worker(fleet_run: FleetRun, forged: dict[str, str], tmp_path: Path) -> None:
    """A time that is more than a day away counts as little as a text, and no name leaves the directory."""
    begin(fleet_run, 1)
    (fleet_run.directory / "first").mkdir()
    for account, content in forged.items():
        fleet_run.put(f"{LIMITS}{account}", content)
    limits, directory = _limits(fleet_run, tmp_path / "limits")
    limits.fetch()
    assert not directory.exists()
    status, printed = fleet_run.work().ended()
    assert (status, len(starts(fleet_run))) == (0, 1), printed


def _limits(run: FleetRun, directory: Path, stagger: float = 0.0) -> tuple[RunUsageLimits, Path]:
    git = Git(run.repo.path, git_environment(os.environ))
    spec = FleetSpec(RUN, 2, parallel=2, stagger=stagger)
    return RunUsageLimits(FleetRemote(git, "origin"), spec, directory), directory


def test_a_session_that_runs_gets_the_limit_of_another_worker(
    fleet_run: FleetRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker writes the file that it waits for, with a random delay; each worker has its own delay."""
    monkeypatch.setattr(watch, "_EVERY", 0.1)
    end = time.time() + 1000
    found, first = _limits(fleet_run, tmp_path / "first", stagger=100.0)
    others = [_limits(fleet_run, tmp_path / f"other{number}", stagger=100.0) for number in range(2)]
    usage_limit.write(first, first / "mine-12345678.json", end)
    places = [first, *(directory for _, directory in others)]

    def waits() -> list[float]:
        return [usage_limit.read(path / "mine-12345678.json", time.time()) for path in places]

    def watched(limits: RunUsageLimits) -> Background:
        remote = FleetRemote(Git(fleet_run.repo.path, git_environment(os.environ)), "origin")
        return Background(watch.RunWatch(remote, "refs/stop", lambda: None, limits).begin)

    with watched(found) as one, watched(others[0][0]) as two, watched(others[1][0]) as three:

        def all_wait() -> bool:
            for each in (one, two, three):
                each.look()
            return min(waits()) >= end and waits()[0] > end

        eventually(all_wait, "the limit everywhere")
    assert abs(until(fleet_run) - end) < 1
    assert all(end <= later <= end + 200 for later in waits())
    assert len({*waits()}) == 3


@pytest.mark.parametrize("damaged", ["objects", "refs"])
def test_a_damaged_repository_ends_no_worker(repo: Repo, remote: Repo, tmp_path: Path, damaged: str) -> None:
    """The agent moves a directory of the repository away while the worker pushes a limit, and back again."""
    git = Git(repo.path, git_environment(os.environ))
    limits = RunUsageLimits(FleetRemote(git, "origin", lambda: False), FleetSpec(RUN, 1), tmp_path)
    until = time.time() + 600
    usage_limit.write(tmp_path, tmp_path / "shell.json", until)
    begun: list[None] = []

    def begin() -> Conversation:
        begun.append(None)
        return limits.push_beside({"shell": until})

    away = repo.path / ".git/away"
    (repo.path / ".git" / damaged).rename(away)
    with Background(begin) as background:
        background.look()
        background.look()
        away.rename(repo.path / ".git" / damaged)
        assert len(begun) == 2

        def is_pushed() -> bool:
            background.look()
            return "limit/shell" in remote.git("for-each-ref")

        eventually(is_pushed, "the limit at the remote")
