"""The shadow git directory: the objects of a repository, and nothing else of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, commit_tree, git_environment, resolve_commit, tree_of
from ralph_wrap.git.repository import locate_repository
from ralph_wrap.git.shadow import shadow_repository
from tests.support.repo import Repo

if TYPE_CHECKING:
    from pathlib import Path


def _shadow(repo: Repo, **environ: str) -> tuple[Git, Git]:
    git = Git(repo.path, git_environment({**os.environ, **environ}))
    with shadow_repository(git, locate_repository(git)) as shadow:
        return git, shadow


def test_commits_go_in_by_id_and_what_is_written_is_in_the_repository(repo: Repo) -> None:
    """Refs do not exist there; a new commit is an object of the repository at once."""
    git = Git(repo.path, git_environment(os.environ))
    with shadow_repository(git, locate_repository(git)) as shadow:
        assert (resolve_commit(shadow, "HEAD"), resolve_commit(shadow, "main")) == (None, None)
        written = commit_tree(shadow, tree_of(shadow, repo.head), [repo.head], "in the shadow")
    assert repo.git("log", "-1", "--format=%s", written) == "in the shadow"


def test_the_directory_is_private_outside_the_project_and_gone_at_the_end(repo: Repo, tmp_path: Path) -> None:
    """A place that the project contains, or that does not work, is left out."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    git = Git(repo.path, git_environment({**os.environ, "XDG_RUNTIME_DIR": str(runtime)}))
    with shadow_repository(git, locate_repository(git)) as shadow:
        assert shadow.git_dir is not None
        assert (shadow.git_dir.parent, shadow.git_dir.stat().st_mode & 0o777) == (runtime, 0o700)
    assert list(runtime.iterdir()) == []
    inside = repo.path / "tmp"
    inside.mkdir()
    for name in (str(inside), str(tmp_path / "missing"), "relative"):
        _, shadow = _shadow(repo, XDG_RUNTIME_DIR=name, TMPDIR=str(runtime))
        assert shadow.git_dir is not None
        assert shadow.git_dir.parent == runtime


def test_an_error_inside_comes_out_and_the_directory_goes(repo: Repo, tmp_path: Path) -> None:
    """An error of the operating system there is not taken for one of a place."""
    git = Git(repo.path, git_environment({**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}))
    with (
        pytest.raises(FileNotFoundError, match="of the caller"),
        shadow_repository(git, locate_repository(git)) as shadow,
    ):
        raise FileNotFoundError("of the caller")
    assert shadow.git_dir is not None
    assert not shadow.git_dir.exists()


def test_a_shallow_clone_and_sha256(tmp_path: Path, repo: Repo) -> None:
    """The end of a short history, and the names of objects, are as in the repository."""
    repo.commit("second")
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", clone.path)
    modern = Repo(tmp_path / "sha256")
    repo.git("init", "-q", "--object-format=sha256", modern.path)
    modern.commit("first")
    for other in (clone, modern):
        git = Git(other.path, git_environment(os.environ))
        with shadow_repository(git, locate_repository(git)) as shadow:
            assert tree_of(shadow, other.head) == other.git("rev-parse", "HEAD^{tree}")
            assert resolve_commit(shadow, f"{other.head}~1") is None
