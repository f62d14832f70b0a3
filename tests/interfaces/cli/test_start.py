"""Sessions start wherever a user may stand, and leave that place as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import Repo, make_repo
from tests.support.sessions import Result, run

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("ended")


def _isolated(result: Result, repo: Repo) -> str:
    """Check that a session whose agent said its directory was isolated, and return what it said."""
    assert (result.status, result.warnings) == (0, []), result.stderr
    said = result.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    assert said.startswith(result.report["workspace"])
    assert result.report["branch"] in repo.branches()
    assert repo.worktrees() == []
    return said


@pytest.mark.parametrize(
    "name", [b"white space", b"new\nline", b"not-utf8-\xff", b"-dash", b"quote\"'$x", "ümläut".encode()]
)
def test_a_project_of_any_name(tmp_path: Path, script: Callable[[str], str], name: bytes) -> None:
    """Paths are bytes."""
    repo = make_repo(tmp_path / os.fsdecode(name))
    result = run(repo.path, "-n", "1", "--", script("pwd; echo kept > kept"))
    assert result.warnings == []
    assert os.fsencode(repo.path) in result.stdout
    assert repo.show(f"{result.report['saved']}:kept") == b"kept\n"
    assert not list(repo.path.glob(".ralph/worktrees/*"))


@pytest.mark.parametrize("by", ["cwd", "option"])
def test_a_sub_directory(repo: Repo, script: Callable[[str], str], by: str) -> None:
    """The agent works in the same sub-directory, the worktree is the whole repository's."""
    repo.write("a/b/file", "x\n")
    repo.commit()
    options = ("-C", "a/b") if by == "option" else ()
    directory = repo.path / "a" / "b" if by == "cwd" else repo.path
    result = run(repo.path, "-n", "1", *options, "--", script("pwd"), cwd=directory)
    assert _isolated(result, repo) == f"{result.report['workspace']}/a/b"
    assert not (repo.path / "a" / "b" / ".ralph").exists()


def test_a_sub_directory_that_is_not_committed(repo: Repo, script: Callable[[str], str]) -> None:
    """Then in the nearest one above it."""
    repo.write("a/file", "x\n")
    repo.commit()
    new = repo.path / "a" / "new" / "er"
    new.mkdir(parents=True)
    result = run(repo.path, "-n", "1", "--", script("pwd"), cwd=new)
    assert _isolated(result, repo) == f"{result.report['workspace']}/a"


def test_a_linked_worktree(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """The base is the HEAD of the checkout that the user is in, and .ralph is in the main checkout."""
    other = Repo(tmp_path / "other")
    repo.git("worktree", "add", "-q", "-b", "side", other.path)
    side = other.commit("only on the side")
    result = run(other.path, "-n", "1", "--", script("pwd"), state=repo.path / ".ralph/run")
    assert (result.status, result.warnings) == (0, [])
    assert result.report["workspace"].startswith(f"{repo.path}/.ralph/worktrees/")
    assert result.report["base"] == side
    assert repo.worktrees() == [str(other.path)]


def test_a_detached_head(repo: Repo, script: Callable[[str], str]) -> None:
    """The commit is what counts."""
    repo.git("checkout", "-q", "--detach")
    result = run(repo.path, "-n", "1", "--", script("pwd"))
    _isolated(result, repo)
    assert result.report["base"] == repo.head


def test_a_shallow_clone(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """History that is not there is not needed."""
    repo.commit("second")
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", clone.path)
    _isolated(run(clone.path, "-n", "1", "--", script("pwd; echo x > new")), clone)


def test_a_submodule(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """A submodule is a repository like any other."""
    parent = make_repo(tmp_path / "parent")
    parent.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repo.path, "sub")
    sub = Repo(parent.path / "sub")
    _isolated(run(sub.path, "-n", "1", "--", script("pwd")), sub)


def test_the_middle_of_a_merge(repo: Repo, script: Callable[[str], str]) -> None:
    """The user's merge goes on afterwards as if nothing had happened."""
    repo.git("checkout", "-q", "-b", "side")
    repo.write("file.txt", "side\n")
    repo.commit("side")
    repo.git("checkout", "-q", "main")
    repo.write("file.txt", "main\n")
    repo.commit("main")
    repo.git("merge", "side", check=False)
    before = repo.fingerprint(), repo.git("status", "--porcelain"), (repo.path / "file.txt").read_text()
    result = run(repo.path, "-n", "1", "--ignore", "exclude", "--", script("pwd; cat file.txt >&2"))
    _isolated(result, repo)
    assert "main\n" in result.stderr
    assert before == (
        repo.fingerprint(),
        repo.git("status", "--porcelain"),
        (repo.path / "file.txt").read_text(),
    )
    assert (repo.path / ".git" / "MERGE_HEAD").exists()


def test_tracking_always(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """branch.autoSetupMerge=always makes git write the shared configuration; we do not let it."""
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", repo.path, clone.path)
    clone.git("config", "branch.autoSetupMerge", "always")
    before = (clone.path / ".git" / "config").read_text()
    result = run(clone.path, "-n", "1", "--base", "origin/main", "--", script("pwd"))
    _isolated(result, clone)
    assert (clone.path / ".git" / "config").read_text() == before


def test_uncommitted_work_of_the_user(repo: Repo, script: Callable[[str], str]) -> None:
    """It is neither in the worktree nor touched."""
    repo.write("file.txt", "staged\n")
    repo.git("add", "file.txt")
    repo.write("file.txt", "unstaged\n")
    repo.write("untracked", "u\n")
    before = repo.fingerprint(), repo.git("status", "--porcelain")
    result = run(repo.path, "-n", "1", "--ignore", "exclude", "--", script("pwd; ls >&2; cat file.txt >&2"))
    _isolated(result, repo)
    assert "file.txt\none\n" in result.stderr
    assert (repo.fingerprint(), repo.git("status", "--porcelain")) == before
