"""PID 1: whether ``docker stop`` reaches the sessions of a container, and how long they have."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.config import duration
from ralph_wrap.doctor.check import Check, failed, fine, noted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MARKS = ("/.dockerenv", "/run/.containerenv")
_CGROUP = re.compile(r"docker|kubepods|libpod|containerd")
_HOST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in <linux/proc_ns.h>
_HOST_INITS = {"systemd", "init", "runit", "openrc-init", "dinit", "procd"}
_FORWARDING = {"docker-init", "tini", "tini-static", "dumb-init", "catatonit"}
"""A PID 1 that passes signals on to its one child."""
# Options of Python that take a word are told apart, so that no row of words can be read in two ways.
_INIT = re.compile(
    r"(?:(?:[^\0]*/)?python[^\0/]*\0(?:-[XW]\0[^\0]*\0|-(?![XW]\0)[^\0]*\0)*)?"
    r"(?:(?:[^\0]*/)?ralph-wrap|(?<=m\0)ralph_wrap)\0init\0"
)

_LONGEST = 60  # characters of a command line
_DEFAULT = 8.0  # seconds, of `ralph-wrap init --stop-timeout`; init is above us and not to be imported
_DOCKER = 10.0  # seconds, of `docker stop`


def mark(root: Path) -> str | None:
    """Return what says that this is a container, ``None`` if nothing does.

    Arguments:
        root: where ``/proc`` is.

    """
    for path in _MARKS:
        if _below(root, path).exists():
            return path
    if _CGROUP.search(_text(_below(root, "/proc/1/cgroup"))):
        return "/proc/1/cgroup"
    return "its own pid namespace" if _namespace(root) not in {"", _HOST_NAMESPACE} else None


def first_process(root: Path) -> Check:
    """Tell whether ``docker stop`` reaches sessions that were started by ``docker exec``."""
    name = "PID 1"
    why = "docker stop signals PID 1 alone, then kills: sessions that PID 1 does not tell save nothing"
    first = _Process.read(root, 1)
    init, said = _init(root), _shown(first.words)
    if init is not None:
        told = "ralph-wrap init" if init.pid == 1 else f"ralph-wrap init, below {first.name}"
        uid = _below(root, f"/proc/{init.pid}").stat().st_uid
        if uid not in {0, os.geteuid()}:
            found = f"{told}, of user id {uid}, who cannot signal sessions of user id {os.geteuid()}"
            return failed(name, found, why, f"docker run without --user, or docker exec --user {uid}")
        return fine(name, told, why)
    container = mark(root)
    if container is None:
        return fine(name, f"{said}; this is no container", why)
    if container not in {*_MARKS, "/proc/1/cgroup"} and first.name in _HOST_INITS:
        return fine(name, f"{said}, which tells every process when the machine goes down", why)
    whose = ", which is the host's" if _namespace(root) == _HOST_NAMESPACE else ""
    return failed(
        name,
        f"{said}{whose}; this is a container ({container})",
        why,
        "docker run -d --entrypoint ralph-wrap IMAGE init, not --pid=host; here: ralph-wrap stop --all first",
    )


def stop_timeout(root: Path) -> Check:
    """Tell how long sessions have between ``docker stop`` and SIGKILL."""
    name = "stop time-out"
    why = (
        "docker stop kills everything after 10 s (docker run --stop-timeout, docker stop --time, compose's "
        "stop_grace_period), which cannot be seen from inside; init has to be done before"
    )
    init = _init(root)
    if init is None:
        return fine(name, "no ralph-wrap init here to have one", why)
    given = _option(init.words, "--stop-timeout") or _variable(root, init.pid, "RALPH_WRAP_STOP_TIMEOUT")
    try:
        seconds = duration(given) if given else _DEFAULT
    except ValueError as error:
        return noted(name, str(error), why, "ralph-wrap init --stop-timeout 8")
    found = f"init gives sessions {seconds:g} s"
    if seconds >= _DOCKER:
        fix = f"docker stop --time {seconds + 2:.0f}"
        return noted(name, f"{found}, docker 10 s unless told otherwise: {fix}", why, fix)
    return fine(name, f"{found}, docker 10 s unless told otherwise", why)


class _Process(NamedTuple):
    """A process and its command line, which is empty if it cannot be read."""

    pid: int
    words: tuple[str, ...]

    @classmethod
    def read(cls, root: Path, pid: int) -> _Process:
        line = _text(_below(root, f"/proc/{pid}/cmdline"))
        return cls(pid, tuple(line.removesuffix("\0").split("\0")) if line else ())

    @property
    def name(self) -> str:
        """What it was started as."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def is_init(self) -> bool:
        """It is ``ralph-wrap init``, by its script or as a module."""
        return _INIT.match("".join(f"{word}\0" for word in self.words)) is not None


def _init(root: Path) -> _Process | None:
    """Return the ``ralph-wrap init`` that gets the signals of ``docker stop``."""
    first = _Process.read(root, 1)
    if first.is_init:
        return first
    if first.name in _FORWARDING:
        return next((child for child in _children(root) if child.is_init), None)
    return None


def _children(root: Path) -> Iterator[_Process]:
    """Yield the children of PID 1 (``proc(5)``: stat, field 4)."""
    for entry in _below(root, "/proc").glob("[0-9]*"):
        fields = _text(entry / "stat").rpartition(")")[2].split()
        if fields[1:2] == ["1"]:
            yield _Process.read(root, int(entry.name))


def _option(words: Sequence[str], option: str) -> str | None:
    """Return the value that a command line gives to an option; what is behind ``--`` is another's."""
    ours = [*words][: [*words, "--"].index("--")]
    for place, word in enumerate(ours):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option:
            return "".join(ours[place + 1 : place + 2])
    return None


def _variable(root: Path, pid: int, name: str) -> str:
    """Return a variable of a process's environment; empty without it, or if another user's is not shown."""
    entries = _text(_below(root, f"/proc/{pid}/environ")).split("\0")
    return next((entry.partition("=")[2] for entry in entries if entry.startswith(f"{name}=")), "")


def _namespace(root: Path) -> str:
    try:
        return os.fspath(_below(root, "/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _shown(words: Sequence[str]) -> str:
    line = shlex.join(words)
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]}…"
    return line or "a process that cannot be seen from here"


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except OSError:
        return ""


def _below(root: Path, path: str) -> Path:
    return root / path.removeprefix("/")
