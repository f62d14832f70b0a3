"""Repositories in a worktree: the exit report and review name those that went with it, or that keep it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import Repo, make_repo
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Result

_CLONE = "git clone -q '{}' vendor/dep; echo 1 > new"


@pytest.fixture
def upstream(repo: Repo, tmp_path: Path) -> Repo:
    """Return a repository to clone, and have git ignore ``vendor`` in the project."""
    repo.write(".gitignore", "vendor/\n")
    repo.commit("ignore")
    found = make_repo(tmp_path / "upstream")
    found.commit("first")
    return found


def _run(repo: Repo, script: str) -> Result:
    return run(repo.path, "-n", "1", "--log-format", "text", "--", "sh", "-c", script)


def _notes(repo: Repo) -> list[str]:
    return [event["message"] for event in command("review", cwd=repo.path).warnings]


def test_a_clone_that_went_with_the_worktree_is_named(repo: Repo, upstream: Repo) -> None:
    """Not only as so many ignored files."""
    ended = _run(repo, _CLONE.format(upstream.path))
    agent_id = ended.report["id"]
    assert ended.report["clones_removed"] == ["vendor/dep"]
    assert "clones     vendor/dep went with it, without work of their own" in ended.stderr
    words = "with its worktree went clones without work of their own: vendor/dep"
    assert _notes(repo) == [f"ralph/{agent_id}: {words}"]
    (row,) = json.loads(command("review", "--json", cwd=repo.path).stdout)["data"]
    assert (row["clones_removed"], row["kept"]) == (["vendor/dep"], None)


def test_a_repository_that_keeps_the_worktree_is_named(repo: Repo, upstream: Repo) -> None:
    """Until ``rm`` has removed the worktree."""
    own = "git -C vendor/dep -c user.name=a -c user.email=a@b commit -q --allow-empty -m own"
    ended = _run(repo, f"{_CLONE.format(upstream.path)}; {own}")
    agent_id, kept = ended.report["id"], ended.report["kept"]
    assert kept == "nested repository vendor/dep cannot be saved: 1 commit in it is on no branch of a remote"
    assert ended.report["clones_removed"] == []
    assert _notes(repo) == [
        f"ralph/{agent_id}: its worktree stays ({kept}); for the way out: ralph-wrap rm {agent_id}"
    ]
    (worktree,) = repo.path.glob(".ralph/worktrees/*")
    Repo(worktree / "vendor/dep").git("push", "-q", "origin", "HEAD:refs/heads/kept")
    command("rm", agent_id, cwd=repo.path)
    assert not worktree.exists()
    assert not [note for note in _notes(repo) if "stays" in note]


def test_a_repository_in_another_moves_with_it(repo: Repo, upstream: Repo) -> None:
    """The command of the hint names the outer one alone, so that it works."""
    inner = "git -C vendor/dep init -q inner; git -C vendor/dep add -f inner/x"
    script = f"{_CLONE.format(upstream.path)}; {inner}; git init -q outer; git init -q outer/inner"
    line = _run(repo, script).report["way_out"]
    assert line.count("mv -T") == len({"outer", "vendor/dep"})
