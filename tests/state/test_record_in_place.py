"""Changes of a record that are written in the place of the old words, and files that are overwritten so."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.claim import SessionClaim, claim_id
from ralph_wrap.state.record import read_record
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.liveness import myself

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Registry:
    """Return an empty registry."""
    registry = Registry(tmp_path / "run")
    registry.prepare()
    return registry


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Return an empty directory."""
    directory = tmp_path / "room"
    directory.mkdir()
    return directory


def _claim(home: Registry) -> SessionClaim:
    taken = {f"{number:04x}" for number in range(1 << 16)} - {"a3f2"}
    return claim_id(home, myself(), lambda _="": taken, time.time(), lambda record: record)


def test_state_and_iteration_change_in_their_place(home: Registry) -> None:
    """The sync of a new file would wait for all files of a checkout."""
    claim = _claim(home)
    inode = home.record_path("a3f2").stat().st_ino
    for state, iteration in (("running", 0), ("running", 1), ("ending", 1)):
        claim.update(state=state, iteration=iteration)
        assert home.unfinished() == [claim.record]
        assert (claim.record.state, claim.record.iteration) == (state, iteration)
        assert home.record_path("a3f2").stat().st_ino == inode
    claim.update(iteration=10)
    assert home.unfinished() == [claim.record]


def test_a_system_without_fdatasync_keeps_records_too(
    home: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a record of its state no session would start an agent on macOS, which has only ``fsync(2)``."""
    claim = _claim(home)
    monkeypatch.delattr(os, "fdatasync")
    claim.update(state="running")
    assert home.unfinished() == [claim.record]


def test_half_a_change_of_the_state_never_looks_like_a_start(home: Registry) -> None:
    """A power failure may leave any part of the new bytes; a sweep then takes the agent for started."""
    claim = _claim(home)
    path = home.record_path("a3f2")
    before = path.read_bytes()
    claim.update(state="running", iteration=1)
    after = path.read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert len(changed) > 1
    for number in range(1, 2 ** len(changed)):
        mixture = bytearray(before)
        for bit, at in enumerate(changed):
            if number >> bit & 1:
                mixture[at] = after[at]
        path.write_bytes(mixture)
        found = read_record(path)
        assert isinstance(found, SessionRecord)
        assert found.state != "starting" or mixture[changed[1] :] == before[changed[1] :]


def test_a_record_that_another_process_has_replaced_is_written_anew(home: Registry, tmp_path: Path) -> None:
    """A change goes to no other file, although its name leads there."""
    claim = _claim(home)
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    home.record_path("a3f2").unlink()
    home.record_path("a3f2").hardlink_to(outside)
    claim.update(state="running")
    assert (home.unfinished(), outside.read_bytes()) == ([claim.record], b"theirs")


def test_a_file_is_overwritten_in_its_place(room: Path) -> None:
    """It is the same file, with the new content."""
    (room / "file").write_bytes(b"old words")
    inode = (room / "file").stat().st_ino
    assert files.overwrite(room / "file", b"old words", b"new words")
    assert ((room / "file").read_bytes(), (room / "file").stat().st_ino) == (b"new words", inode)
    assert [*room.iterdir()] == [room / "file"]


@pytest.mark.parametrize(
    "kind", ["linked", "another", "longer", "shorter", "symlink", "fifo", "directory", "missing"]
)
def test_only_the_expected_file_is_overwritten(room: Path, tmp_path: Path, kind: str) -> None:
    """A process may have put something else there, perhaps another name of a file that is not ours."""
    outside = tmp_path / "outside"
    outside.write_bytes({"another": b"two", "longer": b"old!", "shorter": b"ol"}.get(kind, b"old"))
    if kind in {"linked", "another", "longer", "shorter"}:
        (room / "file").hardlink_to(outside)
    elif kind == "symlink":
        (room / "file").symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(room / "file")
    elif kind == "directory":
        (room / "file").mkdir()
    before = outside.read_bytes()
    assert not files.overwrite(room / "file", b"old", b"new")
    assert outside.read_bytes() == before
