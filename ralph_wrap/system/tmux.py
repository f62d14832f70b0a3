"""Start, find and end tmux(1) sessions for a directory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from ralph_wrap.errors import ConflictError, RalphError, UsageError
from ralph_wrap.system.process import OWN_COMMAND, CompletedCommand, RunningCommand

_PAUSES = (0.05, 0.2)
"""Seconds between attempts. After its last session has ended, a server may accept a new session, and then
end with it. Measured with tmux 3.3: 5 of 300 times."""


def start(name: str, directory: Path, environ: Mapping[str, str]) -> str:
    """Start a detached session in a directory.

    Arguments:
        name: name of the session.
        directory: working directory of its shell.
        environ: our environment, which names the server.

    Returns:
        The actual name: tmux replaces some characters.

    Raises:
        UsageError: tmux is not installed.
        ConflictError: a session with this name exists.
        RalphError: tmux refused.

    """
    # A colon or a period would name a window or a pane.
    wanted = name.replace(":", "_").replace(".", "_")
    if _run(environ, "has-session", "-t", f"={wanted}").status == 0:
        raise ConflictError(f"there is a tmux session {wanted}", f"tmux kill-session -t ={wanted}")
    for pause in (*_PAUSES, None):
        made = _run(
            environ,
            *("new-session", "-d", "-P", "-F", "#{session_name}", "-s", wanted, "-c", os.fspath(directory)),
        )
        if pause is None or made.status == 0:
            break
        time.sleep(pause)
    if made.status != 0:
        raise RalphError(f"tmux cannot start a session: {made.stderr.decode(errors='replace').strip()}")
    return made.stdout.decode(errors="surrogateescape").removesuffix("\n")


def is_in(name: str, directory: Path, environ: Mapping[str, str]) -> bool:
    """Return whether there is a session that was started in a directory.

    Raises:
        UsageError: tmux is not there.

    """
    listed = _run(environ, "list-sessions", "-F", "#{session_name}\t#{session_path}")
    return os.fsencode(f"{name}\t{directory}") in listed.stdout.split(b"\n")


def kill(name: str, environ: Mapping[str, str]) -> None:
    """End a session with everything that runs in it.

    Raises:
        UsageError: tmux is not there.
        RalphError: tmux refused.

    """
    killed = _run(environ, "kill-session", "-t", f"={name}")
    if killed.status != 0:
        raise RalphError(
            f"tmux session {name} cannot be ended: {killed.stderr.decode(errors='replace').strip()}",
            f"tmux kill-session -t ={name}",
        )


def _run(environ: Mapping[str, str], *arguments: str) -> CompletedCommand:
    # The tmux server keeps running with this environment, so it must not count as one of our own commands.
    # Its working directory would count as work in the directory.
    argv = ("env", "-u", OWN_COMMAND, "tmux", *arguments)
    with RunningCommand(argv, cwd=Path("/"), env=environ, with_terminal=False) as running:
        completed = running.wait()
    if completed.status in {126, 127}:
        raise UsageError("tmux is not installed", "install it: apt-get install tmux; or leave out --tmux")
    return completed
