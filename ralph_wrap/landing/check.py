"""Run the project's ``check`` on what a branch and the target make together."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from ralph_wrap import process
from ralph_wrap.errors import RalphError, StoppedError
from ralph_wrap.offspring import Offspring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_TICK = 100  # milliseconds until a signal is seen
_GRACE = 5.0  # seconds between TERM and KILL


def run_check(
    command: str,
    directory: Path,
    environ: Mapping[str, str],
    *,
    branch: str,
    project: Path,
    stopped: Callable[[], bool],
) -> int:
    """Run a command by ``sh -c`` to its end, its output where our errors go, and return its exit status.

    What it has left running is ended, too.

    Arguments:
        command: approved.
        directory: where everything is checked out.
        environ: our environment; of its ``RALPH_…`` it gets none but those that say what is checked.
        branch: what is to land.
        project: the project root.
        stopped: tells that a signal came.

    Raises:
        StoppedError: it came before the end.
        RalphError: there is no ``sh``.

    """
    name = f"check-{os.urandom(4).hex()}"
    told: dict[str, str | Path] = {
        "BRANCH": branch,
        "PROJECT": project,
        "WORKSPACE": directory,
        "SESSION_ID": name,
    }
    env = {key: value for key, value in environ.items() if not key.startswith(("RALPH_", "GIT_INDEX"))}
    env |= {f"RALPH_{key}": os.fspath(value) for key, value in told.items()} | {"PWD": os.fspath(directory)}
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        group = process.Group(
            ("sh", "-c", command),
            cwd=directory,
            env=env,
            streams=process.Streams(nothing, 2, 2),
            inherited=nothing,
        )
    except OSError as error:
        raise RalphError(f"check cannot be run: {error.strerror}", "sh has to be on the PATH") from None
    finally:
        os.close(nothing)
    left = Offspring(whole_process=False, session=name)
    try:
        status = _wait(group, stopped)
    finally:
        left.end(_GRACE, stopped, asked=False)
    if status is None:
        raise StoppedError("a signal came while the check ran; nothing has moved")
    return status


def _wait(group: process.Group, stopped: Callable[[], bool]) -> int | None:
    """Return the exit status, ``None`` if a signal came; the check has ended then, too."""
    deadline = None
    while (status := group.poll()) is None:
        if stopped() and deadline is None:
            deadline = time.monotonic() + _GRACE
            group.signal(15)
        if deadline is not None and time.monotonic() >= deadline:
            group.signal(9)
        waiting = select.poll()
        if group.pidfd >= 0:
            waiting.register(group.pidfd, select.POLLIN)
        waiting.poll(_TICK)
    return None if deadline is not None else status
