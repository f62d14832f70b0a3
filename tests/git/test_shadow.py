"""The shadow git directory: the objects of a repository, and nothing else of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import ralph_wrap.git.shadow
from ralph_wrap.git import Git, commit_tree, git_environment, resolve_commit, run_git, tree_of
from ralph_wrap.git.repository import locate_repository
from ralph_wrap.git.shadow import shadow_repository
from tests.support.repo import Repo

if TYPE_CHECKING:
    from pathlib import Path


def _shadow(repo: Repo, **environ: str) -> tuple[Git, Git]:
    git = Git(repo.path, git_environment({**os.environ, **environ}))
    with shadow_repository(git, locate_repository(git)) as shadow:
        return git, shadow


def test_commits_go_in_by_id_and_new_objects_are_in_the_repository(repo: Repo) -> None:
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


@pytest.mark.parametrize("condition", ["gitdir:{repo}/", "gitdir/i:{repo}/.git", "onbranch:main"])
def test_an_include_with_a_condition_counts_as_in_the_repository(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """The user has another name below a directory; with the look at the repository off, it is not found."""
    (tmp_path / "work").write_text("[user]\n\tname = At Work\n[credential]\n\thelper = mine\n")
    for key in ("gitdir:/elsewhere/", condition.format(repo=repo.path)):
        repo.git("config", "--global", f"includeIf.{key}.path", str(tmp_path / "work"))
    repo.git("config", "--global", "user.email", "me@example.invalid")
    repo.git("config", "user.name", "of the repository")
    git = Git(repo.path, git_environment(os.environ))
    for name, helpers in (("At Work\n", "mine\n"), ("", "")):
        with shadow_repository(git, locate_repository(git)) as shadow:
            values = [_value(shadow, key) for key in ("user.name", "credential.helper", "user.email")]
        assert values == [name, helpers, "me@example.invalid\n"]
        monkeypatch.setattr(ralph_wrap.git.shadow, "user_entries", lambda _: [])


def _value(git: Git, key: str) -> str:
    return run_git(git, "config", "--get", key, accept=(0, 1)).stdout.decode()


def test_what_the_repository_includes_is_not_the_user_s(repo: Repo, tmp_path: Path) -> None:
    """An agent lets the configuration of the repository include a file from anywhere."""
    (tmp_path / "evil").write_text("[diff]\n\texternal = evil\n")
    repo.git("config", "include.path", str(tmp_path / "evil"))
    repo.git("config", "--global", f"includeIf.gitdir:{repo.path}/.path", str(tmp_path / "missing"))
    git = Git(repo.path, git_environment(os.environ))
    assert _value(git, "diff.external") == "evil\n"
    with shadow_repository(git, locate_repository(git)) as shadow:
        assert _value(shadow, "diff.external") == ""
