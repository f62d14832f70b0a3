"""Start agents in the sandbox of a session."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ralph_wrap.errors import SandboxError
from ralph_wrap.git import environment_with_config
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.sandbox import bubblewrap, launcher
from ralph_wrap.session.sandbox.backend import PYTHON, SandboxBackend
from ralph_wrap.session.sandbox.bubblewrap import Reach
from ralph_wrap.session.sandbox.launcher import BEGUN, LaunchSpec
from ralph_wrap.session.sandbox.reach import DROPPED, reach_of
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import ProcessGroup, ProcessSpec, StandardStreams
from ralph_wrap.system.process_tree import ProcessTree
from ralph_wrap.system.temporary import temporary_directory

log = get_logger()

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
"""The devices that every program may write, below ``/dev``."""

_CONFIG = {
    "commit.gpgSign": "false",  # the keys are hidden
    "tag.gpgSign": "false",
    "gc.auto": "0",  # it packs the refs of the whole repository, which the agent cannot write
    "maintenance.auto": "false",
}
"""The configuration of the agent's git."""

_LAUNCHER = Path(launcher.__file__).read_text()
_PROXY = Path(launcher.__file__).with_name("proxy.py").read_text()
"""These programs are read now: later another version may be installed, or we may not read them any more."""

_OF_PROXY = ("PATH", "HOME", "LANG", "RES_OPTIONS", "LOCALDOMAIN")
"""Variables of the proxy: how it finds hosts, and nothing of the session."""

_LONGEST_REPORT = 64  # bytes
_LONGEST_START = 60.0  # seconds until the agent runs
_POLL_INTERVAL = 0.2  # seconds between two looks at the signals


class Sandbox:
    """The sandbox of a session; each start of a command is a new one with the same rules.

    Arguments:
        context: of the session.
        workspace: what the agent writes.
        backend: the program that makes it.
        processes: of the agent; they must spare the proxy.
        is_over: returns whether a start that hangs is given up; ``None``: after a signal.

    """

    def __init__(
        self,
        context: SessionContext,
        workspace: Workspace,
        backend: SandboxBackend,
        processes: ProcessTree,
        *,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        self._is_over = is_over or (lambda: context.cancel.requested)
        self._processes = processes
        self._context = context
        self._workspace = workspace
        self._backend = backend
        self._stack = contextlib.ExitStack()
        self._temporary = ""
        self._proxy: int | None = None

    def __enter__(self) -> Self:
        """Make what it needs, and warn about what it cannot do."""
        if not self._backend.bwrap:
            project = self._context.project
            directory = tempfile.TemporaryDirectory(
                prefix="ralph-wrap-tmp-",
                dir=temporary_directory(project.environ, (project.root, project.checkout)),
                ignore_cleanup_errors=True,
            )
            self._temporary = self._stack.enter_context(directory)
        elif self._backend.network not in {("all",), ("none",)}:
            self._proxy = self._start_proxy()
        if limits := self._backend.limits:
            log.warning("sandbox.limited", limits, "--sandbox bwrap")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def start(self, spec: ProcessSpec) -> ProcessGroup:
        """Start a command.

        Raises:
            OSError: the command could not be executed.
            SandboxError: the sandbox could not be made.

        """
        try:
            return self._start(spec)
        except SandboxError:  # a file may have gone between our look at it and its mount
            return self._start(spec)

    def _start(self, spec: ProcessSpec) -> ProcessGroup:
        reach = reach_of(self._context, self._workspace, self._backend)
        with contextlib.ExitStack() as stack:
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            closing = stack.enter_context(contextlib.ExitStack())
            closing.callback(os.close, writing)
            copies = [(closing.enter_context(path.open("rb")).fileno(), path) for path in reach.copied]
            channel = () if self._proxy is None else (self._proxy,)
            confined = None if self._backend.bwrap else self._writable(reach)
            launch = LaunchSpec(writing, self._proxy, spec.terminal is not None, confined)
            options = self._options(reach, copies, spec.cwd)
            group = ProcessGroup(
                spec._replace(
                    argv=[*options, *PYTHON, _LAUNCHER, *launch.words(), *spec.argv],
                    env=self._environment(spec.env),
                ),
                more=(writing, *channel, *(descriptor for descriptor, _ in copies)),
                shielded=bool(self._backend.bwrap),
            )
            closing.close()
            _check(reading, group, self._is_over)
        return group

    def _start_proxy(self) -> int:
        """Start the proxy process of the session, and return a descriptor for its sockets.

        It is a process and not a thread: a child that we fork could inherit the locks of other threads.
        """
        ours, its = socket.socketpair()
        with its:
            null = os.open(os.devnull, os.O_RDWR)
            self._stack.callback(os.close, null)
            environ = {name: value for name, value in os.environ.items() if name in _OF_PROXY}
            spec = ProcessSpec(
                [*PYTHON, _PROXY, str(its.fileno()), *self._backend.network],
                cwd=Path("/"),
                env=environ,
                streams=StandardStreams(null, null, null),
                inherited=its.fileno(),
            )
            group = ProcessGroup(spec)
        self._stack.callback(group.end)
        self._stack.callback(ours.close)
        self._processes.keep()
        return ours.fileno()

    def _options(self, reach: Reach, copies: Sequence[tuple[int, Path]], cwd: Path) -> list[str]:
        if not self._backend.bwrap:
            return []
        options = bubblewrap.options(reach, copies)
        return [self._backend.bwrap, *options, "--chdir", os.fspath(cwd.resolve()), "--"]

    def _writable(self, reach: Reach) -> list[str]:
        kept = [path for path, is_writable in reach.entries if is_writable]
        devices = [path for name in _DEVICES if os.path.exists(path := f"/dev/{name}")]  # noqa: PTH110
        return [*map(os.fspath, (*reach.writable, *kept)), *devices, self._temporary]

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in env.items() if name not in DROPPED}
        if self._temporary:
            found["TMPDIR"] = self._temporary
        for key, value in _CONFIG.items():
            found = environment_with_config(found, key, value)
        return found


def _check(report: int, group: ProcessGroup, is_over: Callable[[], bool]) -> None:
    """Wait until the agent runs, and raise the error if it does not; if time is over, the caller ends it.

    Bubblewrap hangs if a mount below one of its own does not answer, as a network disk can.

    Raises:
        OSError: it could not be executed.
        SandboxError: the sandbox could not be made.

    """
    found = b""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    end = time.monotonic() + _LONGEST_START
    while True:
        if not poll.poll(_POLL_INTERVAL * 1000):
            if is_over():
                group.kill()  # no agent runs that could use a grace
                return
            if time.monotonic() > end:
                group.end()
                raise SandboxError(
                    f"the sandbox was not ready after {_LONGEST_START:g} s",
                    "to see whether a network disk hangs: df; without a sandbox: --sandbox off",
                )
        elif read := os.read(report, _LONGEST_REPORT):
            found += read
        else:
            break
    if found == BEGUN:
        return
    group.end()
    if not found:
        raise SandboxError("the sandbox could not be made", "its reason is in the output above")
    number = int(found.removeprefix(BEGUN))
    raise OSError(number, os.strerror(number))
