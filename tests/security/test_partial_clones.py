"""A partial clone lacks objects: our git fetches none, and no session or command hides that."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import errors
from ralph_wrap.errors import IsolationError, RalphError
from tests.support.merging import branch
from tests.support.needs import git_since
from tests.support.repo import Repo
from tests.support.sessions import command, run
from tests.support.trees import make_tree

if TYPE_CHECKING:
    from pathlib import Path

CURE = "git fetch --refetch --no-filter"
REFUSED = 5  # the branch has work that has not landed


@pytest.fixture
def partial(repo: Repo, tmp_path: Path) -> Repo:
    """Return a clone without blobs and without files; it has a branch of a session."""
    branch(repo, "aaaa", {"file.txt": "of the agent\n"})
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "partial")
    repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repo.path}", clone.path)
    clone.git("branch", "-q", "--no-track", "ralph/aaaa", "origin/ralph/aaaa")
    return clone


def _cure(clone: Repo) -> None:
    """Type the command of the hint, which git has since 2.36."""
    git_since(2, 36).check()
    subprocess.run(shlex.split(CURE), cwd=clone.path, check=True, capture_output=True)


def _is_left(repo: Repo) -> bool:
    """Return whether there is only what was there before."""
    return repo.branches() == ["main", "ralph/aaaa"] and repo.worktrees() == []


def test_a_session_ends_with_the_command_to_type(partial: Repo) -> None:
    """It does not work in the plain directory instead; after the command it works in a worktree."""
    ended = run(partial.path, "-n", "1", "--", "touch", "made")
    assert (ended.status, ended.warnings[-1]["hint"].endswith(CURE)) == (125, True), ended.stderr
    assert ((partial.path / "made").exists(), _is_left(partial)) == (False, True)
    _cure(partial)
    again = run(partial.path, "-n", "1", "--", "cat", "file.txt")
    assert (again.stdout, again.report["fallback"]) == (b"one\n", None), again.stderr


def test_a_session_in_a_clone_ends_with_the_command_to_type(partial: Repo) -> None:
    """A private clone borrows the objects; after the command it has all of them."""
    ended = run(partial.path, "-n", "1", "--isolation", "clone", "--", "touch", "made")
    assert (ended.status, ended.warnings[-1]["hint"].endswith(CURE)) == (125, True), ended.stderr
    _cure(partial)
    again = run(partial.path, "-n", "1", "--isolation", "clone", "--", "cat", "file.txt")
    assert (again.stdout, again.status) == (b"one\n", 0), again.stderr


def test_without_the_rule_a_worktree_is_only_impossible(
    partial: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An IsolationError is a reason to work in the plain directory; the rule makes another error of it."""
    with pytest.raises(RalphError) as caught:
        make_tree(partial)
    assert not isinstance(caught.value, IsolationError)
    monkeypatch.setattr(errors, "_LACKING", ())
    with pytest.raises(IsolationError):
        make_tree(partial)


@pytest.mark.parametrize("words", ["review", "diff aaaa", "merge aaaa", "drop aaaa"])
def test_a_command_names_the_cure_and_changes_nothing(partial: Repo, words: str) -> None:
    """After the cure, each of them does its work. ``review`` lists the branch without facts, and succeeds."""
    moved = partial.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "a merge is needed")
    partial.git("update-ref", "refs/heads/main", moved)
    before = partial.git("for-each-ref")
    ended = command(*words.split(), cwd=partial.path)
    assert (ended.status == 0, CURE in ended.stderr) == (words == "review", True), ended.stderr
    assert (partial.git("for-each-ref"), _is_left(partial)) == (before, True)
    _cure(partial)
    partial.git("reset", "-q", "--hard")
    again = command(*words.split(), cwd=partial.path)
    assert again.status == (REFUSED if words.startswith("drop") else 0), again.stderr


def test_the_work_of_a_session_is_saved_although_objects_are_missing(repo: Repo, tmp_path: Path) -> None:
    """HEAD of the worktree goes to a commit whose file was never fetched, and the rest is not committed."""
    repo.git("mv", "file.txt", "moved.txt")
    repo.write("moved.txt", "one\nmoved\n")
    repo.commit("moved")
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "partial")
    repo.git("clone", "-q", "--filter=blob:none", f"file://{repo.path}", clone.path)
    ended = run(clone.path, "-n", "1", "--", "sh", "-c", "git reset -q --soft HEAD~1; echo new >new.txt")
    missing = clone.git("rev-list", "--all", "--objects", "--missing=print")
    assert f"?{repo.git('rev-parse', 'HEAD~1:file.txt')}" in missing.split("\n")
    saved = ended.report["saved"]
    assert (clone.git("show", f"{saved}:new.txt"), clone.git("show", f"{saved}:moved.txt")) == (
        "new",
        "one\nmoved",
    )


def test_commits_that_an_agent_fetches_may_lack_objects(repo: Repo, tmp_path: Path) -> None:
    """The remote has promised them: no gc has deleted them, and the worktree is removed."""
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "partial")
    repo.git("clone", "-q", "--filter=blob:none", f"file://{repo.path}", clone.path)
    for content in ("first\n", "second\n"):
        repo.write("theirs.txt", content)
        repo.commit("theirs")
    first = repo.git("rev-parse", "HEAD~1:theirs.txt")
    ended = run(clone.path, "-n", "1", "--", "sh", "-c", "git pull -q origin main && echo new >new.txt")
    missing = clone.git("rev-list", "--all", "--objects", "--missing=print")
    assert f"?{first}" in missing.split("\n")
    assert (ended.report["fallback"], ended.report["kept"]) == (None, None), ended.stderr
    assert clone.git("show", f"{ended.report['saved']}:new.txt") == "new"


def test_a_clone_without_files_that_has_all_objects_is_no_partial_clone(repo: Repo, tmp_path: Path) -> None:
    """The session checks its worktree out, and the project stays without files."""
    clone = Repo(tmp_path / "bare-handed")
    repo.git("clone", "-q", "--no-checkout", repo.path, clone.path)
    ended = run(clone.path, "-n", "1", "--", "cat", "file.txt")
    assert (ended.stdout, ended.report["fallback"]) == (b"one\n", None), ended.stderr
