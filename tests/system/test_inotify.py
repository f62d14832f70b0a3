"""What the kernel tells of a directory, and files that grow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph_wrap.system.inotify import CAME, LEFT, MODIFIED, DirectoryWatch, GrowingFile

WRITES: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "made": (lambda directory: (directory / "new").touch(), {CAME}),
    "moved in": (lambda directory: (directory.parent / "outside").rename(directory / "new"), {CAME}),
    "written": (lambda directory: (directory / "there").write_text("more"), {MODIFIED}),
    "moved away": (lambda directory: (directory / "there").rename(directory.parent / "gone"), {LEFT}),
    "deleted": (lambda directory: (directory / "there").unlink(), {LEFT}),
    "read": (lambda directory: (directory / "there").read_text(), set()),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a file in it, and one beside it."""
    directory = tmp_path / "watched"
    directory.mkdir()
    (directory / "there").write_text("x")
    (tmp_path / "outside").touch()
    return directory


@pytest.mark.parametrize("events", [CAME, MODIFIED, LEFT])
@pytest.mark.parametrize("write", WRITES)
def test_only_requested_changes_are_reported(directory: Path, write: str, events: int) -> None:
    """So that a session's own writes to its logs do not wake it."""
    do, printed = WRITES[write]
    with DirectoryWatch(directory, events=events) as watch:
        assert not watch.changed()
        do(directory)
        assert watch.changed() == (events in printed)
        assert not watch.changed()


def test_several_directories_are_watched_at_once(directory: Path) -> None:
    """A change in any of them is reported."""
    other = directory.parent / "other"
    other.mkdir()
    with DirectoryWatch(directory, other, events=CAME) as watch:
        (other / "new").touch()
        assert watch.changed()


def test_a_wait_ends_with_a_change(directory: Path) -> None:
    """And not only with its time, which would be the end of this test."""
    with DirectoryWatch(directory, events=CAME) as watch:
        (directory / "new").touch()
        assert watch.wait(1000)


def test_a_wait_ends_when_the_reader_goes_away(directory: Path) -> None:
    """Without anything written to him."""
    reading, writing = os.pipe()
    with DirectoryWatch(directory, events=CAME) as watch:
        assert watch.wait(0, reader=writing)
        os.close(reading)
        assert not watch.wait(1000, reader=writing)
    os.close(writing)


def test_an_ended_watch_has_nothing_left_to_free(directory: Path) -> None:
    """So its close does not wait; fdinfo lists the watches of a descriptor (proc(5))."""
    with DirectoryWatch(directory, directory / "absent", events=CAME) as watch:
        kept = Path(f"/proc/self/fdinfo/{watch.descriptor}")
        assert "inotify wd:" in kept.read_text()
        watch.end()
        assert "inotify wd:" not in kept.read_text()
        watch.changed()
        (directory / "new").touch()
        assert not watch.changed()


@pytest.mark.parametrize("kind", ["absent", "link", "file"])
def test_what_cannot_be_watched_is_silent(directory: Path, kind: str) -> None:
    """A symlink is not followed; nothing is raised."""
    target = directory.parent / "odd"
    if kind == "link":
        target.symlink_to(directory)
    elif kind == "file":
        target.touch()
    with DirectoryWatch(target, events=CAME) as watch:
        (directory / "new").touch()
        assert not watch.changed()
        assert watch.wait(0)


def test_a_file_is_read_as_it_grows(directory: Path) -> None:
    """From before it is there, each byte once."""
    path = directory / "log"
    with GrowingFile(path) as log:
        assert log.read() == b""
        path.write_bytes(b"one")
        assert (log.read(), log.read()) == (b"one", b"")
        with path.open("ab") as file:
            file.write(b"two")
        assert (log.read(), log.read()) == (b"two", b"")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_nothing_but_a_file_is_read(directory: Path, kind: str) -> None:
    """Nothing hangs, nothing is followed."""
    path = directory / "log"
    if kind == "link":
        path.symlink_to(directory / "there")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with GrowingFile(path) as log, pytest.raises(OSError, match=r"link|regular|directory"):
        log.read()
