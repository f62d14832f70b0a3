"""The processes that an agent has started and left: find, signal, end and reap them.

Orphans come to us because we are a child subreaper. "Gone" means reaped: a zombie answers ``kill(pid, 0)``.
No code here waits with ``waitpid(-1)``. It would take the exit status of a child for which other code waits,
and that code would read 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import process_table
from ralph_wrap.system.cancel import Hurry
from ralph_wrap.system.process import OWN_COMMAND, ProcessGroup

_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>, prctl(2)
UNKILLABLE_AFTER = 10.0
"""Seconds after SIGKILL; a process that still runs then hangs in the kernel, or belongs to another user."""

_TICK = 0.01  # seconds between two looks at processes that have to end
_LONGEST_EXECVE = 0.5  # seconds; some programs have no environment at all, so the wait must end
_MOST_LISTS = 200  # of processes, which may start one another without end; 180 processes: 0.2 s


class EndedProcesses(NamedTuple):
    """How many processes got a signal, and the pids of those that survived even SIGKILL."""

    signalled: int
    survivors: tuple[int, ...]


class GroupTermination:
    """The termination of a process group in steps: SIGTERM, SIGKILL, then no more waiting.

    Attributes:
        deadline: time of the next step, as :func:`time.monotonic` counts; infinite before the first request.

    """

    def __init__(self) -> None:
        self.deadline = math.inf
        self._killed = False

    @property
    def requested(self) -> bool:
        """Whether the group was asked to end."""
        return self.deadline < math.inf

    @property
    def grace_left(self) -> float:
        """Seconds until SIGKILL."""
        return 0.0 if self._killed else max(0.0, self.deadline - time.monotonic())

    def terminate(self, group: ProcessGroup, grace: float) -> None:
        """Ask the group to end; SIGKILL follows after the grace."""
        group.terminate()
        self.limit(grace)

    def limit(self, grace: float) -> None:
        """Record that the group was asked to end; after a second request, the earlier deadline counts."""
        if not self._killed:
            self.deadline = min(self.deadline, time.monotonic() + grace)

    def escalate(self, group: ProcessGroup) -> bool:
        """Take the next step if it is due; return whether no step is left."""
        if time.monotonic() < self.deadline:
            return False
        if self._killed:
            return True
        group.signal(signal.SIGKILL)
        self._killed = True
        self.deadline = time.monotonic() + UNKILLABLE_AFTER
        return False


class ProcessTree:
    """The processes that an agent has started and left.

    A session inside ours is one of them. Like any session, it saves its work at its end. Only that session
    ends its own commands: a SIGTERM from us would stop its ``git add``.

    Children that we had before the session do not count (``server & exec ralph-wrap``). Processes that the
    setup has left running (:meth:`keep`) end with the session, not with an iteration.

    Arguments:
        whole_process: all our new children are the agent's; its orphans come to us. Otherwise a process
            counts if its environment has the session's id, whether it is our child or not.
        session: its id.
        dead: the session cannot end its own commands any more, so we do.

    """

    def __init__(self, *, whole_process: bool, session: str, dead: bool = False) -> None:
        self._whole_process = whole_process
        self._marks = [f"RALPH_SESSION_ID={session}".encode()]
        if dead:
            self._marks.append(f"{OWN_COMMAND}={session}".encode())
        self._before = frozenset(process_table.children(os.getpid()))
        self._kept: frozenset[int] = frozenset()
        self._ours: frozenset[int] = frozenset()
        self._hidden = False  # at the latest look, a process showed no environment

    def keep(self) -> None:
        """Leave the processes that run now alone until the session's end."""
        self._kept = frozenset(self._find())

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Leave the processes that run now alone, until the context ends."""
        before, self._kept = self._kept, frozenset(self._find())
        try:
            yield
        finally:
            self._kept = before

    def spare(self, *pids: int) -> None:
        """Leave these children alone, and no others: our own commands that run beside the agent.

        Before our code waits for such a command, it must spare it no longer: another process may get the pid.
        """
        self._ours = frozenset(pids)

    def reap(self, agent: int) -> None:
        """Collect orphans that came to us and have ended; other code waits for *agent*."""
        if self._whole_process:
            _reap([pid for pid in self._find() if pid != agent])

    def signal(self, number: int, except_group: int) -> None:
        """Send a signal to all of them, but not to a process group that got it already."""
        for pid in process_table.descendants(self._of_the_agent()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != except_group and not self._is_spared(pid):
                    os.kill(pid, number)

    def end(self, grace: float, hurry: Hurry, *, signalled: bool) -> EndedProcesses:
        """End them and all their descendants: TERM, grace, then KILL until we find none any more.

        These are no group: each process gets its own TERM when it is found, and a killed one leaves new
        orphans to find. So the steps of :class:`GroupTermination` do not fit.

        Arguments:
            grace: seconds between TERM and KILL.
            hurry: may take the grace away at any time.
            signalled: they got a signal already; a second one would hurry a session among them. Otherwise the
                session ends, and with it the processes that were kept until then.

        """
        reached: set[int] = set()
        deadline = time.monotonic() + grace
        give_up = deadline + UNKILLABLE_AFTER
        find = self._of_the_agent if signalled else self._find
        roots = find()
        execve_done = time.monotonic() + _LONGEST_EXECVE  # on a busy machine, the first look takes long
        while roots or (self._hidden and time.monotonic() < execve_done):
            kill = hurry.hurried or time.monotonic() >= deadline
            for pid in process_table.descendants(roots):
                if pid == os.getpid():
                    continue
                if kill or (pid not in reached and not self._is_spared(pid)):
                    reached.add(pid)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if kill or not signalled:
                            os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process does not see TERM
            _reap(roots)
            # Look anew each time: a killed process leaves its children to us.
            left = find()
            if left and time.monotonic() >= give_up:
                return EndedProcesses(len(reached), tuple(left))
            if left or self._hidden:
                time.sleep(_TICK)
            roots = find()
        return EndedProcesses(len(reached), ())

    def _find(self) -> Collection[int]:
        if not self._whole_process:
            ours = process_table.ancestors(os.getpid())  # we may be below a dead session's agent
            environments = _environments(except_for=ours)
            # In the middle of its execve(2) a process shows no environment. Without this check, we did not
            # find 6 of 1,500 processes that a shell had just left in the background.
            self._hidden = any(
                process_table.is_program(pid) for pid, found in environments.items() if found == [b""]
            )
            return [pid for pid, found in environments.items() if not {*self._marks}.isdisjoint(found)]
        return [pid for pid in process_table.children(os.getpid()) if pid not in self._before | self._ours]

    def _of_the_agent(self) -> Collection[int]:
        if not self._kept:
            return self._find()
        kept = {*process_table.descendants(self._kept)}
        return [pid for pid in self._find() if pid not in kept]

    def _is_spared(self, pid: int) -> bool:
        """Return whether another session runs this command for itself."""
        environment = process_table.environment(pid)
        own = any(entry.startswith(f"{OWN_COMMAND}=".encode()) for entry in environment)
        return own and {*self._marks[1:]}.isdisjoint(environment)


def _environments(except_for: Collection[int]) -> dict[int, list[bytes]]:
    """Return the environment of each process, by its pid.

    A process can start another one and end before we read it. So we list the processes until none is new.
    With one list we missed the last of 30 processes, each of which started the next, in 18 of 20 runs.
    A limit of time would leave only one list on a busy machine.
    """
    found: dict[int, list[bytes]] = {}
    for _ in range(_MOST_LISTS):
        new = [pid for pid in process_table.pids() if pid not in found and pid not in except_for]
        if not new:
            break
        found |= {pid: process_table.environment(pid) for pid in new}
    return found


_SECOND = 1.0  # a session id has whole seconds


def orphans_since(began: float, awaits_sweep: Callable[[str], bool]) -> list[int]:
    """Return the children of PID 1 that belong to no session that we know, and began after a moment.

    After SIGKILL of a session, PID 1 is the parent of its orphans. One that has neither our variables nor a
    descriptor of the session looks like a daemon of the user. The orphans of a live session are its
    children. So a child of PID 1 that names it is none of them. If PID 1 has begun after the moment (the
    container was restarted, or is another one), all that lived then has ended with the former PID 1.

    Arguments:
        began: seconds since 1970.
        awaits_sweep: returns whether a session id is that of another dead session: its own sweep ends the
            processes that name it.

    """
    ours = process_table.ancestors(os.getpid())
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if booted + (process_table.start_time(1) or 0.0) > began + _SECOND:
        return []
    found = []
    for pid in process_table.children(1):
        if pid in ours or not process_table.is_program(pid) or _is_known(pid, awaits_sweep):
            continue
        if booted + (process_table.start_time(pid) or 0.0) >= began:
            found.append(pid)
    return found


def _is_known(pid: int, awaits_sweep: Callable[[str], bool]) -> bool:
    """Return whether a process is a program of ralph-wrap, or names a session that has its own sweep."""
    words = process_table.command_line(pid)
    if any(name in words for name in (b"ralph_wrap", b"ralph-wrap")) and _runs_our_python(pid):
        return True
    entries = (entry.partition(b"=") for entry in process_table.environment(pid))
    names = (b"RALPH_SESSION_ID", OWN_COMMAND.encode())
    return any(name in names and awaits_sweep(os.fsdecode(value)) for name, _, value in entries)


def _runs_our_python(pid: int) -> bool:
    """Return whether a process executes the same file as we do; any process can choose its command line."""
    try:
        return Path(f"/proc/{pid}/exe").samefile("/proc/self/exe")
    except OSError:
        return False


def become_subreaper() -> None:
    """Become the parent of orphans below us, instead of PID 1 (``prctl(2)``)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Get SIGTERM when our parent ends, also when it is killed (``prctl(2)``).

    Arguments:
        parent: its process id, as we knew it before this call: it may have ended already.

    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _reap(pids: Collection[int]) -> None:
    """Collect those of the given children that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
