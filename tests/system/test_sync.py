"""Several files are written to the disk at once."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import files
from tests.support.wait import CAP

if TYPE_CHECKING:
    from pathlib import Path


def test_several_files_are_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they may take as long as a checkout."""
    paths = [tmp_path / name for name in ("one", "two", "three")]
    for path in paths:
        path.touch()
    meeting, synced = threading.Barrier(len(paths), timeout=CAP), []

    def together(descriptor: int) -> None:
        meeting.wait()
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", together)
    files.start_fsync(*paths)()
    assert sorted(synced) == sorted(path.stat().st_ino for path in paths)


def test_a_sync_that_fails_is_an_error_at_its_end(tmp_path: Path) -> None:
    """Its caller must not go on as if the file were on the disk."""
    wait = files.start_fsync(tmp_path, tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        wait()


def test_an_error_without_a_number_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread would only print it, and the file would count as synced."""

    def fail(_descriptor: int) -> None:
        raise MemoryError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(MemoryError):
        files.start_fsync(tmp_path)()


def test_no_thread_is_left(tmp_path: Path) -> None:
    """After the wait: a fork beside a thread is unsafe."""
    before = threading.active_count()
    files.start_fsync(tmp_path, tmp_path.parent)()
    assert threading.active_count() == before


def test_without_a_further_thread_each_file_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has a limit of processes and threads, at which Python raises RuntimeError."""

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    synced = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    files.start_fsync(tmp_path, tmp_path.parent)()
    assert sorted(synced) == sorted(path.stat().st_ino for path in (tmp_path, tmp_path.parent))
