"""Who a process is, and whether an owner is provably dead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from ralph_wrap import liveness
from ralph_wrap.liveness import Life

TRUTH = {
    # locked, same kernel, same host name
    (True, True, True): Life.ALIVE,
    (True, True, False): Life.ALIVE,
    (True, False, True): Life.ALIVE,
    (True, False, False): Life.ALIVE,
    (False, True, True): Life.DEAD,
    (False, True, False): Life.DEAD,  # another container on this kernel: its lock would be seen
    (False, False, True): Life.DEAD,  # this machine, rebooted since
    (False, False, False): Life.FOREIGN,  # another machine, whose locks may not be seen here
}


def test_the_table_is_whole() -> None:
    """Every combination is decided on purpose."""
    assert set(TRUTH) == set(product((True, False), repeat=3))


@pytest.mark.parametrize(("locked", "same_kernel", "same_host"), TRUTH)
def test_an_owner_is_dead_only_on_proof(locked: bool, same_kernel: bool, same_host: bool) -> None:
    """A held lock is life; a free one proves death only where it would be seen."""
    life = liveness.judge(
        locked=locked,
        owner_boot_id="this kernel" if same_kernel else "that kernel",
        owner_host="this host" if same_host else "that host",
        boot_id="this kernel",
        host="this host",
    )
    assert life is TRUTH[locked, same_kernel, same_host]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_i_am_who_the_kernel_says() -> None:
    """Pid, start time, boot, pid namespace and host name, as ``proc(5)`` has them."""
    me = liveness.myself()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    rows = dict(line.split(" ", 1) for line in Path("/proc/stat").read_text().splitlines())
    started = int(rows["btime"]) + ticks / os.sysconf("SC_CLK_TCK")
    assert me == liveness.Identity(
        pid=os.getpid(),
        start_time=me.start_time,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
        host=socket.gethostname(),
    )
    assert abs(me.start_time - started) < 1.5  # seconds: the kernel's own start is rounded anew


def test_another_process_is_somebody_else() -> None:
    """On the same kernel and host, but with another number."""
    code = "import dataclasses, json; from ralph_wrap import liveness; m = liveness.myself()"
    show = "print(json.dumps([m.pid, m.boot_id, m.pid_namespace, m.host]))"
    with subprocess.Popen(
        (sys.executable, "-c", f"{code}; {show}"), stdout=subprocess.PIPE, text=True
    ) as other:
        answer = other.communicate()[0]
    me = liveness.myself()
    expected = [other.pid, me.boot_id, me.pid_namespace, me.host]
    assert other.pid != me.pid
    assert answer.strip() == str(expected).replace("'", '"')
