"""``ralph-wrap clean``: long logs of ended sessions are shortened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import clean as cleaning
from ralph_wrap.commands.clean import CleanedItem
from ralph_wrap.state.project import find_project
from ralph_wrap.system import files
from tests.support.histories import record
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")

LIMIT = 4_000_000


def _clean(repo: Repo, *, dry_run: bool = False) -> list[CleanedItem]:
    """Clean once; nothing may fail, and everything is kept for ever."""
    project = find_project(repo.path, os.environ)
    cleaned = cleaning.clean(
        project, keep_sessions=0, keep_dropped=0, max_output=LIMIT, now=2e9, dry_run=dry_run
    )
    assert cleaned.failures == []
    return cleaned.items


def _long_log(repo: Repo, agent_id: str) -> Path:
    log = repo.path / ".ralph" / "run" / "sessions" / record(repo, agent_id, repo.head) / "output.log"
    log.write_bytes(b"line\n" * 1_200_000)
    os.utime(log, (1e9, 1e9))
    return log


def test_a_long_log_is_shortened(repo: Repo) -> None:
    """Its times stay, so that the session is not younger then; what a killed cleaning left goes."""
    log = _long_log(repo, "aaaa")
    times, leftover = log.stat().st_mtime, files.temporary_path(log)
    leftover.write_bytes(b"half")
    [would] = _clean(repo, dry_run=True)
    assert (would.kind, would.action, log.stat().st_size) == ("output", "would shorten", 6_000_000)
    [item] = _clean(repo)
    assert (item.action, item.size) == ("shortened", 6_000_000 - log.stat().st_size)
    assert b"bytes of output are missing here" in log.read_bytes()
    assert (log.stat().st_mtime, leftover.exists()) == (times, False)
    assert _clean(repo) == []


def test_the_log_of_a_session_that_lives_stays(repo: Repo) -> None:
    """A process of its agent holds the lock, or its record does not say that it has finished."""
    held, killed = _long_log(repo, "aaaa"), _long_log(repo, "bbbb")
    (killed.parent / "record.json").write_text(
        (killed.parent / "record.json").read_text().replace('"finished"', '"running"')
    )
    lock = files.try_lock(held.parent / "agent.lock")
    assert lock is not None
    assert _clean(repo) == []
    lock.release()
    assert (held.stat().st_size, killed.stat().st_size) == (6_000_000, 6_000_000)


def test_the_command_shortens_long_logs(repo: Repo) -> None:
    """As the configuration says; a sweep does it too, and says so."""
    _long_log(repo, "aaaa")
    repo.write(".ralph/config.toml", 'max_output = "4MB"\n')
    assert b"would shorten" in command("clean", "--dry-run", cwd=repo.path).stdout
    assert "1 long log shortened" in command("sweep", cwd=repo.path).stderr
