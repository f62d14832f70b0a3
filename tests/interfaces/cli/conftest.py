"""A project with sessions of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo
from tests.interfaces.cli.project import DEAD, ELSEWHERE, Yard, ended_report


@pytest.fixture
def yard() -> Iterator[Callable[[Path], Yard]]:
    """Return a function that makes a project's registry; it frees the locks of live sessions in the end."""
    made: list[Yard] = []

    def make(root: Path) -> Yard:
        home = Registry(root / ".ralph" / "run")
        home.prepare()
        made.append(Yard(home))
        return made[-1]

    yield make
    for one in made:
        for claim in one.claims:
            claim.leave()


@pytest.fixture
def full(repo: Repo, yard: Callable[[Path], Yard]) -> Repo:
    """Return a repository with one session for each verdict."""
    base = repo.head
    repo.git("switch", "-q", "-c", "ralph/a3f2")
    repo.commit("one")
    repo.commit("two")
    repo.git("switch", "-q", "main")
    sessions = yard(repo.path)
    work = {"branch": "ralph/a3f2", "base": base, "workspace": "/w/a3f2", "iteration": 12, "state": "running"}
    work["title"] = "Login\x1bpage"
    sessions.live("a3f2", "3h", **work)
    gone = {"branch": "ralph/0b0b", "base": base, "workspace": "/w/0b0b", "iteration": 1, "state": "ending"}
    sessions.left("0b0b", "2d", DEAD, **gone)
    sessions.left("f0f0", "5m", ELSEWHERE, agent="sh -c 'a\n\x1b[2J'")
    sessions.unreadable("dead")
    path = sessions.finished("e0e0", "2d", branch="main", base=base, workspace="/w/e0e0", iteration=3)
    path.write_bytes(ended_report(kept="a file cannot\nbe read").to_json())
    return repo


@pytest.fixture
def project(repo: Repo) -> Repo:
    """Return a project that hides what the agents of a test write beside their worktrees."""
    repo.write(".gitignore", ".ralph/\nprompt-*\nplaces\n")
    repo.write("sub/file", "x\n")
    repo.commit("a project")
    return repo
