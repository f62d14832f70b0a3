"""Saved work from a snapshot, when the branch has moved since."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.worktree.save.from_snapshot import WorkOfSnapshot, work_of_snapshot
from ralph_wrap.worktree.save.trees import AWAY_TITLE, INDEX_TITLE, SNAPSHOT_TITLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.repo import Repo

SESSION = "20260714T093005Z-3f9a"
Files = dict[str, str]


def commit(repo: Repo, files: Mapping[str, str], *parents: str, title: str = "a commit") -> str:
    """Store a commit with exactly these files."""
    repo.git("read-tree", "--empty")
    for path, content in files.items():
        blob = repo.path / ".git/content"
        blob.write_text(content)
        oid = repo.git("hash-object", "-w", str(blob))
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}")
    ways = [word for parent in parents for word in ("-p", parent)]
    return repo.git("commit-tree", repo.git("write-tree"), *ways, "-m", title)


def files_of(repo: Repo, commit: str) -> Files:
    """Return the files of a commit."""
    names = repo.git("ls-tree", "-r", "--name-only", commit).split()
    return {name: repo.git("show", f"{commit}:{name}") for name in names}


def made(repo: Repo, snapshot: str, tip: str) -> WorkOfSnapshot:
    """Return the saved work of a snapshot."""
    git = Git(repo.path, git_environment(os.environ), index_file=repo.path / ".git/scratch")
    return work_of_snapshot(git, snapshot, tip, SESSION)


BASE = {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("snapshot", "tip", "expected", "older"),
    [
        pytest.param(
            {"a": "1", "b": "b", "n": "n"},
            {"a": "a", "b": "2"},
            {"a": "1", "b": "2", "n": "n"},
            (),
            id="others",
        ),
        pytest.param(
            {"a": "1", "b": "1"}, {"a": "2", "b": "b"}, {"a": "2", "b": "1"}, ("a",), id="the same path"
        ),
        pytest.param({"a": "1", "b": "b"}, {"a": "1", "b": "b"}, None, (), id="committed as it was"),
        pytest.param({"a": "1", "b": "b"}, {"a": "2", "b": "b"}, None, ("a",), id="nothing left"),
        pytest.param({"b": "b"}, {"a": "a", "b": "2"}, {"b": "2"}, (), id="deleted in the snapshot"),
        pytest.param({"b": "b"}, {"a": "2", "b": "b"}, None, ("a",), id="deleted, and committed since"),
        pytest.param({"a": "1", "b": "1"}, {"b": "b"}, {"b": "1"}, ("a",), id="deleted by the commit"),
        pytest.param(
            {"a/x": "x", "b": "b"}, {"a": "a", "b": "2"}, {"a/x": "x", "b": "2"}, (), id="file to directory"
        ),
        pytest.param(BASE | {"n/x": "x"}, BASE | {"n": "n"}, None, ("n/x",), id="a file in the way"),
        pytest.param(BASE | {"n": "n"}, BASE | {"n/x": "x"}, None, ("n",), id="a directory in the way"),
        pytest.param({"a/x": "x", "b": "b"}, {"b": "b"}, {"a/x": "x", "b": "b"}, (), id="nothing in the way"),
    ],
)
@pytest.mark.parametrize("is_amended", [False, True])
def test_a_path_that_was_committed_since_is_as_the_branch_has_it(
    repo: Repo, snapshot: Files, tip: Files, expected: Files | None, older: tuple[str, ...], is_amended: bool
) -> None:
    """Each other path is as the snapshot has it; an amended commit is such a commit, too."""
    start = commit(repo, {"before": "x"})
    base = commit(repo, BASE, start)
    taken = commit(repo, snapshot, base, title=f"{SNAPSHOT_TITLE}1 of session {SESSION}")
    branch = commit(repo, tip, start if is_amended else base, title="amended" if is_amended else "newer")
    found = made(repo, taken, branch)
    assert found.older == older
    if expected is None:
        assert found.commit is None
        return
    assert found.commit is not None
    assert files_of(repo, found.commit) == expected
    assert repo.git("rev-parse", f"{found.commit}^") == branch


def test_the_index_moves_with_the_files(repo: Repo) -> None:
    """What was staged is staged, on top of the newer commit."""
    base = commit(repo, BASE)
    staged = commit(repo, {"a": "staged", "b": "b"}, base, title=f"{INDEX_TITLE}{SESSION}")
    taken = commit(
        repo, {"a": "disk", "b": "b"}, base, staged, title=f"{SNAPSHOT_TITLE}1 of session {SESSION}"
    )
    branch = commit(repo, {"a": "a", "b": "2"}, base)
    found = made(repo, taken, branch).commit
    assert found is not None
    assert files_of(repo, found) == {"a": "disk", "b": "2"}
    assert files_of(repo, f"{found}^2") == {"a": "staged", "b": "2"}
    assert repo.git("rev-parse", f"{found}^1", f"{found}^2^").split() == [branch, branch]


def test_what_was_not_staged_outlives_the_commit_of_what_was(repo: Repo) -> None:
    """``git add -p``, a snapshot, ``git commit``: the rest of the file was never committed."""
    base = commit(repo, BASE)
    staged = commit(repo, {"a": "part", "n": "part"}, base, title=f"{INDEX_TITLE}{SESSION}")
    title = f"{SNAPSHOT_TITLE}1 of session {SESSION}"
    taken = commit(repo, {"a": "all", "b": "again", "n": "all"}, base, staged, title=title)
    branch = commit(repo, {"a": "part", "n": "part"}, base)
    found = made(repo, taken, branch)
    assert (found.commit is not None, found.older) == (True, ())
    assert files_of(repo, str(found.commit)) == {"a": "all", "b": "again", "n": "all"}
    assert files_of(repo, f"{found.commit}^2") == {"a": "part", "n": "part"}


def test_a_head_away_from_the_branch_stays_there(repo: Repo) -> None:
    """The agent had a branch of its own, and the session's branch did not move."""
    start = commit(repo, BASE)
    own = commit(repo, {"a": "own", "b": "b"}, start)
    taken = commit(repo, {"a": "disk", "b": "b"}, own, title=f"{AWAY_TITLE}1 of session {SESSION}")
    found = made(repo, taken, start).commit
    assert found is not None
    assert files_of(repo, found) == {"a": "disk", "b": "b"}
    assert repo.git("rev-parse", f"{found}^") == own


def test_a_clean_head_that_the_branch_has_needs_nothing(repo: Repo) -> None:
    """The agent has only detached it."""
    start = commit(repo, BASE)
    taken = commit(repo, BASE, start, title=f"{AWAY_TITLE}1 of session {SESSION}")
    tip = commit(repo, {"a": "2", "b": "b"}, start)
    assert made(repo, taken, tip) == WorkOfSnapshot(None)
