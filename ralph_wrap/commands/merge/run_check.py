"""Run the project's ``check`` on the merge of a branch into the target."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from ralph_wrap.errors import RalphError, StoppedError
from ralph_wrap.system import process
from ralph_wrap.system.cancel import CancelToken, FirstSignal
from ralph_wrap.system.process_tree import GroupTermination, ProcessTree

_TICK = 0.1  # seconds between two looks for a signal
_GRACE = 5.0  # seconds between TERM and KILL


def run_check(
    command: str,
    directory: Path,
    environ: Mapping[str, str],
    *,
    branch: str,
    project: Path,
    timeout: float,
    cancel: CancelToken,
) -> int | None:
    """Run a command by ``sh -c``, with its output on our stderr, and end the processes that it leaves.

    Arguments:
        command: the command, which the user has approved.
        directory: the worktree with the merge.
        environ: our environment; the command gets only those ``RALPH_…`` variables that this function sets.
        branch: the branch to land.
        timeout: the limit in seconds; 0 is no limit.
        cancel: whether a signal has come.

    Returns:
        Its exit status; ``None`` after the time-out.

    Raises:
        StoppedError: a signal came before the end.
        RalphError: ``sh`` cannot run.

    """
    name = f"check-{os.urandom(4).hex()}"
    group = _start(command, directory, _environment(directory, environ, branch, project, name))
    leftovers = ProcessTree(whole_process=False, session=name)
    try:
        status, cut_short = _wait(group, timeout, cancel)
    finally:
        leftovers.end(_GRACE, FirstSignal(cancel), signalled=False)
    if not cut_short:
        return status
    if cancel.requested:
        raise StoppedError("a signal came while the check ran; nothing has moved")
    return None


def _environment(
    directory: Path, environ: Mapping[str, str], branch: str, project: Path, name: str
) -> dict[str, str]:
    variables: dict[str, str | Path] = {
        "BRANCH": branch,
        "PROJECT": project,
        "WORKSPACE": directory,
        "SESSION_ID": name,
    }
    env = {key: value for key, value in environ.items() if not key.startswith(("RALPH_", "GIT_INDEX"))}
    env |= {f"RALPH_{key}": os.fspath(value) for key, value in variables.items()}
    return env | {"PWD": os.fspath(directory)}


def _start(command: str, directory: Path, env: Mapping[str, str]) -> process.ProcessGroup:
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        spec = process.ProcessSpec(
            ("sh", "-c", command),
            cwd=directory,
            env=env,
            streams=process.StandardStreams(nothing, 2, 2),
            inherited=nothing,
        )
        return process.ProcessGroup(spec)
    except OSError as error:
        raise RalphError(f"cannot run the check: {error.strerror}", "sh must be on the PATH") from None
    finally:
        os.close(nothing)


def _wait(group: process.ProcessGroup, timeout: float, cancel: CancelToken) -> tuple[int, bool]:
    """Return the exit status, and whether we ended the check."""
    end = time.monotonic() + timeout if timeout else math.inf
    ending = GroupTermination()
    while (status := group.poll()) is None:
        if not ending.requested and (time.monotonic() >= end or cancel.requested):
            ending.terminate(group, _GRACE)
        ending.escalate(group)
        group.wait(_TICK)
    return status, ending.requested
