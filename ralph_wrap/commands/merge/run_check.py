"""Run the project's ``check`` on the merge of a branch into the target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ralph_wrap.errors import RalphError, StoppedError
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.shell_command import ShellCommand, run_shell


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
    env = _environment(directory, environ, branch, project)
    try:
        status = run_shell(
            ShellCommand("check", command, directory, env, timeout), lambda: cancel.requested, cancel
        )
    except OSError as error:
        raise RalphError(f"cannot run the check: {error.strerror}", "sh must be on the PATH") from None
    if status is None and cancel.requested:
        raise StoppedError("a signal came while the check ran; nothing has moved")
    return status


def _environment(directory: Path, environ: Mapping[str, str], branch: str, project: Path) -> dict[str, str]:
    variables: dict[str, str | Path] = {"BRANCH": branch, "PROJECT": project, "WORKSPACE": directory}
    env = {key: value for key, value in environ.items() if not key.startswith(("RALPH_", "GIT_INDEX"))}
    return env | {f"RALPH_{key}": os.fspath(value) for key, value in variables.items()}
