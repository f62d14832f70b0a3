"""New objects apart from the repository, and the pack in which they enter it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git import create_ref, store_blob
from ralph_wrap.git.quarantine import borrow, enter, kept_tips, mend_loose, owners, pack, quarantine, release
from tests.git.repositories import git_in
from tests.support.damage import DAMAGES, damage_loose, loose_path

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

OWNER = "20260102T030405Z-00aa"


def _enter(repo: Repo, tip: str, *without: str) -> Path | None:
    """Pack a commit and bring it in; return the new pack."""
    objects = repo.path / ".git/objects"
    before = {*(objects / "pack").glob("*.pack")}
    with quarantine(objects, OWNER) as directory:
        borrow(directory, objects)
        git = git_in(repo.path)._replace(quarantine=directory, git_dir=repo.path / ".git")
        packed = pack(git, objects, [tip], without)
        if packed is None:
            return None
        enter(packed, objects, OWNER, [tip])
    [made] = {*(objects / "pack").glob("*.pack")} - before
    return made


def test_the_same_objects_have_another_name_each_time(repo: Repo) -> None:
    """A repack that has listed the first pack would delete a second one of the same name."""
    base, tip = repo.head, repo.commit("work")
    first, second = _enter(repo, tip, base), _enter(repo, tip, base)
    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()
    assert first.name != second.name
    assert len(first.stem) == len(f"pack-{tip}")
    repo.git("fsck", "--full")


def test_a_pack_is_kept_until_it_is_released(repo: Repo) -> None:
    """Also from a gc for which nothing contains its objects."""
    base, tip = repo.head, repo.commit("work")
    _enter(repo, tip, base)
    objects = repo.path / ".git/objects"
    repo.git("reset", "-q", "--hard", base)
    repo.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    assert repo.git("cat-file", "-t", tip) == "commit"
    assert (kept_tips(objects, OWNER), owners(objects)) == ({tip}, {OWNER})
    release(objects, "another")
    assert kept_tips(objects, OWNER) == {tip}
    release(objects, OWNER)
    repo.git("gc", "-q", "--prune=now")
    assert repo.git("cat-file", "-t", tip, check=False) == ""


def test_nothing_new_makes_no_pack(repo: Repo) -> None:
    """Neither a pack nor a ``.keep`` file."""
    assert _enter(repo, repo.head, repo.head) is None
    assert [*(repo.path / ".git/objects/pack").iterdir()] == []


def test_a_keep_file_without_its_pack_keeps_nothing(repo: Repo) -> None:
    """A save was killed between the two."""
    objects = repo.path / ".git/objects"
    (objects / "pack" / f"pack-{'1' * 40}.keep").write_text(f"ralph-wrap: a save of {OWNER}\n{repo.head}\n")
    assert (kept_tips(objects, OWNER), owners(objects)) == (set(), {OWNER})


def test_no_ref_changes_in_a_quarantine(repo: Repo) -> None:
    """It would name an object that the repository does not have."""
    with quarantine(repo.path / ".git/objects", OWNER) as directory:
        git = git_in(repo.path)._replace(quarantine=directory)
        borrow(directory, repo.path / ".git/objects")
        with pytest.raises(GitError, match="quarantine"):
            create_ref(git, "refs/heads/new", repo.head, "no")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_loose_object_is_mended(repo: Repo, how: str) -> None:
    """By the whole copy that git stores where it finds no other one; what is missing is not added."""
    content = os.urandom(3 << 20)
    oid = store_blob(git_in(repo.path), content)
    damage_loose(repo, oid, how)
    objects = repo.path / ".git/objects"
    with quarantine(objects, OWNER) as directory:
        store_blob(git_in(repo.path)._replace(quarantine=directory), content)
        mend_loose(directory, objects)
    assert loose_path(repo, oid).exists() == (how != "missing")
    if how != "missing":
        repo.git("fsck", "--full")
