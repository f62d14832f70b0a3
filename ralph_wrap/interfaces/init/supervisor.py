"""The main loop of PID 1, one turn at a time; :mod:`ralph_wrap.interfaces.init` describes its steps."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ralph_wrap.interfaces.init import child, processes
from ralph_wrap.interfaces.init.processes import ProcessInfo
from ralph_wrap.interfaces.init.wait import SignalWaiter, say

_SECOND = 3 / 8
"""Share of the time-out after which running processes get a second TERM. Most of the time is for saves."""

_LOOK = 1.0  # seconds: a new process gets its TERM within this time, even if no other process ends
_NEXT_LOOK = 30.0  # seconds: a session may have made the directory for our lock by then
_LOOK_BLIND = 0.1  # as _LOOK, where no pidfd reports an end (an old kernel, no descriptor left)

# -P: the working directory is the project, and Python must not import modules from it.
_PROGRAM = (sys.executable, "-P", "-m", "ralph_wrap")

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_KILLED = 128 + signal.SIGKILL  # as a shell and ``docker run`` have it


class _WatchedProcess(NamedTuple):
    process: ProcessInfo
    label: str
    is_session: bool
    is_deletion: bool
    pidfd: int  # -1: there is none
    signalled: bool = False
    refused: bool = False  # we have no permission to signal it


class Supervisor:
    """The work of PID 1.

    Arguments:
        stop_timeout: seconds to wait for other processes at the end.
        command: the command to run; empty for none.
        resume: after the first sweep, go on with the sessions that the container's last end interrupted.

    Attributes:
        status: the exit status so far.
        over: no process is left to wait for.

    """

    def __init__(self, stop_timeout: float, command: tuple[str, ...], *, resume: bool = False) -> None:
        self.status = 0
        self.over = False
        self._stop_timeout = stop_timeout
        self._signals = SignalWaiter()
        self._is_init = processes.is_init()
        self._project = os.environ.get("RALPH_WRAP_PROJECT") or "."
        self._sweep = self._command = 0  # pids
        self._sweep_again = False
        self._resume_due = resume
        self._ending: float | None = None  # start of the end, on the monotonic clock
        self._carriers: dict[int, set[int]] = {}  # programs that run sessions, with those at the first look
        self._command_has_it = False  # a signal that ends it was passed on to the command
        self._hurried = False  # a signal asked for the end, and Docker kills us soon after it
        self._rounds = 0  # how many times all processes got a signal
        self._watched: dict[int, _WatchedProcess] = {}
        # Without our lock, sweeps would take the container for dead. If we are not its init, it outlives us.
        self._holds_lock = not self._is_init
        if not self._is_init:
            say(
                "not the init of a container: at the end it stops only its own processes"
                " and the project's registered sessions"
            )
        self._start_sweep()
        if command:
            self._start_command(command)

    def turn(self) -> None:
        """Wait for the next signal or the next end of a process, and handle it."""
        pidfds = [watched.pidfd for watched in self._watched.values() if watched.pidfd >= 0]
        self._holds_lock = self._holds_lock or processes.hold_lock(self._project)
        for number in self._signals.wait(pidfds, self._patience()):
            self._handle(number)
        self._reap()
        if self._ending is not None:
            passed = time.monotonic() - self._ending
            self.over = passed >= self._stop_timeout  # set first, since the lines below may raise
            running = self._end(passed)
            if self.over:
                for label in running:
                    say(f"not finished: {label}, {'killed' if self._is_init else 'left running'}")
                self.status = _KILLED if self._command else self.status
            # Without /proc we see no processes, but we know our children.
            self.over |= not (running or self._command or self._sweep)

    def _patience(self) -> float | None:
        if self._ending is None:
            return None if self._holds_lock else _NEXT_LOOK
        due = self._stop_timeout * (_SECOND if self._rounds == 1 else 1)
        blind = any(watched.pidfd < 0 for watched in self._watched.values())
        return max(0.0, min(self._ending + due - time.monotonic(), _LOOK_BLIND if blind else _LOOK))

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if self._command and not (number in _ENDING and self._carries_sessions(self._command)):
            try:
                os.kill(self._command, number)  # not reaped, so no other process can have its pid
                self._command_has_it |= number in _ENDING
            except OSError as error:  # the command has changed its user
                say(f"cannot signal the command: {error.strerror}")
        if number in _ENDING and self._hurried:
            self._ask_again(but=self._command)  # which has it
        elif number in _ENDING:
            say(f"{signal.Signals(number).name}: stopping all sessions and processes")
            self._hurried = True
            self._ending = time.monotonic()
            self._rounds = 0
        elif number == signal.SIGHUP and self._ending is None:
            self._start_sweep()

    # -- children --

    def _start_sweep(self) -> None:
        self._sweep_again = bool(self._sweep)
        self._sweep = self._sweep or self._start_own("sweep")

    def _start_own(self, *words: str) -> int:
        """Start a command of ralph-wrap and return its pid; 0 if that fails."""
        try:
            return child.start((*_PROGRAM, *words), self._signals, in_background=True)
        except OSError as error:
            say(f"cannot start ralph-wrap {words[0]}: {error.strerror}")
            return 0

    def _start_command(self, words: tuple[str, ...]) -> None:
        try:
            self._command = child.start(words, self._signals, in_background=False)
        except OSError as error:
            say(f"cannot start {words[0]}: {error.strerror}")
            self.status = child.NOT_RUNNABLE
            self._ending = time.monotonic()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
                pid, status = ended
                if os.WIFSTOPPED(status):
                    # Ctrl-Z on our terminal stopped the command, and no shell above us could continue it.
                    if pid == self._command and os.WSTOPSIG(status) == signal.SIGTSTP and os.isatty(0):
                        os.kill(pid, signal.SIGCONT)
                elif pid == self._command:
                    self._command = 0
                    code = os.waitstatus_to_exitcode(status)
                    self.status = code if code >= 0 else 128 - code
                    self._ending = self._ending or time.monotonic()
                elif pid == self._sweep:
                    self._swept(os.waitstatus_to_exitcode(status))

    def _swept(self, code: int) -> None:
        self._sweep = 0
        if code:
            say(f"the sweep ended with {f'status {code}' if code > 0 else f'signal {-code}'}")
        if self._sweep_again and self._ending is None:
            self._sweep_again = False
            self._start_sweep()
        if self._resume_due and self._ending is None:
            self._resume_due = False
            self._start_own("resume", "--after-restart")

    # -- the end --

    def _end(self, passed: float) -> list[str]:
        """Signal the processes that have had no signal, and return the labels of those still running."""
        concerned = self._concerned()
        for pid, watched in [*self._watched.items()]:
            if pid not in concerned or not watched.process.is_same(concerned[pid][0]):
                del self._watched[pid]
                if watched.pidfd >= 0:
                    os.close(watched.pidfd)
                if watched.signalled or watched.is_deletion:
                    say(f"finished: {watched.label}, after {passed:.1f} s")
        if self._rounds == 1 and passed >= self._stop_timeout * _SECOND:
            self._ask_again()
        self._rounds = max(self._rounds, 1)
        for pid, (process, session) in concerned.items():
            watched = self._watched.get(pid) or _watch(process, session)
            if watched.is_deletion and pid not in self._watched:
                say(f"waiting for: {watched.label}")
            is_due = not watched.is_deletion and self._may_end(pid)
            if not watched.signalled and not watched.refused and is_due:
                watched = self._ask(watched, "asked to end")
            self._watched[pid] = watched
        return [
            watched.label for watched in self._watched.values() if watched.is_session or not watched.refused
        ]

    def _carries_sessions(self, pid: int) -> bool:
        """Return whether a process runs sessions, as ``timeout 1h ralph-wrap run`` does.

        It gets no signal while they end: it may pass it on, and a session takes a second one for *hurry*. If
        it starts another session after one has ended, it does get one.
        """
        table = processes.processes()
        _, wrappers = self._sessions_in(table)
        return pid in self._carrying(table, wrappers) and pid not in wrappers

    def _sessions_in(self, table: Mapping[int, ProcessInfo]) -> tuple[dict[int, str], set[int]]:
        """Return the sessions that are registered, and the pids of all processes that run sessions."""
        registered = processes.registered(self._project, table)
        return registered, {pid for pid in table if pid in registered or processes.is_wrapper(pid)}

    def _carrying(self, table: Mapping[int, ProcessInfo], masters: set[int]) -> set[int]:
        """Return the processes above sessions that were there at the first look, and run no later one."""
        below: dict[int, set[int]] = {}
        for master in masters:
            for pid in processes.ancestry(master, table):
                below.setdefault(pid, set()).add(master)
        return {pid for pid, found in below.items() if found <= self._carriers.setdefault(pid, found)}

    def _concerned(self) -> Mapping[int, tuple[ProcessInfo, str | None]]:
        """Return the processes to end, sessions first, each with its session or ``None``."""
        table = processes.processes()
        registered, wrappers = self._sessions_in(table)
        spared = {1, os.getpid(), *processes.ancestry(os.getpid(), table)}
        # A session ends the processes below it itself. So does a sweep, because it saves.
        masters = ({*wrappers, self._sweep} & table.keys()) - spared
        carriers = self._carrying(table, masters & wrappers) - wrappers
        chosen = {}
        for pid in sorted(table, key=lambda pid: pid not in masters):
            above = processes.ancestry(pid, table)
            reached = self._is_init or os.getpid() in above or pid in registered
            if reached and pid not in spared and pid not in carriers and not above & masters:
                chosen[pid] = table[pid], registered.get(pid, "") if pid in wrappers else None
        return chosen

    def _may_end(self, pid: int) -> bool:
        # A sweep may finish its work as long as no signal has asked for our end.
        return pid != self._sweep or self._hurried or self._rounds > 1

    def _ask_again(self, but: int = 0) -> None:
        self._rounds += 1
        for watched in [*self._watched.values()]:
            if watched.signalled and watched.process.pid != but:
                self._ask(watched, "asked again to end")

    def _ask(self, watched: _WatchedProcess, request: str) -> _WatchedProcess:
        """Ask a process to end, by TERM, or by HUP if it ignores TERM, as interactive shells do."""
        pid, deaf = watched.process.pid, processes.ignores_term(watched.process.pid)
        has_it = pid == self._command and self._command_has_it and not watched.signalled and not deaf
        try:
            if not has_it:
                _send(watched, signal.SIGHUP if deaf else signal.SIGTERM)
                with suppress(ProcessLookupError):  # it has ended already
                    _send(watched, signal.SIGCONT)  # a stopped process handles TERM only after SIGCONT
        except ProcessLookupError:
            return watched
        except OSError as error:  # we run as a user, and the process belongs to root or to another user
            say(f"cannot signal {watched.label}: {error.strerror}")
            return watched._replace(refused=True)
        say(f"{request}: {watched.label}")
        return watched._replace(signalled=True)


def _watch(process: ProcessInfo, session: str | None) -> _WatchedProcess:
    is_deletion = processes.is_deletion(process.pid)
    role = f" (session {session})" if session else " (deletes a removed worktree)" if is_deletion else ""
    label = f"{process.pid} {process.name}{role}"
    try:
        pidfd = os.pidfd_open(process.pid)
    except (OSError, AttributeError):  # ENOSYS, EMFILE, gone; not Linux
        pidfd = -1
    return _WatchedProcess(process, label, session is not None, is_deletion, pidfd)


def _send(watched: _WatchedProcess, number: int) -> None:
    """Send a signal to a process, never to another one that has its pid now.

    Raises:
        OSError: the process has ended, or we may not signal it.

    """
    if not watched.process.is_same(processes.process(watched.process.pid)):
        raise ProcessLookupError
    if watched.pidfd >= 0:
        signal.pidfd_send_signal(watched.pidfd, number)
    else:
        os.kill(watched.process.pid, number)
