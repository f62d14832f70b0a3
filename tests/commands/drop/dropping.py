"""Branches dropped and brought back."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands.drop import DroppedBranch, DropSelection, RestoredBranch
from ralph_wrap.state import project

if TYPE_CHECKING:
    from ralph_wrap.errors import RalphError
    from tests.support.repo import Repo


NOW = time.time()


def drop_some(repo: Repo, *names: str, now: float = NOW, **options: bool | float) -> RalphError | None:
    """Drop branches; return the error, if there is one."""
    return dropped_and_error(repo, *names, now=now, **options)[1]


def dropped_and_error(
    repo: Repo, *names: str, now: float = NOW, **options: bool | float
) -> tuple[list[DroppedBranch], RalphError | None]:
    """Drop branches; return the rows, and the error, if there is one."""
    found_project = project.find_project(repo.path, os.environ)
    rows, failures = dropping.drop(found_project, DropSelection(names, **options), now)  # type: ignore[arg-type]
    assert [failure.message for failure in failures] == [row.kept for row in rows if row.kept]
    return rows, failures[0] if failures else None


def restore_one(repo: Repo, name: str) -> RestoredBranch:
    """Bring a branch back."""
    return dropping.restore(project.find_project(repo.path, os.environ), name, NOW)


def refs(repo: Repo) -> dict[str, str]:
    """Return everything but the main branch, without ``refs/``."""
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/ralph", "refs/ralph")
    return dict(row.removeprefix("refs/").split(" ") for row in rows.split("\n") if row)
