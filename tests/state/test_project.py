"""What a start learns from the directories of a project, before it sweeps."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from ralph_wrap.state.project import RUN, find_project, has_trash

if TYPE_CHECKING:
    from tests.support.repo import Repo


def test_a_deletion_at_work_is_no_trash(repo: Repo) -> None:
    """It holds the lock of its directory; after its death the directory is trash."""
    project = find_project(repo.path, os.environ)
    removed = repo.path / RUN / "trash" / "20260102T030405Z-a3f2"
    removed.mkdir(parents=True)
    deletion = os.open(removed, os.O_RDONLY)
    fcntl.flock(deletion, fcntl.LOCK_EX)
    assert not has_trash(project)
    os.close(deletion)
    assert has_trash(project)


def test_an_entry_that_is_no_directory_is_trash(repo: Repo) -> None:
    """The sweep then says that ralph-wrap did not put it there."""
    project = find_project(repo.path, os.environ)
    (repo.path / RUN / "trash").mkdir(parents=True)
    assert not has_trash(project)
    (repo.path / RUN / "trash" / "20260102T030405Z-a3f2").symlink_to(repo.path)
    assert has_trash(project)
