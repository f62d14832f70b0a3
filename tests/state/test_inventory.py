"""What sessions there are, and the verdict on each."""

from __future__ import annotations

import os
import subprocess
import time
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict, classify
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.liveness import ProcessIdentity, myself
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


def _verdict(state: str, *, locked: bool, same_boot: bool, same_host: bool) -> Verdict:
    """Say by itself what the contract says of dead, foreign and finished."""
    if locked:
        return Verdict.LIVE
    if state == "finished":
        return Verdict.FINISHED
    return Verdict.ORPHAN if same_boot or same_host else Verdict.FOREIGN


@pytest.mark.parametrize(
    ("state", "locked", "same_boot", "same_host"),
    list(product(("starting", "running", "ending", "finished"), *[(True, False)] * 3)),
)
def test_every_record_has_its_verdict(state: str, locked: bool, same_boot: bool, same_host: bool) -> None:
    """By its lock, then by whether it is finished, then by where its owner ran."""
    record = SessionRecord("a3f2", "s", 1, 1.0, "boot", "pid:[1]", "box", state=state)
    boot_id, host = "boot" if same_boot else "later", "box" if same_host else "bus"
    assert classify(record, locked=locked, running=False, boot_id=boot_id, host=host) is _verdict(
        state, locked=locked, same_boot=same_boot, same_host=same_host
    )


@pytest.fixture
def zombie() -> Iterator[ProcessIdentity]:
    """Yield a process that has ended, and whose parent has not waited for it."""
    with subprocess.Popen(("sleep", "60")) as process:
        started = process_table.start_time(process.pid)
        assert started is not None
        process.kill()
        eventually(lambda: process_table.start_time(process.pid) is None, "its end")
        yield myself()._replace(pid=process.pid, start_time=started)


OTHER_CONTAINER = {"pid_namespace": "pid:[1]", "host": "0f1e2d3c4b5a"}

OTHER_MACHINE = {**OTHER_CONTAINER, "boot_id": "that-kernel"}

CASES: dict[str, tuple[bool, dict[str, Any], Verdict]] = {
    "two containers on one project, the other one lives": (True, OTHER_CONTAINER, Verdict.LIVE),
    "two containers on one project, the other one is gone": (False, OTHER_CONTAINER, Verdict.ORPHAN),
    "the same pid in another container": (False, {**OTHER_CONTAINER, "pid": os.getpid()}, Verdict.ORPHAN),
    "a container's session, seen from the host": (True, OTHER_CONTAINER, Verdict.LIVE),
    "a pid that another process has by now": (False, {"start_time": 0.5}, Verdict.ORPHAN),
    "a process that lives, and whose lock was replaced": (False, {}, Verdict.LIVE),
    "a rebooted host": (False, {"boot_id": "that-kernel", "pid": 1}, Verdict.ORPHAN),
    "a container of a host that was rebooted": (False, OTHER_MACHINE, Verdict.FOREIGN),
    "a session on another machine whose lock is seen": (True, OTHER_MACHINE, Verdict.LIVE),
    "a session on another machine whose lock is not seen": (False, OTHER_MACHINE, Verdict.FOREIGN),
    "a record copied from another machine": (False, {**OTHER_MACHINE, "pid": os.getpid()}, Verdict.FOREIGN),
    "a process of unknown start, as a clock that jumped made it once": (
        False,
        {"start_time": time.time()},
        Verdict.ORPHAN,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_known_case_has_its_verdict(case: str) -> None:
    """Those that other programs get wrong, with this process and this kernel as what is here."""
    locked, differences, verdict = CASES[case]
    assert _seen_from_here(myself()._replace(**differences), locked=locked) is verdict


def test_a_zombie_is_dead(zombie: ProcessIdentity) -> None:
    """Although it answers kill(pid, 0)."""
    os.kill(zombie.pid, 0)
    assert _seen_from_here(zombie, locked=False) is Verdict.ORPHAN


def _seen_from_here(owner: ProcessIdentity, *, locked: bool) -> Verdict:
    record = SessionRecord("a3f2", "s", **owner._asdict(), state="running")
    running = liveness.is_running(owner)
    here = myself()
    return classify(record, locked=locked, running=running, boot_id=here.boot_id, host=here.host)


@pytest.mark.parametrize(
    ("verdict", "advice"),
    [
        (Verdict.LIVE, "ralph-wrap stop a3f2"),
        (Verdict.ORPHAN, "to save its work: ralph-wrap sweep"),
        (
            Verdict.FOREIGN,
            (
                "on its machine: ralph-wrap stop a3f2\n"
                "if you know that it is dead: ralph-wrap sweep --adopt a3f2"
            ),
        ),
        (Verdict.UNKNOWN, "to see the reason: ralph-wrap ps"),
        (Verdict.FINISHED, ""),
    ],
)
def test_there_is_advice_for_each_verdict(verdict: Verdict, advice: str) -> None:
    """One command a line."""
    assert advice_for(verdict, "a3f2") == advice
