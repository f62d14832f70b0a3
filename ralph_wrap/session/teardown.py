"""Run the project's ``teardown`` command, the counterpart of ``setup``, before the worktree goes.

It runs when the agent's processes have ended, on every way out, in the environment and the sandbox of
``setup``. Whatever it does, the session ends as it would have ended: a failure is told, and stops nothing.
The save comes afterwards, so its time is bounded (see :class:`SessionShare`).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.loop.project_command import shown, start_shell
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.sandbox.start import Sandbox
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state.stop_request import SessionHurry
from ralph_wrap.system import container, liveness
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.process import ProcessGroup, ProcessSpec
from ralph_wrap.system.process_tree import GroupTermination, ProcessTree
from ralph_wrap.system.text import command
from ralph_wrap.worktree.create.replica import refresh
from ralph_wrap.worktree.save.checkpoint import snapshot

log = get_logger()

_GRACE = 1.0  # seconds between TERM and KILL
_HURRIED = 5.0  # seconds after a second signal
_WITHOUT_INIT = 3.0  # seconds after SIGTERM; docker stop kills after 10, and the save needs most of them
_AT_ONCE = 3  # signals
_TICK = 0.1  # seconds between two looks at the signals

PASSED, FAILED, NOT_RUN, LATER = "passed", "failed", "not run", "later"
"""The results of a teardown."""

_AGAIN = "the next start or sweep runs it"


class TeardownEnd(NamedTuple):
    """What became of the teardown.

    Attributes:
        result: passed, failed, not run, or later: the command that removes the worktree runs it.
        command: its text; ``None`` if nothing proves what the session has recorded.
        status: its exit status; ``None`` if it did not end by itself.
        seconds: how long it ran; ``None`` if it did not run.
        reason: why it has not passed, in words; ``None`` if it has.

    """

    result: str
    command: str | None
    status: int | None = None
    seconds: float | None = None
    reason: str | None = None


class TeardownShare(Protocol):
    """The time that a teardown gets."""

    @property
    def is_over(self) -> bool:
        """Whether it gets no time at all (any more)."""

    @property
    def postpones(self) -> bool:
        """Whether the worktree stays now, and a later command runs the teardown again."""

    def deadline(self) -> float:
        """Return when it has to end, as :func:`time.monotonic` counts."""


class SessionShare:
    """The time that a session gives to its teardown, so that enough is left for the save.

    - By default it is ``teardown_timeout``.
    - After a second signal, or ``stop --now``, it is 5 s. A third signal ends the teardown at once.
    - A second SIGTERM says that the time of the container runs out. Then the teardown ends at once, or does
      not begin: the worktree stays for the next start, which runs it.
    - In a container without our init there is no second SIGTERM: it is 3 s after the first one.

    Arguments:
        timeout: ``teardown_timeout``; 0 or ``None`` is no limit.
        cancel: the signals so far.
        directory: of the session, which may have a request to stop now.

    """

    def __init__(self, timeout: float | None, cancel: CancelToken, directory: Path) -> None:
        self._deadline = _after(timeout)
        self._cancel = cancel
        self._hurry = SessionHurry(cancel, directory)
        waits = container.is_of_init() or liveness.is_of_host(liveness.pid_namespace())
        self._after_term = math.inf if waits else _WITHOUT_INIT

    @property
    def is_over(self) -> bool:
        """Whether the time of the container has run out, or a user does not want to wait at all."""
        return self.postpones or self._cancel.count >= _AT_ONCE

    @property
    def postpones(self) -> bool:
        """Whether the worktree is left to the next start."""
        return self._cancel.out_of_time

    def deadline(self) -> float:
        """Return when it has to end; a later call returns the same time or an earlier one."""
        bounds = (
            (self.is_over, 0.0),
            (self._hurry.hurried, _HURRIED),
            (self._cancel.terms, self._after_term),
        )
        now = time.monotonic()
        self._deadline = min([self._deadline, *(now + bound for applies, bound in bounds if applies)])
        return self._deadline


class SweepShare:
    """The time that a sweep gives to the teardown of a dead session; after a signal the next sweep runs it.

    Arguments:
        timeout: ``teardown_timeout``; 0 or ``None`` is no limit.
        cancel: the signals so far.

    """

    def __init__(self, timeout: float | None, cancel: CancelToken) -> None:
        self._deadline = _after(timeout)
        self._cancel = cancel

    @property
    def is_over(self) -> bool:
        """Whether a signal has come."""
        return self._cancel.requested

    @property
    def postpones(self) -> bool:
        """Whether a signal has come."""
        return self._cancel.requested

    def deadline(self) -> float:
        """Return when it has to end."""
        return 0.0 if self.is_over else self._deadline


def _after(timeout: float | None) -> float:
    return time.monotonic() + timeout if timeout else math.inf


class Teardown(NamedTuple):
    """The teardown of one session.

    Attributes:
        text: what ``sh -c`` runs.
        context: of the session.
        workspace: with a worktree.
        environ: the environment of ``setup``.
        output: the log of the agent's output, for messages.
        inherited: a descriptor that its processes keep open.

    """

    text: str
    context: SessionContext
    workspace: Workspace
    environ: Mapping[str, str]
    output: Path
    inherited: int

    def run(self, relay: OutputRelay, share: TeardownShare, processes: ProcessTree) -> TeardownEnd:
        """Run it to its end, or to the end of its time, and log how it has ended.

        Arguments:
            relay: moves its output; all of it goes to stderr.
            share: the time that it gets.
            processes: of the session.

        """
        if share.is_over:
            return self._not_run("there was no time", share)
        if not self.workspace.path.is_dir():
            return self._not_run("the worktree is gone", share)
        try:
            self._keep_work()
        except (GitError, OSError) as error:
            return self._not_run(f"what it might delete cannot be kept first: {error}", share)
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            try:
                group = self._start(stack, relay.writing_ends[1], share, processes)
            except (OSError, RalphError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                return self._not_run(f"it cannot be run: {why}", share)
            log.event("teardown.started", f"teardown: {shown(self.text)}", pid=group.pid, command=self.text)
            try:
                status = _wait(group, relay, share)
            finally:
                group.kill()  # if something here has raised
            relay.drain()
            relay.restore_screen()  # prints this output before our own messages
        seconds = round(time.monotonic() - begun, 3)
        log.event("teardown.ended", pid=group.pid, status=status, seconds=seconds)
        return self._ended(status, seconds, share)

    def _keep_work(self) -> None:
        """Take a snapshot: the command may delete what nothing else has yet, as ``git clean`` does.

        Raises:
            GitError: git failed, or an object is damaged.
            OSError: a file cannot be read or written.

        """
        tree, record = self.workspace.tree, self.context.record
        if tree is None or not record.iteration:
            return
        git = self.context.keeping.git
        refresh(tree, git)
        snapshot(tree, git, agent_id=record.id, session=record.session, number=record.iteration)

    def _start(
        self, stack: contextlib.ExitStack, output: int, share: TeardownShare, processes: ProcessTree
    ) -> ProcessGroup:
        start: Callable[[ProcessSpec], ProcessGroup] = ProcessGroup
        if self.context.sandbox is not None:
            sandbox = Sandbox(
                self.context,
                self.workspace,
                self.context.sandbox,
                processes,
                is_over=lambda: share.deadline() <= time.monotonic(),
            )
            start = stack.enter_context(sandbox).start
        iteration = str(self.context.record.iteration)
        return start_shell(
            self.text,
            self.workspace.directory(self.context.project.prefix),
            {**self.environ, "RALPH_ITERATION": iteration},
            output=output,
            inherited=self.inherited,
            start=start,
        )

    def _ended(self, status: int | None, seconds: float, share: TeardownShare) -> TeardownEnd:
        if status == 0:
            return TeardownEnd(PASSED, self.text, status, seconds)
        how = f"ended with status {status}" if status is not None else f"was ended after {seconds:g} s"
        if status is None and share.postpones:
            log.event("teardown.later", f"teardown {how}: {_AGAIN}", reason=how)
            return TeardownEnd(LATER, self.text, None, seconds, f"it {how}")
        log.warning(
            "teardown.failed",
            f"teardown {how}: {shown(self.text)}",
            Commands.of(f"its output: {self.output}", self.by_hand),
        )
        return TeardownEnd(FAILED, self.text, status, seconds, f"it {how}")

    def _not_run(self, reason: str, share: TeardownShare) -> TeardownEnd:
        if share.postpones:
            log.event("teardown.later", f"teardown was not run ({reason}): {_AGAIN}", reason=reason)
            return TeardownEnd(LATER, self.text, reason=reason)
        return not_run(self.text, reason, self.by_hand)

    @property
    def by_hand(self) -> str:
        """The hint with which a user runs it when the worktree is gone."""
        return by_hand(self.text, self.context.project.main, self.environ)


def by_hand(text: str, main: Path, environ: Mapping[str, str]) -> str:
    """Return the hint with which a user runs a teardown when the worktree is gone.

    Arguments:
        text: what the user has approved.
        main: the main checkout of the project.
        environ: has the variables of the session.

    """
    if "\n" in text.strip():  # a hint has one line for each command
        return f"to run it by hand, see teardown in {main / '.ralph/config.toml'}"
    named = (f"{name}={value}" for name, value in sorted(environ.items()) if name in _OF_SESSION)
    words = command("env", *named, "sh", "-c", text.strip())
    return f"to run it by hand: cd {shlex.quote(os.fspath(main))} && {words}"


_OF_SESSION = {
    f"RALPH_{name}" for name in ("AGENT_ID", "SESSION_ID", "BRANCH", "WORKSPACE", "PROJECT", "PORT")
}


def not_run(text: str | None, reason: str, hint: str) -> TeardownEnd:
    """Say that a teardown was not run, and never will be.

    Arguments:
        text: what would have run; ``None`` if nothing proves what the session has recorded.

    """
    which = f": {shown(text)}" if text else ""
    log.warning("teardown.not_run", f"teardown was not run{which} ({reason})", hint)
    return TeardownEnd(NOT_RUN, text, reason=reason)


def report_of(ended: TeardownEnd | None) -> dict[str, Any] | None:
    """Return ``teardown`` of the report."""
    return ended._asdict() if ended else None


def _wait(group: ProcessGroup, relay: OutputRelay, share: TeardownShare) -> int | None:
    """Wait for the end of the command, move its output, and end it when its time is over.

    Returns:
        Its exit status; ``None`` if we have ended it.

    """
    ending = GroupTermination()
    while (status := group.poll()) is None:
        if not ending.requested and time.monotonic() >= share.deadline():
            ending.terminate(group, 0.0 if share.is_over else _GRACE)
        if share.is_over and ending.requested:
            ending.limit(0.0)
        if ending.escalate(group):
            return None  # it is stuck in the kernel
        poll = select.poll()
        if group.pidfd >= 0:
            poll.register(group.pidfd, select.POLLIN)
        for descriptor, events in relay.interest().items():
            poll.register(descriptor, events)
        relay.handle({descriptor for descriptor, _ in poll.poll(_TICK * 1000)})
    return None if ending.requested else status
