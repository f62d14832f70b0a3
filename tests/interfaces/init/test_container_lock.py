"""The lock by which PID 1 tells other containers that this one lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.init import processes
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import liveness

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Registry]:
    """Yield the registry of a project; what this process has opened in it is closed afterwards."""
    home = Registry(tmp_path / ".ralph" / "run")
    home.prepare()
    yield home
    for entry in [*Path("/proc/self/fd").iterdir()]:
        if entry.resolve().is_relative_to(tmp_path):
            os.close(int(entry.name))


def record() -> SessionRecord:
    """Return the record of a session of this pid namespace."""
    return SessionRecord(id="a3f2", session="20260102T030405Z-a3f2", **liveness.myself()._asdict())


def test_it_tells_that_the_container_lives(home: Registry, tmp_path: Path) -> None:
    """The project's registry finds it, from a directory below the project root too."""
    below = tmp_path / "src"
    below.mkdir()
    assert not home.has_container(record())
    assert processes.hold_lock(str(below))
    assert home.has_container(record())
    assert not home.has_container(record()._replace(pid_namespace="pid:[1]"))
    home.tidy()
    assert home.has_container(record())


def test_it_is_taken_away_once_it_is_free(home: Registry) -> None:
    """A container that is gone leaves nothing behind for ever."""
    lock = home.containers / "4026539999.lock"
    lock.touch()
    home.tidy()
    assert not lock.exists()


def test_it_waits_for_its_directory(tmp_path: Path) -> None:
    """PID 1 makes nothing in a project that no session has touched."""
    assert not processes.hold_lock(str(tmp_path))
    assert not (tmp_path / ".ralph").exists()


@pytest.mark.parametrize("link", [".ralph", ".ralph/run", ".ralph/run/containers"])
def test_it_follows_no_symlink(home: Registry, tmp_path: Path, link: str) -> None:
    """PID 1 is root: an agent must not have it make files elsewhere."""
    directory = tmp_path / link
    elsewhere = tmp_path / "elsewhere"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    assert not processes.hold_lock(str(tmp_path))
    assert [*elsewhere.rglob("*.lock")] == []
    assert home.containers.is_dir()


def test_it_opens_no_symlink(home: Registry, tmp_path: Path) -> None:
    """Nor does a file of another user change its owner."""
    number = liveness.pid_namespace().removeprefix("pid:[").removesuffix("]")
    (home.containers / f"{number}.lock").symlink_to(tmp_path / "made")
    assert not processes.hold_lock(str(tmp_path))
    assert not (tmp_path / "made").exists()


def test_it_is_not_held_twice(home: Registry, tmp_path: Path) -> None:
    """A lock that another process holds is not ours, and is tried again."""
    number = liveness.pid_namespace().removeprefix("pid:[").removesuffix("]")
    with (home.containers / f"{number}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not processes.hold_lock(str(tmp_path))
    assert processes.hold_lock(str(tmp_path))
