"""What an agent has started and left behind: found, told, ended, reaped.

Orphans come to us because we are a child subreaper. "Gone" means reaped: a zombie answers ``kill(pid, 0)``.
Nothing here waits with ``waitpid(-1)``, which would steal the exit status of a child that somebody else waits
for, who then reads 0.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from ralph_wrap.system import deferred, process_table
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.process import OWN_COMMAND

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralph_wrap.system.cancel import Hurry

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>, prctl(2)
UNKILLABLE_AFTER = 10.0
"""Seconds after SIGKILL; what is there by then hangs in the kernel or belongs to another user."""
_TICK = 0.01  # seconds between looks at a group that was told to end; nothing is told while an agent works


_LONGEST_EXECVE = 0.5  # seconds; some programs have no environment at all, so the wait must end


class EndedProcesses(NamedTuple):
    """How many processes were told to end, and the pids of those that outlived even SIGKILL."""

    signalled: int
    survivors: tuple[int, ...]


class ProcessTree:
    """The processes that an agent has started and left.

    A session inside ours is one of them and ends like any other, by saving its work. Nobody but itself asks
    its own commands to end: TERM in the middle of its ``git add`` would stop that.

    Children that we had before the session are nobody's offspring but ours (``server & exec ralph-wrap``).
    What the setup has left running (:meth:`keep`) ends with the session, not with an iteration.

    Arguments:
        whole_process: all our new children are the agent's; its orphans come to us. Otherwise only processes
            count that carry the session in their environment, children of ours or not.
        session: its id.
        dead: nobody but us ends its own commands any more.

    """

    def __init__(self, *, whole_process: bool, session: str, dead: bool = False) -> None:
        self._whole_process = whole_process
        self._marks = [f"RALPH_SESSION_ID={session}".encode()]
        if dead:
            self._marks.append(f"{OWN_COMMAND}={session}".encode())
        self._before = frozenset(process_table.children(os.getpid()))
        self._kept: frozenset[int] = frozenset()
        self._ours: frozenset[int] = frozenset()
        self._hidden = False  # in the latest look, a process showed nothing to know it by

    def keep(self) -> None:
        """Leave what runs now alone until the session's end."""
        self._kept = frozenset(self._find())

    def spare(self, *pids: int) -> None:
        """Leave these children alone, and no others: commands of our own that run while the agent does.

        Whoever waits for one must take it back before: its pid may be another process's then.
        """
        self._ours = frozenset(pids)

    def reap(self, agent: int) -> None:
        """Collect orphans that came to us and have ended; *agent* is waited for by somebody else."""
        if self._whole_process:
            _reap([pid for pid in self._find() if pid != agent])

    def signal(self, number: int, except_group: int) -> None:
        """Send a signal to all of them but those of a process group, which was sent it already."""
        for pid in process_table.descendants(self._of_the_agent()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != except_group and not self._is_spared(pid):
                    os.kill(pid, number)

    def end(self, grace: float, hurry: Hurry, *, asked: bool) -> EndedProcesses:
        """End them and everything below them: TERM, grace, then KILL until none is found any more.

        Arguments:
            grace: seconds between TERM and KILL.
            hurry: may take the grace away at any time.
            asked: they were sent a signal already; to a session, another one means to hurry. Otherwise
                the session ends, and what was kept until then is meant as well.

        """
        told: set[int] = set()
        deadline = time.monotonic() + grace
        give_up = deadline + UNKILLABLE_AFTER
        find = self._of_the_agent if asked else self._find
        execve_done = time.monotonic() + _LONGEST_EXECVE
        while (roots := find()) or (self._hidden and time.monotonic() < execve_done):
            kill = hurry.hurried or time.monotonic() >= deadline
            for pid in process_table.descendants(roots):
                if pid == os.getpid():
                    continue
                if kill or (pid not in told and not self._is_spared(pid)):
                    told.add(pid)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if kill or not asked:
                            os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process does not see TERM
            _reap(roots)
            # Asked anew each time: whoever is killed leaves its children to us.
            if left := find():
                if time.monotonic() >= give_up:
                    return EndedProcesses(len(told), tuple(left))
                time.sleep(_TICK)
        return EndedProcesses(len(told), ())

    def _find(self) -> Collection[int]:
        if not self._whole_process:
            ours = process_table.ancestors(os.getpid())  # we may be below a dead session's agent
            environments = {
                pid: process_table.environment(pid) for pid in process_table.pids() if pid not in ours
            }
            # In the middle of its execve(2) a process shows no environment: 6 of 1,500 that a shell had just
            # left running in the background were not found.
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
        """Tell whether another session runs this for its own use."""
        environment = process_table.environment(pid)
        own = any(entry.startswith(f"{OWN_COMMAND}=".encode()) for entry in environment)
        return own and {*self._marks[1:]}.isdisjoint(environment)


def become_subreaper() -> None:
    """Have orphans below us come to us instead of PID 1 (``prctl(2)``; Linux only).

    A no-op elsewhere: there an agent's double-forked processes cannot be followed.
    """
    if sys.platform == "linux":
        deferred.ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap(pids: Collection[int]) -> None:
    """Collect those of the given children that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
