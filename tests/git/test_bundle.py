"""Bundles: what is taken in from one was read back, and what is there already, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches.intake import import_bundles
from ralph_wrap.errors import GitError
from ralph_wrap.git.bundle import unpack, write_bundle
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.state.project import find_project
from tests.git.repositories import git_in
from tests.support.damage import damage_loose
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Collection

REF = "refs/heads/ralph/ce6a"
SESSION = "20261125T034251Z-ce6a"


def _grow(repo: Repo) -> str:
    repo.write("deep/er/file", "deep\n" * 20)
    repo.write("file.txt", "two\n" * 20)
    return repo.commit()


def _bundle_without(repo: Repo, base: str, tip: str, without: Collection[str]) -> bytes:
    """Return a bundle as git writes it, but for some objects."""
    listed = repo.git("rev-list", "--objects", tip, f"^{base}").split("\n")
    oids = [oid for oid, *_ in (line.split() for line in listed) if oid not in without]
    pack = subprocess.run(
        ("git", "pack-objects", "--stdout", "-q"),
        cwd=repo.path,
        input="\n".join(oids).encode(),
        capture_output=True,
        check=True,
    ).stdout
    return f"# v2 git bundle\n-{base}\n{tip} {REF}\n\n".encode() + pack


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped byte"])
@pytest.mark.parametrize("name", ["HEAD", "HEAD^{tree}", "HEAD:deep/er/file", "HEAD:file.txt"])
def test_what_a_bundle_leaves_to_the_repository_is_read_back(repo: Repo, how: str, name: str) -> None:
    """The repository has the object, but it is damaged there."""
    base, tip = repo.head, _grow(repo)
    oid, objects = repo.git("rev-parse", name), repo.path / ".git/objects"
    path = repo.write("bundle", _bundle_without(repo, base, tip, [oid]))
    quarantines = [objects / "first", objects / "second"]
    for quarantine in quarantines:
        quarantine.mkdir()
    assert unpack(git_in(repo.path), objects, path, quarantines[0]).refs == {REF: tip}
    damage_loose(repo, oid, how)
    with pytest.raises(GitError, match=f"{oid}|{oid[:2]}/{oid[2:]}"):  # git names the file
        unpack(git_in(repo.path), objects, path, quarantines[1])


@pytest.fixture
def bundle(repo: Repo, tmp_path: Path) -> Path:
    """Return the bundle of a session that has ended."""
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", repo.path, clone.path)
    path = repo.path / ".ralph/run/bundles" / f"{SESSION}.bundle"
    path.parent.mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    write_bundle(git_in(clone.path), path, repo.head, {REF: _grow(clone)}, scratch)
    return path


def _take_in(repo: Repo) -> list[tuple[str, ...]]:
    return [taken.refs for taken in import_bundles(find_project(repo.path, os.environ))]


def test_a_bundle_goes_once_its_work_is_in_the_repository(repo: Repo, bundle: Path) -> None:
    """The next command deletes it."""
    assert _take_in(repo) == [(REF, "refs/ralph/clones/ce6a")]
    assert bundle.exists()
    assert _take_in(repo) == []
    assert not bundle.exists()


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "flipped"])
def test_a_bundle_stays_until_its_work_is_whole_in_the_repository(repo: Repo, bundle: Path, how: str) -> None:
    """It was the last whole copy. It is taken in again, unless git refuses that beside a damaged object."""
    _take_in(repo)
    [pack] = (repo.path / ".git/objects/pack").glob("*.pack")
    content = pack.read_bytes()
    pack.chmod(0o600)
    if how == "missing":
        pack.unlink()
        pack.with_suffix(".idx").unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        pack.write_bytes({"empty": b"", "truncated": content[:middle], "flipped": flipped}[how])
    assert find_damage(git_in(repo.path), [REF]) is not None
    [taken] = import_bundles(find_project(repo.path, os.environ))
    assert bundle.exists()
    assert (taken.problem is None) == (find_damage(git_in(repo.path), [REF]) is None)
    if taken.problem is not None:
        pack.unlink()
        pack.with_suffix(".idx").unlink()
        _take_in(repo)
    _take_in(repo)
    assert (find_damage(git_in(repo.path), [REF]), bundle.exists()) == (None, False)
