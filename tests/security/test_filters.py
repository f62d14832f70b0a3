"""Our git and the agent's git see the same files: a filter without approval refuses what checks files out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.config.approvals import answered
from tests.support.merging import branch
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.repo import Repo
    from tests.support.sessions import Result

CRYPT = """
case $1 in clean) sed 's/^/ENC:/';; smudge) sed 's/^ENC://';; esac
"""
SH = ("-n", "1", "--", "sh", "-c")


@pytest.fixture
def crypt(tmp_path: Path) -> Mapping[str, str]:
    """Return the keys of a filter as git-crypt makes it: on disk a file is plain, in git it is not."""
    program = tmp_path / "crypt"
    program.write_text(f"#!/bin/sh{CRYPT}")
    program.chmod(0o755)
    return {
        "filter.crypt.clean": f"{program} clean",
        "filter.crypt.smudge": f"{program} smudge",
        "filter.crypt.required": "true",
    }


@pytest.fixture
def secret(repo: Repo, crypt: Mapping[str, str]) -> Repo:
    """Return a repository with a file behind such a filter, and a branch to land with saved work."""
    for key, value in crypt.items():
        repo.git("config", key, value)
    repo.write(".gitattributes", "secret* filter=crypt\n")
    repo.write("secret.env", "password=1\n")
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("secret")
    assert repo.show("HEAD:secret.env") == b"ENC:password=1\n"
    branch(repo, "aaaa", {"new.txt": "new\n"})
    branch(repo, "aaaa-wip", {"saved.txt": "saved\n"}, base="ralph/aaaa")
    return repo


COMMANDS: Mapping[str, Callable[[Repo], Result]] = {
    "run": lambda repo: command("run", *SH, "echo new > file.txt", cwd=repo.path),
    "merge": lambda repo: command("merge", "aaaa", cwd=repo.path),
    "apply": lambda repo: command("apply", "aaaa", cwd=repo.path),
    "worktree create": lambda repo: command("worktree", "create", "some task", cwd=repo.path),
    "pool": lambda repo: command("pool", "--fill", cwd=repo.path),
}


def _refused(ended: Result, path: str = "secret.env") -> bool:
    said = ended.stderr + ended.stdout.decode()
    return ended.status != 0 and f"applies to {path}" in said and "ralph-wrap trust -C " in said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_filter_without_approval_refuses(secret: Repo, name: str) -> None:
    """Nothing is made, nothing is written, and the message names the file and the way out."""
    secret.write(".ralph/config.toml", "pool = 1\n")
    refs = secret.git("for-each-ref")
    ended = COMMANDS[name](secret)
    assert _refused(ended), ended.stderr
    assert (secret.git("for-each-ref"), secret.worktrees()) == (refs, [])
    assert (secret.path / "secret.env").read_text() == "password=1\n"
    assert secret.git("status", "--porcelain") == ""


def test_an_approved_filter_runs_once(secret: Repo) -> None:
    """The agent sees the plain file, git stores it filtered once, and a merge writes it plain."""
    answered(secret.path)
    ended = run(secret.path, *SH, "cat secret.env; echo more >> secret.env; git commit -qam more")
    assert ended.stdout == b"password=1\n"
    landed = command("merge", ended.report["id"], cwd=secret.path)
    assert landed.status == 0, landed.stderr
    assert secret.show("HEAD:secret.env") == b"ENC:password=1\nENC:more\n"
    assert (secret.path / "secret.env").read_text() == "password=1\nmore\n"


def test_a_filter_that_applies_to_no_file_refuses_nothing(repo: Repo, crypt: Mapping[str, str]) -> None:
    """Such as one that is left of an earlier time."""
    for key, value in crypt.items():
        repo.git("config", key, value)
    assert run(repo.path, *SH, "true").status == 0


def test_a_resume_looks_at_the_saved_work(repo: Repo, crypt: Mapping[str, str]) -> None:
    """The agent has named the filter in a file that only its saved work has."""
    ended = run(repo.path, *SH, "echo 'secret* filter=crypt' > .gitattributes; echo x > secret.env")
    for key, value in crypt.items():
        repo.git("config", key, value)
    assert _refused(command("resume", ended.report["id"], cwd=repo.path))


def test_a_merge_looks_at_the_branch(repo: Repo, crypt: Mapping[str, str]) -> None:
    """The branch brings the first file of a filter that applied to none."""
    for key, value in crypt.items():
        repo.git("config", key, value)
    branch(repo, "aaaa", {".gitattributes": "secret* filter=crypt\n", "secret.env": "ENC:x\n"})
    assert _refused(command("merge", "aaaa", cwd=repo.path))
    assert not (repo.path / "secret.env").exists()


def _in_the_checkouts_own_file(repo: Repo, keys: Mapping[str, str]) -> None:
    repo.git("config", "extensions.worktreeConfig", "true")
    for key, value in keys.items():
        repo.git("config", "--worktree", key, value)


def _in_an_included_file(repo: Repo, keys: Mapping[str, str]) -> None:
    for key, value in keys.items():
        repo.git("config", "--file", repo.path / ".git/more", key, value)
    repo.git("config", "include.path", "more")


def _in_a_file_with_a_condition(repo: Repo, keys: Mapping[str, str]) -> None:
    _in_an_included_file(repo, keys)
    repo.git("config", "--unset", "include.path")
    repo.git("config", f"includeIf.gitdir:{repo.path}/.path", "more")


PLACES = {
    "config.worktree": _in_the_checkouts_own_file,
    "include": _in_an_included_file,
    "includeIf": _in_a_file_with_a_condition,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_filter_is_found_wherever_git_reads_it(repo: Repo, crypt: Mapping[str, str], place: str) -> None:
    """Git obeys all these files of a repository."""
    PLACES[place](repo, crypt)
    repo.write(".gitattributes", "secret* filter=crypt\n")
    repo.write("secret.env", "password=1\n")
    repo.commit("secret")
    assert repo.show("HEAD:secret.env") == b"ENC:password=1\n"
    assert _refused(command("run", *SH, "true", cwd=repo.path))


def test_the_users_filter_by_the_repositorys_attributes(repo: Repo, crypt: Mapping[str, str]) -> None:
    """``core.attributesFile`` of .git/config decides which files the user's own filter gets."""
    for key, value in crypt.items():
        repo.git("config", "--global", key, value)
    repo.git("config", "core.attributesFile", repo.write("../attributes", "secret* filter=crypt\n"))
    repo.write("secret.env", "password=1\n")
    repo.commit("secret")
    assert repo.show("HEAD:secret.env") == b"ENC:password=1\n"
    assert _refused(command("run", *SH, "true", cwd=repo.path))


def test_attributes_of_the_repository_itself(repo: Repo, crypt: Mapping[str, str]) -> None:
    """Git reads ``info/attributes``, which no commit shows."""
    for key, value in crypt.items():
        repo.git("config", key, value)
    (repo.path / ".git/info/attributes").write_text("*.txt filter=crypt\n")
    assert _refused(command("run", *SH, "true", cwd=repo.path), "file.txt")


def test_the_users_own_filter_needs_no_approval(repo: Repo, crypt: Mapping[str, str]) -> None:
    """Every git obeys the configuration of the user."""
    for key, value in crypt.items():
        repo.git("config", "--global", key, value)
    repo.write(".gitattributes", "secret* filter=crypt\n")
    repo.write("secret.env", "password=1\n")
    repo.commit("secret")
    assert run(repo.path, *SH, "cat secret.env").stdout == b"password=1\n"


@pytest.fixture
def lfs(repo: Repo) -> Repo:
    """Return a repository after ``git lfs install --local``, with a large file."""
    if shutil.which("git-lfs") is None:
        if os.environ.get("CI"):
            pytest.fail("git-lfs is not installed")
        pytest.skip("git-lfs is not installed")
    repo.git("lfs", "install", "--local", "--skip-repo")
    assert repo.git("config", "--local", "filter.lfs.required") == "true"
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.write("large.bin", "first\n")
    repo.commit("large")
    assert repo.show("HEAD:large.bin").startswith(b"version https://git-lfs")
    return repo


def test_the_lines_of_git_lfs_need_no_approval(lfs: Repo) -> None:
    """The agent has the content, the branch a pointer, and a merge brings the new content."""
    ended = run(lfs.path, *SH, "cat large.bin; echo second > large.bin; git commit -qam second")
    assert (ended.stdout, ended.warnings) == (b"first\n", [])
    landed = command("merge", ended.report["id"], cwd=lfs.path)
    assert landed.status == 0, landed.stderr
    assert lfs.show("HEAD:large.bin").startswith(b"version https://git-lfs")
    assert (lfs.path / "large.bin").read_text() == "second\n"
    assert lfs.git("status", "--porcelain", "--", ":!.ralph", ":!.gitignore") == ""


def test_a_line_that_only_looks_like_git_lfs_needs_an_approval(lfs: Repo) -> None:
    """One changed word, and none of the lines counts any more."""
    lfs.git("config", "filter.lfs.clean", "git-lfs clean -- %f; true")
    assert _refused(command("run", *SH, "true", cwd=lfs.path), "large.bin")
