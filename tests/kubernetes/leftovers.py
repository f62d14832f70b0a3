"""The directory and the control groups of a cluster; the run that made them removes them, or the next run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from tests.support.wait import eventually

PREFIX = "ralph-fleet-"
CGROUPS = Path("/sys/fs/cgroup")
ROOM = 4 << 30
"""Bytes that the images and the layers of two nodes need at most."""


class Place:
    """A directory and control groups with a name of their own, held by a lock on a file in the directory."""

    def __init__(self) -> None:
        for parent in _parents():
            for directory in parent.glob(f"{PREFIX}*"):
                _remove_if_left(directory)
        unlocked = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=_parents()[0]))
        self._lock = _locked(unlocked)
        # Only now another run can find it, and sees that it is locked.
        self.directory = unlocked.rename(unlocked.with_name(unlocked.name.removeprefix(".")))
        assert self._lock is not None

    @property
    def cgroup(self) -> str:
        """The name of the control group, in each hierarchy."""
        return self.directory.name

    def make_cgroup(self, node: str) -> str:
        """Make a control group for a node in each hierarchy, and return its path below the hierarchy."""
        for hierarchy in _hierarchies():
            group = hierarchy / self.cgroup
            for directory in (group, group / node):
                directory.mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if (directory / name).exists():  # a new one is empty, and takes no process
                        (directory / name).write_text((directory.parent / name).read_text())
        return f"/{self.cgroup}/{node}"

    def remove(self) -> None:
        """Remove the control groups and the directory; no process may run in them."""
        assert self._lock is not None
        _remove(self.directory)
        self._lock.close()


def _parents() -> list[Path]:
    """Return where the directories are: in memory, where there is room."""
    memory, disk = Path("/dev/shm"), Path(tempfile.gettempdir())
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
    return [memory, disk] if roomy else [disk, memory]


def _hierarchies() -> list[Path]:
    """Return the hierarchies of control groups."""
    entries = [entry for entry in CGROUPS.iterdir() if entry.is_dir() and not entry.is_symlink()]
    return [entry for entry in entries if (entry / "cgroup.procs").exists()]


def _locked(directory: Path) -> IO[str] | None:
    file = (directory / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # its run goes on
        file.close()
        return None
    return file


def _remove_if_left(directory: Path) -> None:
    if directory.stat().st_uid != os.getuid() or (lock := _locked(directory)) is None:
        return
    with lock:
        _remove(directory)


def _remove(directory: Path) -> None:
    for hierarchy in _hierarchies():
        group = hierarchy / directory.name
        eventually(lambda group=group: _gone(group), f"{group} to be empty")  # type: ignore[misc]
    shutil.rmtree(directory)


def _gone(group: Path) -> bool:
    """Remove a control group with those below it, and return whether it is gone."""
    for path, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(path)  # noqa: PTH106 - of strings, as os.walk gives them
        except OSError:  # a process is about to end
            return False
    return not group.exists()
