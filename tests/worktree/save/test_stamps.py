"""The values by which the save knows, without git, that no process has written to a worktree."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.system import files
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree import fingerprints
from ralph_wrap.worktree.save.walk import file_clock, walk
from tests.support.cancelling import cancelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

SECOND = 10**9  # nanoseconds


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a directory with files, beside a file that stands for its index."""
    (tmp_path / "top" / "dir" / "inner").mkdir(parents=True)
    for name in ("top/file", "top/dir/file", "top/dir/inner/file", "index"):
        (tmp_path / name).write_text("content")
    return tmp_path / "top"


def _later() -> int:
    """Return a time at which no file can have been written by now."""
    return time.time_ns() + 10 * SECOND


def _same_time(path: Path, write: Callable[[Path], object]) -> None:
    before = path.stat()
    write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is written": lambda top: (top / "dir" / "inner" / "file").write_text("CONTENT"),
    "its time is put back": lambda top: _same_time(top / "file", lambda path: path.write_text("CONTENT")),
    "a file is new": lambda top: (top / "dir" / "new").touch(),
    "a file is gone": lambda top: (top / "dir" / "file").unlink(),
    "a file is replaced": lambda top: (top / "dir" / "file").replace(top / "file"),
    "a directory is new": lambda top: (top / "new").mkdir(),
    "a mode is changed": lambda top: (top / "file").chmod(0o755),
    "the index is written": lambda top: (top.parent / "index").write_text("CONTENT"),
    "the index is gone": lambda top: (top.parent / "index").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_write_shows(top: Path, change: Callable[[Path], object]) -> None:
    """Each change of a file, a directory or the index, even if the writer puts the time back."""
    stamps = walk(top, (), top.parent / "index", _later()).stamps
    assert stamps.still_hold(top)
    change(top)
    assert not stamps.still_hold(top)


def test_a_rename_of_the_whole_is_no_write(top: Path) -> None:
    """The removal moves the worktree into the trash before it looks again."""
    stamps = walk(top, (), top.parent / "index", _later()).stamps
    assert stamps.still_hold(top.rename(top.with_name("aside")))


@pytest.mark.parametrize(("kind", "after"), [("ext4", 0), ("overlay", 1_000_000), (None, 1_000_000)])
def test_a_file_that_was_just_written_proves_nothing(
    top: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None, after: int
) -> None:
    """A second write in the same tick would leave no trace, and only the clock of this kernel is known."""
    monkeypatch.setattr(files, "file_system_type", lambda _path: kind)
    written = (top.parent / "index").stat().st_ctime_ns  # the last one
    assert not walk(top, (), top.parent / "index", written + after).stamps.still_hold(top)
    assert walk(top, (), top.parent / "index", written + after + SECOND).stamps.still_hold(top)


def test_after_a_tick_of_the_kernels_clock_each_write_shows(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that ends at once after the last write of its agent need not ask git."""
    monkeypatch.setattr(files, "file_system_type", lambda _path: "ext4")
    index = top.parent / "index"
    written = index.stat().st_ctime_ns
    assert walk(top, (), index, written + 1).stamps.still_hold(top)


def test_whole_seconds_prove_little(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ext4 with small inodes keeps no fractions."""
    monkeypatch.setattr(files, "file_system_type", lambda _path: "ext4")
    second = 1_700_000_000 * SECOND
    stamps = walk(top, (), top.parent / "index", second + SECOND).stamps
    assert stamps.entries is not None
    whole = stamps._replace(entries=[(*entry[:-2], second, second) for entry in stamps.entries])
    assert not whole._replace(begun=second + 2 * SECOND).show_each_write(top)
    assert whole._replace(begun=second + 4 * SECOND).show_each_write(top)


def test_no_file_has_an_earlier_time_than_the_clock(tmp_path: Path) -> None:
    """The whole comparison rests on this."""
    path = tmp_path / "file"
    for _ in range(2_000):
        clock = file_clock()
        path.write_bytes(b"")
        assert clock <= path.stat().st_ctime_ns <= time.time_ns()


def test_a_directory_that_is_left_out_proves_nothing(top: Path) -> None:
    """A submodule has an index of its own."""
    assert not walk(top, ("dir",), top.parent / "index", _later()).stamps.still_hold(top)


def test_a_signal_ends_a_walk(top: Path) -> None:
    """A worktree can have any number of files, and after SIGTERM there is little time."""
    with pytest.raises(InterruptedError):
        walk(top, (), top.parent / "index", cancel=cancelled())


def test_a_signal_ends_a_fingerprint(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the files are read: no other one is."""
    for number in range(3):
        repo.write(f"new{number}", "content")
    token = CancelToken()

    def reading(path: Path, largest: int) -> bytes:
        token.record(15)
        return path.read_bytes()[:largest]

    monkeypatch.setattr(fingerprints, "_content", reading)
    git = Git(repo.path, git_environment(os.environ), cancel=token)
    assert (fingerprints.fingerprint(git, repo.path), token.count) == ("", 1)
