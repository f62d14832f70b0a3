"""A machine of its own for a test: processes, mounts and network in namespaces that end with it.

The kernel removes everything at once. If the test process ends, even by SIGKILL, the first process of each
machine gets SIGKILL. With it go all its processes, mounts and network interfaces.
Kernel settings that a kubelet changes are files of the machine. A directory and control groups stay:
:mod:`tests.kubernetes.leftovers` removes them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

BOOT = r"""
set -eu
mkdir -p "$1/lib" "$1/log" "$1/settings"
# A kubelet sets these for the whole kernel. Here it writes to files.
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    [ -e "/proc/sys/$name" ] || continue
    copy=$1/settings/$(echo "$name" | tr / .)
    cat "/proc/sys/$name" > "$copy"
    mount --bind "$copy" "/proc/sys/$name"
done
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount -t tmpfs tmpfs /run
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
echo booted > "$1/booted"
while :; do sleep 1000 & wait $!; done  # reaps the processes that lost their parents
"""


class Machine:
    """A machine without a network, until :func:`connect` gives it one.

    Attributes:
        name: its host name
        directory: its files; ``lib`` and ``log`` in it are its ``/var/lib`` and ``/var/log``
        pid: its first process, as the host numbers it

    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self._daemons: list[Daemon] = []
        directory.mkdir(parents=True)
        log = (directory / "boot.log").open("wb")
        with log:
            self._holder = subprocess.Popen(
                [*_UNSHARE, "bash", "-c", BOOT, name, str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        eventually(self._booted, f"the machine {name} to boot")
        self.pid = psutil.Process(self._holder.pid).children()[0].pid
        self.call("hostname", name)

    def _booted(self) -> bool:
        assert self._holder.poll() is None, (self.directory / "boot.log").read_text()
        return (self.directory / "booted").exists()

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs *command* on this machine."""
        return ["nsenter", f"--target={self.pid}", *_NAMESPACES, "--wd=/", "--", *command]

    def call(self, *command: str, limit: float = 120, text: str | None = None) -> str:
        """Run *command* on this machine and return what it printed; it must succeed."""
        done = self.attempt(*command, limit=limit, text=text)
        assert done.returncode == 0, f"{shlex.join(command)} on {self.name}: {done.stderr}{done.stdout}"
        return done.stdout

    def attempt(
        self, *command: str, limit: float = 120, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* on this machine and return how that went."""
        return subprocess.run(
            self.inside(*command),
            input=text or "",
            capture_output=True,
            text=True,
            env=environment(),
            timeout=limit,
            check=False,
        )

    def start(self, name: str, *command: str) -> Daemon:
        """Start *command* on this machine; its output goes to ``NAME.log``."""
        daemon = Daemon(self, name, command)
        self._daemons.append(daemon)
        return daemon

    def end(self) -> None:
        """End every process of the machine, and with them its mounts and its network."""
        self._holder.kill()
        self._holder.wait()
        for daemon in self._daemons:
            daemon.wait()
        eventually(lambda: not psutil.pid_exists(self.pid), f"the machine {self.name} to end")


_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")
_DIES_WITH_THE_TEST = ("setpriv", "--pdeathsig", "KILL")
_UNSHARE = (*_DIES_WITH_THE_TEST, "unshare", *_NAMESPACES, "--mount-proc", "--fork", "--kill-child")


class Daemon:
    """A process that runs on a machine until it is killed."""

    def __init__(self, machine: Machine, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.machine = machine
        self.log = machine.directory / f"{name}.log"
        self._pid_file = machine.directory / f"{name}.pid"
        self._pid_file.unlink(missing_ok=True)
        script = 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec "$@"'
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                machine.inside("sh", "-c", script, str(self._pid_file), *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        eventually(self._pid_file.exists, f"{name} on {machine.name}")
        self.pid = int(self._pid_file.read_text())

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def require(self) -> None:
        """Fail if it has ended."""
        assert not self.has_ended, f"{self.name} ended: {self.log.read_text()[-3000:]}"

    def kill(self) -> None:
        """Send SIGKILL to its number in the machine, and wait for the end."""
        self.machine.call("kill", "-KILL", str(self.pid))
        self.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait(timeout=60)


def connect(machine: Machine, address: str, switch: Machine) -> None:
    """Give *machine* the address, by a cable to *switch* that has the machine's name there."""
    ends = ("netns", str(switch.pid), "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
    subprocess.run(["ip", "link", "add", machine.name, *ends], check=True, timeout=60)
    switch.call("ip", "link", "set", machine.name, "master", "br0", "up")
    machine.call("ip", "addr", "add", f"{address}/24", "dev", "eth0")
    machine.call("ip", "link", "set", "eth0", "up")


def environment() -> dict[str, str]:
    """Return what a daemon of a machine has in its environment: nothing of the user."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": f"{path}:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"}
