"""A remote that is slow is waited for as long as bytes come; one that is silent is given up."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import UnreachableError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet import remote as fleet_remote
from tests.support import slow_upload_pack
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interfaces.fleet.runs import FleetRun

    Slowed = Callable[[float, int], fleet_remote.FleetRemote]

SIZE = 40 * slow_upload_pack.PIECE
PAUSE = 0.1  # seconds
PATIENCE = 2.0  # seconds
FOR_EVER = 0


@pytest.fixture
def slowed(fleet_run: FleetRun, tmp_path: Path, script: Callable[[str], str]) -> Slowed:
    """Return a function that returns an empty clone of a remote behind a slow line."""
    fleet_run.repo.path.joinpath("large").write_bytes(os.urandom(SIZE))
    fleet_run.repo.commit("a file that is not compressed")
    fleet_run.repo.git("push", "-q", "origin", "HEAD:refs/heads/large")
    clone = Repo(tmp_path / "clone")
    fleet_run.repo.git("init", "-q", clone.path)
    clone.git("remote", "add", "origin", fleet_run.remote.path)

    def slow(pause: float, most: int) -> fleet_remote.FleetRemote:
        words = (sys.executable, slow_upload_pack.__file__, str(pause), str(most))
        program = script(f'exec {shlex.join(words)} "$@"')
        clone.git("config", "--global", "remote.origin.uploadpack", program)
        return fleet_remote.FleetRemote(Git(clone.path, git_environment(os.environ)), "origin")

    return slow


def test_a_first_clone_may_take_longer_than_a_silence(
    slowed: Slowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transfer lasts twice the limit; git shows each second that bytes come."""
    monkeypatch.setattr(fleet_remote, "_PATIENCE", PATIENCE)
    remote, begun = slowed(PAUSE, FOR_EVER), time.monotonic()
    remote.fetch(["refs/heads/large"])
    assert time.monotonic() - begun > PATIENCE
    assert "heads/large" in Repo(remote.git.cwd).git("for-each-ref", "refs/ralph-remotes/")


def test_a_silent_remote_is_given_up_and_gets_more_time(
    slowed: Slowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops in the middle of a transfer. Each attempt waits twice as long for the next byte."""
    monkeypatch.setattr(fleet_remote, "_PATIENCE", 0.5)
    remote = slowed(0, 8)
    for seconds in ("0", "1", "2"):
        with pytest.raises(UnreachableError, match=f"silent for {seconds} s"):
            remote.fetch(["refs/heads/large"])
