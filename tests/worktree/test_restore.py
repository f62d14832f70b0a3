"""Saved work comes back into a new worktree as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import ConflictError
from ralph_wrap.worktree.restore import restore
from tests.support.trees import ID, WIP, Tree, located, make_tree, on_disk

if TYPE_CHECKING:
    from tests.support.repo import Repo

BRANCH = f"ralph/{ID}"


@pytest.fixture
def tree(repo: Repo) -> Tree:
    """Return a worktree of a repository with a few files."""
    for name in ("kept", "gone", "both", "moved"):
        repo.write(name, f"{name}\n" * 20)
    repo.commit("files")
    repo.write(".git/info/exclude", ".ralph/\n")  # no commit of a test takes what is being deleted there
    return make_tree(repo)


def _again(tree: Tree) -> Tree:
    """Return a new worktree on the same branch, with the saved work in it."""
    again = make_tree(tree.repo, continued=True)
    restore(again.linked, located(tree.repo)[0], ID)
    return again


def _status(tree: Tree) -> str:
    return tree.inside.git("status", "--porcelain", "-z", "--ignore-submodules=none")


def test_staged_stays_staged_and_deleted_stays_deleted(tree: Tree) -> None:
    """Files, modes, symlinks and the index are those of the end."""
    tree.inside.write("both", "staged\n")
    tree.inside.git("add", "both")
    tree.inside.write("both", "not staged\n")
    tree.inside.git("rm", "-q", "gone")
    tree.inside.git("mv", "moved", "renamed")
    (tree.path / "kept").unlink()
    tree.inside.write("new", "new\n", executable=True)
    (tree.path / "link").symlink_to("new")
    files, status = on_disk(tree.path), _status(tree)
    tree.finish()
    again = _again(tree)
    assert (on_disk(again.path), _status(again)) == (files, status)
    assert again.inside.git("show", ":both") == "staged"


def test_nothing_saved_is_nothing_to_restore(tree: Tree) -> None:
    """The worktree is clean."""
    tree.inside.commit("all of it")
    tree.finish()
    again = make_tree(tree.repo, continued=True)
    assert restore(again.linked, located(tree.repo)[0], ID) is None
    assert _status(again) == ""


def test_work_comes_back_on_top_of_later_commits(tree: Tree) -> None:
    """A reviewer has committed on the branch meanwhile."""
    tree.inside.write("both", "staged\n")
    tree.inside.git("add", "both")
    tree.inside.write("new", "new\n")
    tree.finish()
    tree.repo.git("checkout", "-q", BRANCH)
    tree.repo.write("kept", "changed by the reviewer\n")
    commit = tree.repo.commit("a correction")
    tree.repo.git("checkout", "-q", "main")
    again = _again(tree)
    assert again.inside.git("rev-parse", "HEAD") == commit
    assert (again.path / "kept").read_text() == "changed by the reviewer\n"
    assert sorted(_status(again).split("\0")) == ["", "?? new", "M  both"]


def test_work_that_conflicts_with_later_commits_is_refused(tree: Tree) -> None:
    """The error names the file; branch and saved work stay."""
    tree.inside.write("both", "by the agent\n")
    tree.finish()
    saved = tree.repo.git("rev-parse", WIP)
    tree.repo.git("checkout", "-q", BRANCH)
    tree.repo.write("both", "by the reviewer\n")
    tree.repo.commit("another opinion")
    tree.repo.git("checkout", "-q", "main")
    again = make_tree(tree.repo, continued=True)
    with pytest.raises(ConflictError, match="both") as refused:
        restore(again.linked, located(tree.repo)[0], ID)
    assert f"git switch {BRANCH} && git merge {WIP}" in str(refused.value.hint)
    assert _status(again) == ""
    assert tree.repo.git("rev-parse", WIP) == saved


@pytest.mark.parametrize("dirty", [True, False])
def test_a_detached_head_comes_back(tree: Tree, *, dirty: bool) -> None:
    """The agent had left its branch, with or without uncommitted work."""
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on no branch")
    if dirty:
        tree.inside.write("new", "new\n")
    tree.finish()
    again = _again(tree)
    assert again.inside.git("rev-parse", "HEAD") == commit
    assert again.inside.git("rev-parse", "--symbolic-full-name", "HEAD") == "HEAD"
    assert _status(again) == ("?? new\0" if dirty else "")


def test_an_unborn_branch_leaves_its_files(tree: Tree) -> None:
    """They come back on the session's branch, as the index that they were in."""
    tree.inside.git("checkout", "-q", "--orphan", "fresh")
    (tree.path / "gone").unlink()
    tree.inside.write("new", "new\n")
    files, index = on_disk(tree.path), tree.inside.git("ls-files", "--stage")
    tree.finish()
    again = _again(tree)
    assert (on_disk(again.path), again.inside.git("ls-files", "--stage")) == (files, index)


def test_work_that_was_put_back_is_saved_again_once(tree: Tree) -> None:
    """The same work makes no second commit, and no snapshot."""
    tree.inside.write("new", "new\n")
    tree.finish()
    saved = tree.repo.git("rev-parse", WIP)
    outcome = _again(tree).finish(restored=saved)
    assert outcome.saved is not None
    assert (outcome.saved.branch, tree.repo.git("rev-parse", WIP)) == (WIP, saved)
    assert tree.repo.git("for-each-ref", "refs/ralph/") == ""


@pytest.mark.parametrize("left", ["other work", "nothing"])
def test_the_former_saved_work_becomes_a_snapshot(tree: Tree, left: str) -> None:
    """The new session has changed or finished it."""
    tree.inside.write("new", "new\n")
    tree.finish()
    saved = tree.repo.git("rev-parse", WIP)
    again = _again(tree)
    again.inside.write("new", "changed\n")
    if left == "nothing":
        again.inside.commit("done")
    again.finish(restored=saved)
    assert tree.repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph/snapshots/") == saved
    assert (WIP in tree.repo.branches()) == (left == "other work")


def test_another_saved_work_is_no_snapshot(tree: Tree) -> None:
    """A session that ends clean keeps saved work that was not put back into its worktree."""
    tree.inside.write("new", "new\n")
    tree.finish()
    saved = tree.repo.git("rev-parse", WIP)
    make_tree(tree.repo, continued=True).finish(restored=tree.repo.git("rev-parse", BRANCH))
    assert tree.repo.git("rev-parse", WIP) == saved


@pytest.mark.parametrize("dirty", [True, False])
def test_a_detached_head_stays_saved_work_when_nothing_more_happens(tree: Tree, *, dirty: bool) -> None:
    """The next session finds the commit again; its branch is not replaced by a snapshot."""
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on no branch")
    if dirty:
        tree.inside.write("new", "new\n")
    tree.finish()
    again = _again(tree)
    again.inside.git("clean", "-fdq")
    outcome = again.finish(restored=tree.repo.git("rev-parse", WIP))
    assert outcome.saved is not None
    assert (outcome.saved.branch, tree.repo.git("rev-parse", WIP)) == (WIP, commit)
    assert _again(tree).inside.git("rev-parse", "HEAD") == commit


def test_an_index_that_conflicts_with_later_commits_leaves_the_files(tree: Tree) -> None:
    """The agent had staged one content and restored the file: only the index cannot come back."""
    content = (tree.path / "both").read_text()
    tree.inside.write("both", "staged\n")
    tree.inside.git("add", "both")
    tree.inside.write("both", content)
    tree.inside.write("new", "new\n")
    tree.finish()
    tree.repo.git("checkout", "-q", BRANCH)
    tree.repo.write("both", "by the reviewer\n")
    tree.repo.commit("a correction")
    tree.repo.git("checkout", "-q", "main")
    again = _again(tree)
    assert (again.path / "both").read_text() == "by the reviewer\n"
    assert _status(again) == "?? new\0"


def test_work_that_its_branch_contains_is_not_put_back_again(tree: Tree) -> None:
    """The user has merged it and changed the same lines afterwards."""
    tree.inside.write("both", "by the agent\n")
    tree.finish()
    tree.repo.git("checkout", "-q", BRANCH)
    tree.repo.git("merge", "-q", WIP)
    tree.repo.write("both", "by the user\n")
    commit = tree.repo.commit("merged and changed")
    tree.repo.git("checkout", "-q", "main")
    again = _again(tree)
    assert (again.inside.git("rev-parse", "HEAD"), _status(again)) == (commit, "")


@pytest.mark.parametrize("how", ["rebased", "reset"])
def test_work_comes_back_on_a_branch_that_was_rewritten(tree: Tree, how: str) -> None:
    """HEAD is not detached at a commit that the user has removed from the branch."""
    tree.inside.write("committed", "x\n")
    tree.inside.commit("by the agent")
    tree.inside.write("new", "new\n")
    tree.finish()
    if how == "rebased":
        tree.repo.write("main", "x\n")
        tree.repo.commit("on main")
        tree.repo.git("rebase", "-q", "main", BRANCH)
    else:
        tree.repo.git("checkout", "-q", BRANCH)
        tree.repo.git("reset", "-q", "--hard", "HEAD~1")
    commit = tree.repo.git("rev-parse", "HEAD")
    tree.repo.git("checkout", "-q", "main")
    again = _again(tree)
    assert again.inside.git("symbolic-ref", "--short", "HEAD") == BRANCH
    assert (again.inside.git("rev-parse", "HEAD"), _status(again)) == (commit, "?? new\0")
