"""Checks of PID 1: whether ``docker stop`` reaches the sessions of a container, and its time-out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.system import container

_HOST_INITS = {"systemd", "init", "runit", "openrc-init", "dinit", "procd"}
_LONGEST = 60  # characters of a command line
_DOCKER = 10.0  # seconds, default of `docker stop`


def first_process(root: Path, pid: int) -> DoctorCheck:
    """Check whether ``docker stop`` reaches sessions that were started by ``docker exec``.

    Arguments:
        root: where ``/proc`` is.
        pid: our own; sessions are started in the same way.

    """
    name = "PID 1"
    why = "docker stop signals PID 1 alone, then kills: a session saves its work only if PID 1 signals it"
    pid1 = container.process(root, 1)
    init, command_line = container.init(root), _shown(pid1.words)
    if init is not None:
        label = "ralph-wrap init" if init.pid == 1 else f"ralph-wrap init, below {pid1.name}"
        uid = container.below(root, f"/proc/{init.pid}").stat().st_uid
        if uid not in {0, os.geteuid()}:
            found = f"{label} runs as user id {uid} and cannot signal sessions of user id {os.geteuid()}"
            return failed(name, found, why, f"docker run without --user, or docker exec --user {uid}")
        return fine(name, label, why)
    mark = container.mark(root)
    if mark is None:
        return fine(name, f"{command_line}; this is not a container", why)
    if mark not in {*container.MARKS, "/proc/1/cgroup"} and pid1.name in _HOST_INITS:
        return fine(name, f"{command_line}, which signals every process before the machine shuts down", why)
    host_note = ", which is the host's" if container.namespace(root) == container.HOST_NAMESPACE else ""
    # A session that PID 1 has started, directly or not, ends with it as the user expects. One in a tmux that
    # docker exec has started does not.
    judge = noted if container.is_below_first(root, pid) else failed
    return judge(
        name,
        f"{command_line}{host_note}; this is a container ({mark})",
        why,
        "docker run -d --entrypoint ralph-wrap IMAGE init, not --pid=host; here: ralph-wrap stop --all first",
    )


def stop_timeout(root: Path) -> DoctorCheck:
    """Check the time that sessions have between ``docker stop`` and SIGKILL."""
    name = "stop time-out"
    why = (
        "docker stop kills everything after 10 s (docker run --stop-timeout, docker stop --time, compose's "
        "stop_grace_period). This time is not visible inside a container, and init must end before it is over"
    )
    init = container.init(root)
    if init is None:
        return fine(name, "no ralph-wrap init is running here", why)
    seconds = init.stop_timeout
    if seconds is None:
        return fine(name, "ralph-wrap init is starting", why)
    found = f"init gives sessions {seconds:g} s"
    if seconds >= _DOCKER:
        fix = f"docker stop --time {seconds + 2:.0f}"
        return noted(name, f"{found}, docker gives 10 s by default: {fix}", why, fix)
    return fine(name, f"{found}, docker gives 10 s by default", why)


def _shown(words: Sequence[str]) -> str:
    line = shlex.join(words)
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]}…"
    return line or "a process that is not visible here"
