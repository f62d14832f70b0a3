"""Copying one file, and telling repositories by their files' names."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import StoppedError
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.worktree.create import copy_ignored
from tests.support.cancelling import CancelledWhen

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file with a hole between two bytes, longer than what is copied at once."""
    path = tmp_path / "source"
    with path.open("wb") as file:
        file.write(b"a" * 3_000_000)
        file.seek(20_000_000)
        file.write(b"z")
        file.truncate(30_000_000)
    return path


def test_a_copy_is_the_same(source: Path, tmp_path: Path) -> None:
    """Byte for byte, with the holes, and the one at the end."""
    copy_ignored.copy_file(source, tmp_path / "target", NEVER)
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
    assert (tmp_path / "target").stat().st_blocks <= source.stat().st_blocks


def test_a_file_system_that_knows_of_no_holes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is copied (``lseek(2)``: EINVAL)."""

    def refuse(_descriptor: int, _place: int, _whence: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    copy_ignored.copy_file(source, tmp_path / "target", NEVER)
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def test_blocks_are_shared_where_that_is_possible(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on btrfs and XFS: the kernel is asked, and then nothing is copied."""
    asked = []

    def clone(target: int, request: int, origin: int) -> int:
        asked.append((os.fstat(target).st_ino, request, os.fstat(origin).st_ino))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    copy_ignored.copy_file(source, tmp_path / "target", NEVER)
    target = (tmp_path / "target").stat()
    assert asked == [(target.st_ino, 0x40049409, source.stat().st_ino)]
    assert target.st_size == 0


def test_a_stop_leaves_nothing_half_copied(source: Path, tmp_path: Path) -> None:
    """Also in the middle of a large file."""
    answers = iter([False, True])
    with pytest.raises(StoppedError):
        copy_ignored.copy_file(source, tmp_path / "target", CancelledWhen(lambda: next(answers)))
    assert not (tmp_path / "target").exists()


def test_an_existing_file_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    """Nor is a symlink followed."""
    (tmp_path / "target").symlink_to("other")
    with pytest.raises(FileExistsError):
        copy_ignored.copy_file(source, tmp_path / "target", NEVER)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_only_regular_files_are_copied(source: Path, tmp_path: Path, kind: str) -> None:
    """Another process may have replaced it since; a FIFO must not be waited for."""
    made = tmp_path / kind
    made.symlink_to(source) if kind == "link" else os.mkfifo(made)
    with pytest.raises(OSError, match=r"symbolic links|not a regular file"):
        copy_ignored.copy_file(made, tmp_path / "target", NEVER)
    assert not (tmp_path / "target").exists()


REPOSITORIES = [
    ([], []),
    (["a", "b/c"], []),
    (["a/dep/", "b"], ["a/dep"]),
    (["x/HEAD", "x/objects/1", "x/refs/2"], ["x"]),
    (["x/HEAD/1", "x/objects/1/2", "x/refs/2/3"], ["x"]),
    (["x/HEAD", "x/objects/1", "x/refs"], []),
    (["HEAD", "objects/1", "refs/2"], []),
    (["objects/HEAD", "objects/objects/1", "objects/refs/2"], ["objects"]),
]


@pytest.mark.parametrize(("paths", "found"), REPOSITORIES)
def test_repositories_are_recognised_by_names(paths: list[str], found: list[str]) -> None:
    """A nested one as git lists it; a bare one by what makes it one."""
    assert copy_ignored.repositories_in(paths) == found
