"""Run a command of the project outside of a loop: the check of a landing, a notification.

``sh -c`` runs it in a process group of its own. It gets a ``RALPH_SESSION_ID`` of its own: by this we find
what it leaves running, and end it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import files, process
from ralph_wrap.system.cancel import CancelToken, FirstSignal
from ralph_wrap.system.process_tree import GroupTermination, ProcessTree

_TICK = 0.1  # seconds between two looks for a signal
_GRACE = 5.0  # seconds between TERM and KILL


class ShellCommand(NamedTuple):
    """A command of the project.

    Attributes:
        name: the beginning of its ``RALPH_SESSION_ID``.
        text: what ``sh -c`` runs.
        directory: its working directory.
        environ: its whole environment, apart from that variable and ``PWD``.
        timeout: seconds; 0 is no limit.
        stdin: its standard input.
        output: descriptor for its standard output and errors.
        grace: seconds between TERM and KILL.

    """

    name: str
    text: str
    directory: Path
    environ: Mapping[str, str]
    timeout: float
    stdin: bytes = b""
    output: int = 2
    grace: float = _GRACE


def run_shell(command: ShellCommand, is_over: Callable[[], bool], cancel: CancelToken) -> int | None:
    """Run a command, and end the processes that it leaves.

    Arguments:
        is_over: looked at every moment; once it is true, the command is ended.
        cancel: after a signal, what the command leaves running gets no grace.

    Returns:
        The exit status; ``None`` if we have ended the command.

    Raises:
        OSError: it cannot be started.

    """
    name = f"{command.name}-{os.urandom(4).hex()}"
    group = _start(command, name)
    leftovers = ProcessTree(whole_process=False, session=name)
    try:
        return _wait(group, command, is_over)
    finally:
        leftovers.end(command.grace, FirstSignal(cancel), signalled=False)


def _start(command: ShellCommand, name: str) -> process.ProcessGroup:
    stdin = files.anonymous_file()
    try:
        files.write_all(stdin, command.stdin)
        os.lseek(stdin, 0, os.SEEK_SET)
        spec = process.ProcessSpec(
            ("sh", "-c", command.text),
            cwd=command.directory,
            env={**command.environ, "RALPH_SESSION_ID": name, "PWD": os.fspath(command.directory)},
            streams=process.StandardStreams(stdin, command.output, command.output),
            inherited=stdin,
        )
        return process.ProcessGroup(spec)
    finally:
        os.close(stdin)


def _wait(group: process.ProcessGroup, command: ShellCommand, is_over: Callable[[], bool]) -> int | None:
    end = time.monotonic() + command.timeout if command.timeout else math.inf
    ending = GroupTermination()
    while (status := group.poll()) is None:
        if not ending.requested and (time.monotonic() >= end or is_over()):
            ending.terminate(group, command.grace)
        if ending.escalate(group):
            return None
        group.wait(_TICK)
    return None if ending.requested else status
