"""Another session has claimed an id whose lock and record were deleted, as by ``git clean``."""

from __future__ import annotations

import errno
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.claim import SessionClaim, claim_id
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.liveness import myself

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANGES: dict[str, Callable[[SessionClaim], object]] = {
    "update": lambda claim: claim.update(iteration=7),
    "a longer update": lambda claim: claim.update(branch="another"),
    "release": lambda claim: claim.release(),
    "withdraw": lambda claim: claim.withdraw(),
    "write anew": lambda claim: claim.write_anew(),
}


@pytest.fixture
def home(tmp_path: Path) -> Registry:
    """Return an empty registry."""
    registry = Registry(tmp_path / "run")
    registry.prepare()
    return registry


def _claim(home: Registry, now: float) -> SessionClaim:
    taken = {f"{number:04x}" for number in range(1 << 16)} - {"a3f2"}
    return claim_id(home, myself(), lambda _="": taken, now, lambda record: record)


def _clean(home: Registry) -> None:
    shutil.rmtree(home.directory)
    home.prepare()


def _change(claim: SessionClaim, change: str) -> int | None:
    try:
        CHANGES[change](claim)
    except OSError as error:
        return error.errno
    return None


@pytest.mark.parametrize("change", CHANGES)
def test_record_and_lock_of_another_session_stay(home: Registry, change: str) -> None:
    """It lives, and holds its lock; its record is as it wrote it, and nobody else gets its lock."""
    ours = _claim(home, time.time())
    _clean(home)
    theirs = _claim(home, time.time() + 100)
    before = home.record_path("a3f2").read_bytes()
    _change(ours, change)
    assert home.record_path("a3f2").read_bytes() == before
    assert theirs.is_whole
    assert files.try_lock(home.lock_path("a3f2")) is None


@pytest.mark.parametrize("change", CHANGES)
def test_the_record_of_a_dead_session_stays(home: Registry, change: str) -> None:
    """The next sweep has to finish it."""
    ours = _claim(home, time.time())
    _clean(home)
    theirs = _claim(home, time.time() + 100)
    theirs.leave()
    _change(ours, change)
    assert home.unfinished() == [theirs.record]
    assert home.lock_path("a3f2").exists()


@pytest.mark.parametrize("change", ["update", "release"])
def test_the_caller_is_told(home: Registry, change: str) -> None:
    """What it wanted to write is written nowhere."""
    ours = _claim(home, time.time())
    _clean(home)
    assert _change(ours, change) == errno.ESTALE
    assert home.unfinished() == []
