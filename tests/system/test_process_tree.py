"""Processes that are known by their environment alone, and process groups that end in steps."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ralph_wrap.system import process_table, process_tree
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.process import ProcessGroup, ProcessSpec, StandardStreams
from ralph_wrap.system.process_tree import EndedProcesses, GroupTermination, ProcessTree
from tests.support.wait import CAP

SESSION = f"check-{os.getpid()}"
"""Each worker of a run has its own: a search looks at all processes of the machine."""

STUBBORN = "trap '' TERM; echo; sleep 600; exit 3"
POLITE = "trap 'exit 4' TERM; echo; sleep 600 & wait; exit 3"


def test_a_process_that_shows_no_environment_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of its ``execve(2)`` it has none; a moment later it is known, and ended."""
    monkeypatch.setattr(process_tree, "_LONGEST_EXECVE", CAP)  # on a busy machine two looks take long
    environment_of, looks = process_table.environment, []
    with subprocess.Popen(("sleep", "600"), env={**os.environ, "RALPH_SESSION_ID": SESSION}) as process:

        def environment(pid: int) -> list[bytes]:
            if pid == process.pid:
                looks.append(pid)
            return [b""] if pid == process.pid and len(looks) < 3 else environment_of(pid)

        monkeypatch.setattr(process_table, "environment", environment)
        ended = ProcessTree(whole_process=False, session=SESSION).end(5.0, NEVER, signalled=False)
        process.kill()  # if it is still there
        assert ended == EndedProcesses(1, ())
        # Either end() or Popen collects the process first, so its exit status is not asserted.
        process.wait(CAP)


def test_a_process_that_starts_another_while_we_look_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends before its turn. The other one was not in the list of processes, however long that took."""
    environment_of = process_table.environment
    with subprocess.Popen(
        ("sh", "-c", "read go; sleep 600 >/dev/null & sleep 0.6"),
        env={**os.environ, "RALPH_SESSION_ID": SESSION},
        stdin=subprocess.PIPE,
    ) as process:

        def environment(pid: int) -> list[bytes]:
            if pid == process.pid and process.returncode is None:
                process.communicate(b"\n", CAP)
            return environment_of(pid)

        monkeypatch.setattr(process_table, "environment", environment)
        ended = ProcessTree(whole_process=False, session=SESSION).end(5.0, NEVER, signalled=False)
        assert ended == EndedProcesses(1, ())


def test_a_program_without_any_environment_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never known; the look ends all the same."""
    monkeypatch.setattr(process_tree, "_LONGEST_EXECVE", 0.05)
    with subprocess.Popen(("sleep", "600"), env={}) as process:
        began = time.monotonic()
        ended = ProcessTree(whole_process=False, session=SESSION).end(CAP, NEVER, signalled=False)
        took, status = time.monotonic() - began, process.poll()
        process.kill()
        assert (ended.signalled, status, took < CAP) == (0, None, True)


def _started(script: str) -> ProcessGroup:
    """Start a group that has set its traps."""
    reading, writing = os.pipe()
    try:
        streams = StandardStreams(reading, writing, writing)
        spec = ProcessSpec(("sh", "-c", script), Path("/"), os.environ, streams, inherited=writing)
        group = ProcessGroup(spec)
        assert os.read(reading, 1) == b"\n"
    finally:
        os.close(reading)
        os.close(writing)
    return group


@pytest.mark.parametrize("has_pidfd", [True, False])
@pytest.mark.parametrize(
    ("script", "grace", "status"), [(POLITE, 60.0, 4), (STUBBORN, 0.1, 128 + signal.SIGKILL)]
)
def test_a_group_gets_a_request_and_then_no_choice(
    monkeypatch: pytest.MonkeyPatch, script: str, grace: float, status: int, *, has_pidfd: bool
) -> None:
    """A process that ends by itself has the time for it; only one that stays is killed."""
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    group, ending = _started(script), GroupTermination()
    assert not ending.escalate(group)
    before = ending.requested
    ending.terminate(group, grace)
    assert (before, ending.requested) == (False, True)
    while (found := group.poll()) is None:
        assert not ending.escalate(group)
        group.wait(5.0)
    assert found == status
    assert bool(ending.grace_left) == (script is POLITE)


def test_the_earlier_deadline_counts_and_the_last_step_is_no_more_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later request never prolongs the grace, and a process that the kernel does not end is given up."""
    monkeypatch.setattr(process_tree, "UNKILLABLE_AFTER", 0.0)
    group, ending = _started(STUBBORN), GroupTermination()
    for grace in (0.0, 60.0):
        ending.limit(grace)
    assert [ending.escalate(group), ending.escalate(group)] == [False, True]
    while group.poll() is None:
        group.wait(5.0)
