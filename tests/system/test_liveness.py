"""The identity of a process, and whether an owner is provably dead."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.liveness import Liveness
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TRUTH = {
    # locked, running, same kernel, same host name
    (True, True, True, True): Liveness.ALIVE,
    (True, True, True, False): Liveness.ALIVE,
    (True, True, False, True): Liveness.ALIVE,
    (True, True, False, False): Liveness.ALIVE,
    (True, False, True, True): Liveness.ALIVE,
    (True, False, True, False): Liveness.ALIVE,  # in another container: its pid says nothing here
    (True, False, False, True): Liveness.ALIVE,
    (
        True,
        False,
        False,
        False,
    ): Liveness.ALIVE,  # on another machine, by a file system that knows of its lock
    (False, True, True, True): Liveness.ALIVE,  # another process replaced the lock's file
    (False, True, True, False): Liveness.ALIVE,  # the same, and the host was renamed
    (False, True, False, True): Liveness.ALIVE,
    (False, True, False, False): Liveness.ALIVE,
    (False, False, True, True): Liveness.DEAD,
    (False, False, True, False): Liveness.DEAD,  # another container on this kernel: its lock would be seen
    (False, False, False, True): Liveness.DEAD,  # this machine, rebooted since
    (False, False, False, False): Liveness.FOREIGN,  # another machine, whose locks may not be seen here
}


def test_the_table_is_whole() -> None:
    """Every combination is decided on purpose."""
    assert set(TRUTH) == set(product((True, False), repeat=4))


@pytest.mark.parametrize(("locked", "running", "same_kernel", "same_host"), TRUTH)
def test_an_owner_is_dead_only_on_proof(
    locked: bool, running: bool, same_kernel: bool, same_host: bool
) -> None:
    """A held lock or a process that is seen is life; neither proves death only where it would be seen."""
    life = liveness.judge(
        locked=locked,
        running=running,
        owner_boot_id="this kernel" if same_kernel else "that kernel",
        owner_host="this host" if same_host else "that host",
        boot_id="this kernel",
        host="this host",
    )
    assert life is TRUTH[locked, running, same_kernel, same_host]


@pytest.fixture
def child() -> Iterator[liveness.ProcessIdentity]:
    """Yield the identity of a process that ends with the test."""
    with subprocess.Popen(("sleep", "60")) as process:
        started = process_table.start_time(process.pid)
        assert started is not None
        yield liveness.myself()._replace(pid=process.pid, start_time=started)
        process.kill()


def test_a_process_is_seen_while_it_runs(child: liveness.ProcessIdentity) -> None:
    """By its pid and its start."""
    assert liveness.is_running(child)


def test_a_zombie_does_not_run(child: liveness.ProcessIdentity) -> None:
    """It answers kill(pid, 0), but does nothing any more."""
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not liveness.is_running(child), "the end")
    os.kill(child.pid, 0)


@pytest.mark.parametrize(
    "difference",
    [
        {"start_time": 1.0},  # the pid is another process's by now
        {"boot_id": "that kernel"},
        {"pid_namespace": "pid:[1]"},
    ],
)
def test_another_process_of_the_same_pid_is_not_it(
    child: liveness.ProcessIdentity, difference: dict[str, Any]
) -> None:
    """A pid alone says nothing."""
    assert not liveness.is_running(child._replace(**difference))


def test_a_clock_that_jumps_does_not_change_the_identity_of_a_process() -> None:
    """The kernel counts a process's start from the boot, not from the epoch."""
    assert liveness.myself().start_time < time.clock_gettime(time.CLOCK_BOOTTIME) < 1e9


def test_my_identity_is_the_kernels() -> None:
    """Pid, start time, boot, pid namespace and host name, as ``proc(5)`` has them."""
    me = liveness.myself()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert me == liveness.ProcessIdentity(
        pid=os.getpid(),
        start_time=ticks / os.sysconf("SC_CLK_TCK"),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
        host=socket.gethostname(),
    )


def test_another_process_has_another_identity() -> None:
    """On the same kernel and host, but with another number."""
    code = "import json; from ralph_wrap.system import liveness; m = liveness.myself()"
    show = "print(json.dumps([m.pid, m.boot_id, m.pid_namespace, m.host]))"
    with subprocess.Popen(
        (sys.executable, "-c", f"{code}; {show}"), stdout=subprocess.PIPE, text=True
    ) as other:
        answer = other.communicate()[0]
    me = liveness.myself()
    expected = [other.pid, me.boot_id, me.pid_namespace, me.host]
    assert other.pid != me.pid
    assert answer.strip() == str(expected).replace("'", '"')
