"""A remote that takes the claim of a session and refuses its work: one worker has the only copy."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interfaces.fleet.runs import FleetRun, FleetWorker

COMMIT = "echo work >> made; git add made; git commit -qm one"
HANG = "echo loose > loose; exec sleep 1000"
REFUSE = "case $1 in refs/heads/*|refs/ralph/rescue/*) exit 1;; esac"
"""A hook of the remote that takes a claim, and no work."""
WAIT = 'until [ -e "$gate" ]; do sleep 0.1; done'
"""A hook of the remote that does not answer."""


def _refuse_work(fleet_run: FleetRun) -> Path:
    """Let the remote take claims and no work; return its hook."""
    hook = fleet_run.remote.path / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{REFUSE}\n")
    hook.chmod(0o755)
    return hook


def _wait_beside_the_only_copy(fleet_run: FleetRun) -> FleetWorker:
    """Start a second worker beside one whose work the remote refuses; return it when it has looked twice."""
    eventually(lambda: fleet_run.claim().get("ended_by") == "max-iterations", "the end of the session")
    eventually(lambda: fleet_run.claim().get("incomplete"), "the claim without the work")
    second = fleet_run.work()
    ref = f"refs/ralph-remotes/origin/ralph/claims/{fleet_run.state()['id']}"
    fetched = second.workspace / "project/.git" / ref

    seen: set[str] = set()

    def has_looked_twice() -> bool:
        if fetched.exists():
            seen.add(fetched.read_text())
        return len(seen) > 1 or second.process.poll() is not None

    eventually(has_looked_twice, "the second worker to look at the claim twice")
    return second


def test_an_index_is_not_done_while_one_worker_has_the_only_copy(fleet_run: FleetRun) -> None:
    """The remote takes the claim and refuses the work: a second worker waits until it is pushed."""
    hook = _refuse_work(fleet_run)
    fleet_run.begin(f"echo run >> {fleet_run.directory}/runs; {COMMIT}", beat="5s")
    first = fleet_run.work()
    second = _wait_beside_the_only_copy(fleet_run)
    assert fleet_run.state()["state"] == "claimed"
    hook.unlink()
    ended = [worker.ended() for worker in (first, second)]
    assert [status for status, _ in ended] == [0, 0], ended
    assert "work that the remote lacks" in ended[1][1]
    assert fleet_run.state()["state"] == "done"
    assert fleet_run.remote.show(f"ralph/{fleet_run.state()['id']}:made") == b"work\n"
    assert (fleet_run.directory / "runs").read_text() == "run\n"


def test_an_index_whose_only_copy_is_gone_is_worked_on_again(fleet_run: FleetRun) -> None:
    """The first worker dies, so its claim does not move: the second one runs the session again."""
    hook = _refuse_work(fleet_run)
    fleet_run.begin(f"echo run >> {fleet_run.directory}/runs; {COMMIT}", beat="1s")
    first = fleet_run.work()
    second = _wait_beside_the_only_copy(fleet_run)
    first.kill()
    eventually(lambda: fleet_run.claim()["epoch"] == 2, "the second worker to take the session over")
    hook.unlink()
    status, printed = second.ended()
    assert (status, fleet_run.state()["state"]) == (0, "done"), printed
    assert fleet_run.remote.show(f"ralph/{fleet_run.state()['id']}:made") == b"work\n"
    assert (fleet_run.directory / "runs").read_text() == "run\nrun\n"


def test_a_signal_leaves_an_index_whose_branch_is_refused(fleet_run: FleetRun) -> None:
    """The session is over, and its work is only in rescue refs: the next worker goes on with the index."""
    _refuse_work(fleet_run).write_text("#!/bin/sh\ncase $1 in refs/heads/*) exit 1;; esac\n")
    fleet_run.begin(COMMIT)
    worker = fleet_run.work(grace=9)
    eventually(lambda: fleet_run.claim().get("ended_by") == "max-iterations", "the end of the session")
    worker.process.send_signal(signal.SIGTERM)
    status, printed = worker.ended()
    assert (status, fleet_run.state()["state"]) == (143, "claimed"), printed
    assert fleet_run.holds("made", "refs/ralph/rescue/")


@pytest.mark.parametrize(
    ("answer", "grace"), [(REFUSE, 9), (WAIT, 7)], ids=["the remote refuses", "no time is left"]
)
@pytest.mark.parametrize("end", ["done", "a signal"])
def test_a_worker_says_that_its_workspace_has_the_only_copy(
    fleet_run: FleetRun, end: str, answer: str, grace: int
) -> None:
    """The remote takes the claim, and no work; an engine must keep the workspace."""
    gate, hook = fleet_run.directory / "gate", _refuse_work(fleet_run)
    fleet_run.begin(COMMIT if end == "done" else f"{COMMIT}; {HANG}")
    worker = fleet_run.work(grace=grace)
    eventually(lambda: fleet_run.claim().get("incomplete"), "the claim without the work")
    if end == "done":
        eventually(lambda: fleet_run.claim().get("ended_by") == "max-iterations", "the end of the session")
    later = hook.with_suffix(".new")
    later.write_text(f"#!/bin/sh\ngate={gate}\n{answer}\n")
    later.chmod(0o755)
    later.rename(hook)
    worker.process.send_signal(signal.SIGTERM)
    status, printed = worker.ended()
    gate.touch()
    branch = f"refs/heads/ralph/{fleet_run.state()['id']}"
    assert (status, branch in printed) == (3, True), printed
    assert fleet_run.state()["state"] == "claimed"
    subprocess.run(
        ["git", "-C", worker.workspace / "project", "cat-file", "-e", f"{branch}:made"], check=True
    )
