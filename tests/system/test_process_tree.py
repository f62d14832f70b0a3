"""Processes that are known by their environment alone."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from ralph_wrap.system import process_table, process_tree
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.process_tree import EndedProcesses, ProcessTree
from tests.support.wait import CAP

SESSION = "check-00000001"


def test_a_process_that_shows_no_environment_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of its ``execve(2)`` it has none; a moment later it is known, and ended."""
    environment_of, looks = process_table.environment, []
    with subprocess.Popen(("sleep", "600"), env={**os.environ, "RALPH_SESSION_ID": SESSION}) as process:

        def environment(pid: int) -> list[bytes]:
            if pid == process.pid:
                looks.append(pid)
            return [b""] if pid == process.pid and len(looks) < 3 else environment_of(pid)

        monkeypatch.setattr(process_table, "environment", environment)
        ended = ProcessTree(whole_process=False, session=SESSION).end(5.0, NEVER, signalled=False)
        assert ended == EndedProcesses(1, ())
        # Either end() or Popen collects the process first, so its exit status is not asserted.
        process.wait(CAP)


def test_a_program_without_any_environment_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never known; the look ends all the same."""
    monkeypatch.setattr(process_tree, "_LONGEST_EXECVE", 0.05)
    with subprocess.Popen(("sleep", "600"), env={}) as process:
        began = time.monotonic()
        ended = ProcessTree(whole_process=False, session=SESSION).end(5.0, NEVER, signalled=False)
        assert (ended.signalled, process.poll(), time.monotonic() - began < 5) == (0, None, True)
        process.kill()
