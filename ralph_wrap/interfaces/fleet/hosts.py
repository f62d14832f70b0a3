"""Run the workers of a run on machines of the user, by the user's own ssh.

The connection is the life line of a worker: when its standard input ends, the worker gets SIGTERM, saves and
pushes. So nothing runs on where no process watches it, and the index can go on on another machine.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.fleet import order
from ralph_wrap.interfaces.fleet.started import StartedRun
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import ProcessGroup, ProcessSpec, StandardStreams
from ralph_wrap.system.text import command

log = get_logger()

_HOST = re.compile(r"(?:[\w.+-]+@)?[\w.:\[\]-]+", re.ASCII)
_UNREACHABLE = 255  # ssh(1), EXIT STATUS
_INTERRUPTED = {143, 130}  # a worker that asks to come back
_RETRIES = 3  # failed workers of an index
_REST = 10.0  # seconds until a machine gets a worker again, after it could not be reached
_ATTEMPTS = 5  # to reach a machine that was never reached; its name may be mistyped
_LOOK = 0.2  # seconds between two looks
_BEGINNING = 1 << 16  # bytes: what ssh itself may print before the machine does
_REACHED = "ralph-wrap: a worker begins here"
"""What a machine prints first: ssh ends with the same status whether it connected or not."""
# BatchMode: a question of ssh would have no answer. ServerAlive: a dead machine is noticed after a minute.
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
# The workspace goes only after the worker has said that the remote has all work.
_SCRIPT = """\
echo '{reached}'
workspace=$(mktemp -d "${{TMPDIR:-/tmp}}/ralph-fleet-XXXXXXXX") || exit 1
exec 3<&0
env {variables} {workspace}="$workspace/clone" ralph-wrap fleet work </dev/null 3<&- &
worker=$!
(cat <&3 >/dev/null; kill -TERM "$worker") >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$worker"; status=$?
kill "$watcher" 2>/dev/null
[ "$status" -ne 0 ] || rm -rf -- "$workspace"
exit "$status"
"""


def check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that the user has named.

    Raises:
        UsageError: a name has letters that no machine has; ssh would take some of them for an option.

    """
    for host in hosts:
        if host.startswith("-") or not _HOST.fullmatch(host):
            raise UsageError(f"{host!r} is no name of a machine", "--host user@machine")
    return tuple(dict.fromkeys(hosts))


class HostWorker(NamedTuple):
    """A worker that runs on a machine; closing *line* ends it.

    Attributes:
        begun: where its own output begins in the log of its index.

    """

    number: int
    host: str
    process: ProcessGroup
    line: int
    begun: int


class HostFleet:
    """Runs the indexes of a run on machines, until each of them is done or has failed.

    Arguments:
        started: the run.
        size: number of its indexes.
        parallel: number of workers at the same time.
        logs: directory for what the workers print.
        environ: the environment of ssh.
        cancel: the signals so far.

    """

    def __init__(
        self,
        started: StartedRun,
        size: int,
        parallel: int,
        logs: Path,
        environ: Mapping[str, str],
        cancel: CancelToken,
    ) -> None:
        self._started = started
        self._waiting = [*range(size)]
        self._parallel = parallel
        self._logs = logs
        self._environ = environ
        self._cancel = cancel
        self._running: list[HostWorker] = []
        self._failures: dict[int, int] = {}
        self._rests: dict[str, float] = {}
        self._reached: set[str] = set()
        self._missed = dict.fromkeys(started.hosts, 0)

    def run(self) -> list[int]:
        """Run all workers, and return the indexes that have failed.

        After the first signal, each worker saves its work and ends. The second one ends the connections.
        """
        failed: list[int] = []
        while self._running or (self._waiting and not self._cancel.requested):
            if self._cancel.requested:
                self._let_end()
            else:
                self._start_some()
            for worker in [*self._running]:
                if (status := worker.process.poll()) is not None:
                    self._running.remove(worker)
                    self._close(worker)
                    failed += self._after(worker, status)
            if not self._running and not self._hosts():
                failed += self._waiting
                break
            time.sleep(_LOOK)
        return sorted(failed)

    def _start_some(self) -> None:
        while self._waiting and len(self._running) < self._parallel:
            loads = {host: sum(worker.host == host for worker in self._running) for host in self._ready()}
            if not loads:
                return
            self._start(self._waiting.pop(0), min(loads, key=loads.__getitem__))

    def _ready(self) -> list[str]:
        now = time.monotonic()
        return [host for host in self._hosts() if self._rests.get(host, now) <= now]

    def _hosts(self) -> list[str]:
        """Return the machines that were reached, or may still be."""
        return [host for host, missed in self._missed.items() if missed < _ATTEMPTS]

    def _start(self, number: int, host: str) -> None:
        reading, writing = os.pipe()
        output = os.open(
            self._logs / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            spec = ProcessSpec(
                [*_SSH, "--", host, script(self._started, number)],
                cwd=self._logs,
                env=self._environ,
                streams=StandardStreams(reading, output, output),
                inherited=reading,
            )
            begun = os.fstat(output).st_size
            process = ProcessGroup(spec)
        except OSError:
            os.close(writing)
            raise
        finally:
            os.close(reading)
            os.close(output)
        self._running.append(HostWorker(number, host, process, writing, begun))
        log.event("fleet.host_started", f"index {number} starts on {host}")

    def _after(self, worker: HostWorker, status: int) -> list[int]:
        """Decide what follows the end of a worker; return its index if it has failed for good."""
        number, host = worker.number, worker.host
        if status == 0:
            log.event("fleet.host_done", f"index {number} has ended on {host}")
            return []
        if status == order.WORK_STAYS:
            output = self._logs / f"{number}.log"
            message = f"some work of index {number} is only on {host}; see {output}"
            log.warning("fleet.work_stays", message)
        if self._cancel.requested:
            return []
        if status == _UNREACHABLE:
            self._rests[host] = time.monotonic() + _REST
            self._note_unreachable(worker)
        elif status not in _INTERRUPTED:
            self._failures[number] = self._failures.get(number, 0) + 1
            output = self._logs / f"{number}.log"
            if status != order.WORK_STAYS:
                message = f"index {number} failed on {host} ({status}); see {output}"
                log.warning("fleet.host_failed", message)
            if self._failures[number] > _RETRIES:
                return [number]
        self._waiting.append(number)
        return []

    def _note_unreachable(self, worker: HostWorker) -> None:
        """Log that a machine cannot be reached; one that never was gets no more workers after a while."""
        host, output = worker.host, self._logs / f"{worker.number}.log"
        with output.open("rb") as printed:
            printed.seek(worker.begun)
            if f"{_REACHED}\n".encode() in printed.read(_BEGINNING):
                self._reached.add(host)
        if host not in self._reached:
            self._missed[host] += 1
        if self._missed[host] < _ATTEMPTS:
            log.warning("fleet.host_lost", f"{host} cannot be reached; see {output}")
        else:
            log.warning(
                "fleet.host_given_up",
                f"{host} was not reached in {_ATTEMPTS} attempts, and gets no worker; see {output}",
                f"to see why: {command('ssh', '--', host, 'true')}",
            )

    def _let_end(self) -> None:
        """End the life lines; after a second signal, the connections, too."""
        for position, worker in enumerate(self._running):
            if worker.line >= 0:
                os.close(worker.line)
                self._running[position] = worker._replace(line=-1)
            if self._cancel.hurried:
                worker.process.terminate()

    @staticmethod
    def _close(worker: HostWorker) -> None:
        if worker.line >= 0:
            os.close(worker.line)


def script(started: StartedRun, number: int) -> str:
    """Return the shell script that a machine runs for an index."""
    variables = {
        order.REMOTE: started.address,
        order.RUN: started.run,
        order.SPEC: started.spec,
        order.INDEX: str(number),
        order.GRACE: str(started.grace),
    }
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return _SCRIPT.format(reached=_REACHED, variables=words, workspace=order.WORKSPACE)
