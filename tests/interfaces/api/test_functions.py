"""Worktrees for Python programs: listed, added, removed, looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ralph_wrap import (
    Session,
    Settings,
    add_worktree,
    branch_exists,
    list_worktrees,
    remove_worktree,
    worktree_exists,
)
from ralph_wrap.errors import (
    BranchBusyError,
    ConflictError,
    NotARepositoryError,
    NotFoundError,
    NotOursError,
    RalphError,
    RefusedError,
    UsageError,
)
from tests.interfaces.api.project import aside, trees_of, untracked
from tests.support.repo import Repo, make_repo


def test_worktrees_are_listed_with_reasons(project: Repo) -> None:
    """From any directory of the repository; why one is locked, and why another could be pruned."""
    locked, gone = aside(project, "locked"), aside(project, "gone")
    project.git("worktree", "lock", "--reason", "a reason", locked)
    gone.rename(gone.with_name("moved"))
    infos = {info.branch: info for info in list_worktrees(locked)}
    assert infos["main"] == (project.path, "main", project.head, None, None)
    assert infos["locked"] == (locked, "locked", project.head, "a reason", None)
    assert infos["gone"].prunable
    assert [*infos.values()] == list_worktrees()


@pytest.mark.parametrize(
    "call",
    [
        list_worktrees,
        lambda: add_worktree("x", "x"),
        lambda: branch_exists("x"),
        lambda: worktree_exists("x"),
    ],
    ids=["list", "add", "branch", "exists"],
)
def test_outside_of_any_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    """That is an error and no answer."""
    monkeypatch.chdir(tmp_path / "home")
    with pytest.raises(NotARepositoryError):
        call()


@pytest.mark.parametrize("base", [None, "HEAD~1"])
def test_a_worktree_is_added(project: Repo, base: str | None) -> None:
    """On a new branch, at its base."""
    project.commit("second")
    path = add_worktree("../x", "topic", base)
    assert path == project.path.parent / "x"
    assert project.git("rev-parse", "HEAD", cwd=path) == project.git("rev-parse", base or "HEAD")
    assert project.git("symbolic-ref", "--short", "HEAD", cwd=path) == "topic"


def test_a_worktree_is_added_on_an_existing_branch(project: Repo) -> None:
    """If that is said."""
    project.git("branch", "topic")
    path = add_worktree("../x", "topic", create_branch=False)
    assert project.git("symbolic-ref", "--short", "HEAD", cwd=path) == "topic"


@pytest.mark.parametrize(
    ("path", "branch", "options", "error"),
    [
        ("../x", "there", {}, ConflictError),
        ("../x", "missing", {"create_branch": False}, NotFoundError),
        ("../x", "there", {"create_branch": False, "base": "main"}, UsageError),
        ("../x", "main", {"create_branch": False}, BranchBusyError),
        ("../x", "topic", {"base": "nowhere"}, NotFoundError),
        ("../x", "-b", {}, UsageError),
        ("../home", "topic", {}, ConflictError),
        (".", "topic", {}, ConflictError),
        ("loop", "topic", {}, ConflictError),
        ("a\0b", "topic", {}, UsageError),
    ],
)
def test_worktrees_that_cannot_be_added(
    project: Repo, path: str, branch: str, options: dict[str, str | bool], error: type[RalphError]
) -> None:
    """Each with the error that says why, and nothing is left of it."""
    project.git("branch", "there")
    (project.path / "loop").symlink_to("loop")
    with pytest.raises(error):
        add_worktree(path, branch, **options)  # type: ignore[arg-type]
    assert (project.branches(), trees_of(project)) == (["main", "there"], [])


def test_a_worktree_is_removed(project: Repo) -> None:
    """Its branch stays."""
    path = add_worktree("../x", "topic")
    remove_worktree("../x")
    assert (path.exists(), trees_of(project), project.branches()) == (False, [], ["main", "topic"])


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("force", [True, False])
def test_a_worktree_with_work_in_it_is_removed_by_force_alone(force: bool) -> None:
    """What would be lost is named."""
    path = add_worktree("../x", "topic")
    untracked(path)
    if force:
        remove_worktree(path, force=True)
    else:
        with pytest.raises(RefusedError, match="uncommitted: new"):
            remove_worktree(path)
    assert path.exists() is not force


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    ("what", "error"),
    [("theirs", NotOursError), ("project", NotOursError), ("other", NotOursError), ("gone", NotFoundError)],
)
def test_what_we_did_not_make_is_not_removed(
    project: Repo, what: str, error: type[RalphError], force: bool
) -> None:
    """Not by force either."""
    aside(project)
    make_repo(project.path.parent / "other")
    before = sorted(project.path.parent.glob("*/*"))
    with pytest.raises(error):
        remove_worktree(project.path.parent / what, force=force)
    assert sorted(project.path.parent.glob("*/*")) == before


def test_a_sessions_worktree_is_not_removed(project: Repo) -> None:
    """That is for the session to do."""
    with Session(Settings(project=project.path, command=("true",))) as session:
        with pytest.raises(NotOursError):
            remove_worktree(session.workspace.path, force=True)
        assert session.workspace.path.is_dir()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "content", ["", "gitdir: \0", "gitdir: loop", "gitdir: ../../.git", "x" * 5000], ids=range(5)
)
def test_a_pointer_that_leads_nowhere(content: str) -> None:
    """An agent may have written it: that is an error of ours, and nothing is removed."""
    path = add_worktree("../x", "topic")
    (path / ".git").write_text(content)
    (path / "loop").symlink_to("loop")
    with pytest.raises((NotOursError, NotFoundError)):
        remove_worktree(path, force=True)
    assert path.is_dir()


def test_branches_exist_or_do_not(project: Repo) -> None:
    """By their whole name, not by a pattern; what cannot be a name is none."""
    project.git("branch", "a/topic")
    project.git("tag", "v1")
    names = ["main", "a/topic", "a", "topic", "a/*", "v1", "HEAD", "", "refs/heads/main", "-h", "a\0b"]
    assert [name for name in names if branch_exists(name)] == ["main", "a/topic"]
    assert branch_exists("main", cwd=project.path)


def test_worktrees_exist_or_do_not(project: Repo, tmp_path: Path) -> None:
    """By where a path leads: relative, through symlinks, with detours."""
    path = aside(project)
    gone = aside(project, "gone")
    gone.rename(gone.with_name("moved"))
    (tmp_path / "link").symlink_to(path)
    paths: list[str | Path] = [
        path,
        "../theirs",
        "../link",
        tmp_path / "home/../theirs/",
        ".",
        gone,
        "../moved",
        "../home",
        "x",
    ]
    assert [worktree_exists(name) for name in paths] == [True] * 5 + [False] * 4
    assert worktree_exists("../theirs", cwd=project.path)
