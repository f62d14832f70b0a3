"""Worktrees for Python programs: callbacks, failures, and clean-up of what the program created."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph_wrap import (
    Worktree,
    current_worktree,
)
from ralph_wrap.errors import (
    GitTooOldError,
    IsolationError,
    NotFoundError,
)
from tests.interfaces.api.project import default_path, names_in, trees_of, untracked
from tests.support.git_shim import old_git, shim_git
from tests.support.repo import Repo, make_repo


@pytest.mark.usefixtures("project")
def test_on_ready_gets_the_path() -> None:
    """Before the block, of a worktree that is whole."""
    printed: list[list[str]] = []
    with Worktree("topic", on_ready=lambda path: printed.append(names_in(path))):
        assert printed == [[".git", "file.txt"]]


@pytest.mark.usefixtures("project")
def test_the_error_state() -> None:
    """The callback gets the error in a worktree whose state says so; then it is raised."""
    seen: list[object] = []
    tree = Worktree("topic", base="nowhere", on_error=lambda error: seen.extend((error, tree.state)))
    assert tree.state == "pending"
    with pytest.raises(NotFoundError) as caught, tree:
        pass
    assert seen == [caught.value, "error"]
    with pytest.raises(RuntimeError, match="no path before the program enters its block"):
        _ = tree.path


@pytest.mark.usefixtures("project")
def test_an_error_of_the_block_is_none_of_the_worktrees() -> None:
    """It is raised on; the callback is for what prevents the worktree."""
    seen: list[Exception] = []
    with pytest.raises(ZeroDivisionError), Worktree("topic", on_error=seen.append) as tree:
        _ = 1 / 0
    assert (seen, tree.state, current_worktree()) == ([], "closed", None)


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_callback_that_fails(project: Repo, cleanup: bool) -> None:
    """There is no block, and what was made for it goes as it would at its end."""
    seen: list[Exception] = []

    def fail(_path: Path) -> None:
        raise ZeroDivisionError

    tree = Worktree("topic", on_ready=fail, on_error=seen.append, cleanup=cleanup)
    with pytest.raises(ZeroDivisionError), tree:
        pass
    assert ([type(error) for error in seen], tree.state) == ([ZeroDivisionError], "error")
    assert (current_worktree(), bool(trees_of(project))) == (None, not cleanup)


def test_a_failed_attempt_leaves_nothing(
    project: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branch, registration and directory are undone."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;'))
    with pytest.raises(IsolationError), Worktree("topic"):
        pass
    assert (project.branches(), trees_of(project)) == (["main"], [])
    assert not default_path(project, "topic").exists()


def test_git_that_is_too_old(project: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named by its version."""
    monkeypatch.setenv("PATH", old_git(tmp_path / "shim", "2.14.0"))
    with pytest.raises(GitTooOldError), Worktree("topic", project=project.path):
        pass


def test_hooks_are_left_on_in_the_worktree(project: Repo) -> None:
    """None runs for us; a commit there runs the project's, and the configuration is as it was."""
    ran = project.path.parent / "ran"
    for name in ("post-checkout", "pre-commit"):
        project.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >> {ran}\n", executable=True)
    before = (project.path / ".git/config").read_text()
    with Worktree("topic") as tree:
        assert not ran.exists()
        project.git("commit", "--allow-empty", "-qm", "x", cwd=tree.path)
    assert ran.read_text() == "pre-commit\n"
    assert (project.path / ".git/config").read_text() == before


# Cleanup only of what it created; failure to clean up is a warning


def test_cleanup_removes_what_it_created(project: Repo) -> None:
    """The branch stays, with what was committed to it."""
    with Worktree("topic", cleanup=True) as tree:
        (tree.path / "new").touch()
        project.git("add", "new", cwd=tree.path)
        project.git("commit", "-qm", "new", cwd=tree.path)
    assert (trees_of(project), tree.path.exists()) == ([], False)
    assert project.git("ls-tree", "--name-only", "topic") == "file.txt\nnew"


def test_cleanup_leaves_what_was_there(project: Repo) -> None:
    """Another block, or another process, made it."""
    with Worktree("topic") as tree:
        pass
    with Worktree("topic", cleanup=True):
        pass
    assert trees_of(project) == [tree.path]


def test_cleanup_after_an_exception(project: Repo) -> None:
    """On every way out of the block."""
    with pytest.raises(ZeroDivisionError), Worktree("topic", cleanup=True):
        _ = 1 / 0
    assert trees_of(project) == []


def _uncommitted(path: Path) -> None:
    (path / "file.txt").write_text("two\n")


def _on_no_branch(path: Path) -> None:
    Repo(path).git("checkout", "-q", "--detach")
    Repo(path).commit("alone")


def _nested(path: Path) -> None:
    make_repo(path / "nested")


def _replaced(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.mkdir()
    (path / "precious").touch()


@pytest.mark.parametrize(
    "work", [_uncommitted, untracked, _on_no_branch, _nested, _replaced], ids=lambda work: work.__name__
)
def test_cleanup_never_loses_work(project: Repo, work: Callable[[Path], None]) -> None:
    """The worktree stays with all that is in it, and that is a warning."""
    tree = Worktree("topic", cleanup=True)
    tree.__enter__()
    work(tree.path)
    before = sorted(tree.path.parent.rglob("*"))
    with pytest.warns(RuntimeWarning, match="worktree of topic kept: "):
        tree.__exit__()
    assert sorted(tree.path.parent.rglob("*")) == before
    assert (tree.state, len(trees_of(project))) == ("closed", 1)


def test_cleanup_leaves_others_their_worktree(project: Repo) -> None:
    """Another block has found it, in this process or elsewhere, and still works there."""
    tree = Worktree("topic", cleanup=True)
    tree.__enter__()
    with Worktree("topic"):
        with pytest.warns(RuntimeWarning, match="another block uses"):
            tree.__exit__()
        assert trees_of(project) == [tree.path]


def test_cleanup_does_not_wait_for_processes_that_have_left(project: Repo) -> None:
    """Only a process in the worktree keeps it."""
    with Worktree("topic", cleanup=True), Worktree("topic"):
        pass
    assert trees_of(project) == []


@pytest.mark.usefixtures("project")
def test_no_descriptor_is_left() -> None:
    """However a block ends; thousands of blocks in one program are fine."""

    def fail(_path: Path) -> None:
        raise ZeroDivisionError

    before = os.listdir("/proc/self/fd")  # noqa: PTH208 -- names that may be gone by now
    trees = [
        Worktree("one"),
        Worktree("two", cleanup=True),
        Worktree("three", on_ready=fail),
        Worktree("four", base="nowhere"),
    ]
    for tree in trees:
        with contextlib.suppress(NotFoundError, ZeroDivisionError), tree:
            pass
    assert [tree.state for tree in trees] == ["closed", "closed", "error", "error"]
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_failure_to_clean_up_names_the_block(project: Repo) -> None:
    """The warning points at the caller's line, says what is left, and raises nothing."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with Worktree("topic", cleanup=True) as tree:
            untracked(tree.path)
    [warning] = seen
    assert warning.filename == __file__
    path = default_path(project, "topic")
    assert str(warning.message) == f"worktree of topic kept: {path} would be lost with: uncommitted: new"
