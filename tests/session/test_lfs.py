"""Git LFS is left alone: the user's filters run as in any checkout, and git stores their result."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import program
from tests.support.repo import Repo
from tests.support.sessions import run
from tests.support.submodules import SUB, make_project

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("trusted")

SH = ("-n", "1", "--", "sh", "-c")


@pytest.fixture
def _lfs() -> None:
    program("git-lfs", "git-lfs").check()


def _filters(repo: Repo, program: str) -> None:
    """Configure what ``git lfs install`` does, for the user."""
    for key, words in {"clean": "clean -- %f", "smudge": "smudge -- %f", "process": "filter-process"}.items():
        repo.git("config", "--global", f"filter.lfs.{key}", f"{program} {words}")
    repo.git("config", "--global", "filter.lfs.required", "true")


@pytest.fixture
def large(repo: Repo, _lfs: None) -> Repo:
    """Return a repository with a file that git-lfs has stored."""
    _filters(repo, "git-lfs")
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.write("large.bin", b"first\0" * 1000)
    repo.commit("large")
    assert repo.show("HEAD:large.bin").startswith(b"version https://git-lfs")
    return repo


def _pointer(content: bytes) -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


def _wip(repo: Repo) -> str:
    (name,) = [branch for branch in repo.branches() if branch.endswith("-wip")]
    return name


def test_the_agent_has_the_content(large: Repo) -> None:
    """As in a checkout of the user's own."""
    ended = run(large.path, *SH, "cat large.bin")
    assert ended.stdout == b"first\0" * 1000
    assert [branch for branch in large.branches() if branch.endswith("-wip")] == []


def test_a_changed_file_is_saved_as_git_would_store_it(large: Repo) -> None:
    """A pointer on the branch, the content where all worktrees have theirs; a checkout brings it back."""
    run(large.path, *SH, "printf second > large.bin")
    wip = _wip(large)
    assert large.show(f"{wip}:large.bin") == _pointer(b"second")
    large.git("checkout", "-q", wip)
    assert (large.path / "large.bin").read_bytes() == b"second"


def test_pointers_that_were_not_downloaded_stay_as_they_are(
    large: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``GIT_LFS_SKIP_SMUDGE`` counts for our checkout; what was left out is no change."""
    monkeypatch.setenv("GIT_LFS_SKIP_SMUDGE", "1")
    ended = run(large.path, *SH, "cat large.bin; echo > new")
    assert ended.stdout == _pointer(b"first\0" * 1000)
    assert large.git("diff", "--name-only", "main", _wip(large)) == "new"


@pytest.mark.usefixtures("_lfs")
def test_large_files_of_a_submodule_keep_the_worktree(tmp_path: Path) -> None:
    """Their content is in the submodule's repository, and would go with it."""
    project = make_project(tmp_path / "world")
    _filters(project.repo, "git-lfs")
    project.repo.write(".ralph/config.toml", 'submodules = "init"\n')
    work = f"cd {SUB}; echo '*.bin filter=lfs' > .gitattributes; echo l > l.bin; git add -A; git commit -qm l"
    ended = run(project.repo.path, *SH, work)
    assert ended.report["kept"] == f"submodule {SUB}: large files of git-lfs are nowhere else"


@pytest.mark.usefixtures("_lfs")
def test_large_files_of_the_main_checkouts_submodule_are_there(tmp_path: Path) -> None:
    """Copied from its repository, which needs no network; unchanged files keep no worktree."""
    project = make_project(tmp_path / "world")
    _filters(project.repo, "git-lfs")
    project.repo.write(".ralph/config.toml", 'submodules = "init"\n')
    checkout = Repo(project.repo.path / SUB)
    checkout.write(".gitattributes", "*.bin filter=lfs\n")
    checkout.write("large.bin", "large")
    checkout.commit("large")
    project.repo.commit("large")
    project.upstream.path.rename(tmp_path / "gone")
    ended = run(project.repo.path, *SH, f"cat {SUB}/large.bin")
    assert (ended.stdout, ended.report["kept"]) == (b"large", None)


def test_a_program_that_is_missing_is_an_error(repo: Repo) -> None:
    """A required filter that is missing makes every checkout fail; no agent then works in the project."""
    repo.write(".gitattributes", "*.bin filter=lfs\n")
    repo.write("large.bin", _pointer(b"x"))
    repo.commit("large")
    _filters(repo, "/nowhere/git-lfs")
    ended = run(repo.path, *SH, "pwd")
    assert (ended.status, ended.stdout) == (125, b"")
    said = "the filter lfs of large.bin needs /nowhere/git-lfs, which is not installed"
    assert said in ended.warnings[-1]["message"]
    assert ended.warnings[-1]["hint"].startswith("install /nowhere/git-lfs; what names it: git config ")
