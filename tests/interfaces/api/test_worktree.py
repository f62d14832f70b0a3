"""Worktrees for Python programs: created or reused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph_wrap import (
    Session,
    Settings,
    Worktree,
    remove_worktree,
)
from ralph_wrap.errors import (
    BranchBusyError,
    ConflictError,
    IsolationError,
    NotARepositoryError,
    NotFoundError,
    RalphError,
    UsageError,
)
from tests.interfaces.api.project import aside, default_path, trees_of
from tests.support.repo import Repo, make_repo

BAD_NAMES = [
    *[
        "",
        "refs/heads/q",
        ".",
        "..",
        "a/../b",
        "../up",
        "-x",
        "--force",
        "HEAD",
        "@",
        "@{-1}",
        "a.lock",
        "a.lock/b",
        "/a",
        "a/",
    ],
    *[
        "a/",
        "a\nb",
        "a\0b",
        "a\x7fb",
        "a\x1bb",
        "\udcff",
        "a b",
        "a:b",
        "a~1",
        "a*",
        "n" * 300,
        "\u00fc" * 150,
    ],
]


# Create or reuse, create branch from base if missing, explicit path, callbacks, error state without crash


def test_a_worktree_is_created(project: Repo) -> None:
    """In its place, on a new branch, with the files; the project sees nothing but the rule."""
    with Worktree("topic") as tree:
        assert (tree.path, tree.branch, tree.state) == (default_path(project, "topic"), "topic", "ready")
        assert (tree.path / "file.txt").read_text() == "one\n"
        assert project.git("symbolic-ref", "HEAD", cwd=tree.path) == "refs/heads/topic"
    assert tree.state == "closed"
    assert project.git("status", "--porcelain") == "?? .gitignore"


def test_a_worktree_stays_unless_it_is_to_be_cleaned_up(project: Repo) -> None:
    """And bears our mark, so that the other tools know it."""
    with Worktree("topic") as tree:
        pass
    assert trees_of(project) == [tree.path]
    remove_worktree(tree.path)
    assert trees_of(project) == []


@pytest.mark.parametrize(("base", "expected"), [(None, "HEAD"), ("v1", "v1"), ("HEAD~1", "HEAD~1")])
def test_a_branch_is_created_from_its_base(project: Repo, base: str | None, expected: str) -> None:
    """HEAD, unless something else is said."""
    project.git("tag", "-a", "-m", "a tag", "v1")
    project.commit("second")
    project.commit("third")
    with Worktree("topic", base=base):
        assert project.git("rev-parse", "topic") == project.git("rev-parse", f"{expected}^{{commit}}")


def test_an_existing_branch_is_checked_out(project: Repo) -> None:
    """It is not moved, whatever base is said."""
    project.git("branch", "topic")
    tip = project.head
    project.commit("second")
    with Worktree("topic", base="main"):
        assert project.git("rev-parse", "topic") == tip


@pytest.mark.parametrize("name", ["sub/dir", "ralph/a3f2", "\u00fc", "a;b$(x)'", "a" * 240])
def test_unusual_names_of_branches(project: Repo, name: str) -> None:
    """Each worktree is a single directory below the place for worktrees, so none is inside another."""
    with Worktree(name) as tree:
        assert tree.path.parent == project.path / ".ralph/worktrees"
        assert project.git("symbolic-ref", "--short", "HEAD", cwd=tree.path) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_branch_can_have(project: Repo, name: str) -> None:
    """A name leads nowhere, and nothing is made for it."""
    tree = Worktree(name)
    with pytest.raises(UsageError), tree:
        pass
    assert (tree.state, project.branches(), trees_of(project)) == ("error", ["main"], [])


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_an_explicit_path(project: Repo, relative: bool) -> None:
    """Anywhere, also with parents that are not there; nothing of ours is made in the project for it."""
    path = project.path.parent / "else where" / "deep"
    given = os.path.relpath(path, project.path) if relative else path
    with Worktree("topic", path=given) as tree:
        assert (tree.path, trees_of(project)) == (path, [path])
    assert not (project.path / ".gitignore").exists()


def test_another_project(project: Repo, tmp_path: Path) -> None:
    """Relative paths, and the default one, are its own."""
    other = make_repo(tmp_path / "other")
    with Worktree("topic", project=other.path) as tree, Worktree("two", project=other.path, path="x") as two:
        assert (tree.path, two.path) == (default_path(other, "topic"), other.path / "x")
    assert project.branches() == ["main"]


@pytest.mark.usefixtures("project")
def test_a_worktree_at_the_path_is_reused() -> None:
    """With what is in it."""
    with Worktree("topic") as tree:
        (tree.path / "new").touch()
    with Worktree("topic") as again:
        assert again.path == tree.path
        assert (again.path / "new").exists()


def test_a_path_is_compared_by_where_it_leads(project: Repo, tmp_path: Path) -> None:
    """A symlink, or a detour, leads to the same worktree."""
    path = aside(project)
    (tmp_path / "link").symlink_to(tmp_path)
    with Worktree("theirs", path=tmp_path / "link" / "home" / ".." / "theirs") as tree:
        assert tree.path == path


def test_a_worktree_that_has_the_branch_is_reused(project: Repo) -> None:
    """Wherever it is, if no path was given; another process made it, so it is not cleaned up."""
    path = aside(project)
    with Worktree("theirs", cleanup=True) as tree:
        assert tree.path == path
    assert trees_of(project) == [path]


def test_an_inner_worktree_belongs_to_the_same_project(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has changed into its worktree makes the next one beside it."""
    with Worktree("outer") as outer:
        monkeypatch.chdir(outer.path)
        with Worktree("inner") as inner:
            assert inner.path == default_path(project, "inner")
        monkeypatch.chdir(project.path)


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        (lambda p: default_path(p, "topic").mkdir(parents=True), ConflictError, "already exists"),
        (lambda p: make_repo(default_path(p, "topic")), ConflictError, "already exists"),
        (
            lambda p: p.git("worktree", "add", "-q", "-b", "x", default_path(p, "topic")),
            ConflictError,
            "is on x",
        ),
        (
            lambda p: p.git("worktree", "add", "-q", "--detach", default_path(p, "topic")),
            ConflictError,
            "on no br",
        ),
        (lambda p: p.git("checkout", "-q", "-b", "topic"), BranchBusyError, "is checked out in"),
        (lambda p: (p.path / ".ralph").symlink_to(p.path.parent), IsolationError, "is a symlink"),
        (lambda p: aside(p, "topic").rename(p.path.parent / "gone"), ConflictError, "does not exist"),
    ],
    ids=["directory", "repository", "other branch", "detached", "main checkout", "symlink", "gone"],
)
def test_a_path_in_the_way(
    project: Repo, prepare: Callable[[Repo], object], error: type[RalphError], message: str
) -> None:
    """It is named, and left alone."""
    prepare(project)
    before = (project.branches(), trees_of(project))
    with pytest.raises(error, match=message), Worktree("topic", cleanup=True):
        pass
    assert (project.branches(), trees_of(project)) == before


@pytest.mark.parametrize("branch", ["main", "theirs"])
def test_a_checkout_of_the_user_is_not_reused(project: Repo, branch: str) -> None:
    """The main one, nor the linked one that calls us: the user's own files are in it."""
    path = aside(project)
    with pytest.raises(BranchBusyError, match="is checked out in"), Worktree(branch, project=path):
        pass


def test_a_branch_that_is_elsewhere_than_the_path(project: Repo, tmp_path: Path) -> None:
    """Two worktrees cannot be on one branch."""
    aside(project)
    with (
        pytest.raises(BranchBusyError, match="theirs is checked out in"),
        Worktree("theirs", path=tmp_path / "x"),
    ):
        pass


@pytest.mark.usefixtures("project")
def test_a_worktree_that_was_replaced_is_not_reused() -> None:
    """Another repository in its place is not ours to work in."""
    with Worktree("topic") as tree:
        pass
    tree.path.rename(tree.path.with_name("moved"))
    make_repo(tree.path)
    with pytest.raises(ConflictError, match="is not a complete worktree"), Worktree("topic"):
        pass


def test_a_half_made_worktree_is_not_reused(project: Repo) -> None:
    """The process that made it was killed before every file was there."""
    with Worktree("topic"):
        pass
    (project.path / ".git/worktrees/topic/index").unlink()
    with pytest.raises(ConflictError, match="is not a complete worktree"), Worktree("topic"):
        pass


def test_a_sessions_worktree_is_not_reused(project: Repo) -> None:
    """It would go when the session ends."""
    with Session(Settings(project=project.path, command=("true",))) as session:
        branch = session.workspace.branch
        assert branch is not None
        with pytest.raises(BranchBusyError, match="is checked out in"), Worktree(branch):
            pass


@pytest.mark.parametrize(
    ("base", "error"), [("nowhere", NotFoundError), ("--all", NotFoundError), ("a\0b", NotFoundError)]
)
def test_a_base_that_is_no_commit(project: Repo, base: str, error: type[RalphError]) -> None:
    """Nothing is made."""
    with pytest.raises(error, match="names no commit"), Worktree("topic", base=base):
        pass
    assert project.branches() == ["main"]


def test_no_commit_yet(tmp_path: Path) -> None:
    """There is nothing to check out."""
    empty = make_repo(tmp_path / "empty", empty=True)
    with pytest.raises(IsolationError, match="no commit yet"), Worktree("topic", project=empty.path):
        pass


def test_no_repository(tmp_path: Path) -> None:
    """The error says so, and the status that goes with it."""
    with pytest.raises(NotARepositoryError), Worktree("topic", project=tmp_path / "home"):
        pass
