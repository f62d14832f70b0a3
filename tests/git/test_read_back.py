"""Every new object of some commits and tags is read back, and each kind of damage is found."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.safe.common_dir import SafeCommonDirs
from tests.git.repositories import git_in
from tests.support.damage import DAMAGES, damaged, objects_of, pack
from tests.support.repo import Repo


class History(NamedTuple):
    """A base, two commits on it, and a tag that names a tag that names the last one."""

    repo: Repo
    base: str
    middle: str
    tip: str
    tag: str

    def oid(self, name: str) -> str:
        """Return the id that a name has in this repository."""
        return self.repo.git("rev-parse", name)

    def damage(self) -> str | None:
        """Return what is damaged of all that is newer than the base."""
        return find_damage(git_in(self.repo.path), [self.tag, self.tip], [self.base])


def _write_history(repo: Repo) -> History:
    repo.write("deep/er/still/file", "one\n" * 20)
    base = repo.commit()
    repo.write("deep/er/still/file", "two\n" * 20)
    repo.write("only-here.txt", "three\n" * 20)
    middle = repo.commit()
    (repo.path / "only-here.txt").unlink()
    repo.write("last.txt", "four\n" * 20)
    tip = repo.commit()
    repo.git("tag", "-a", "-m", "inner", "inner")
    repo.git("tag", "-a", "-m", "outer", "outer", "inner")
    return History(repo, base, middle, tip, repo.git("rev-parse", "outer"))


@pytest.fixture
def history(repo: Repo) -> History:
    """Return a history whose objects are loose."""
    return _write_history(repo)


def test_objects_are_read_with_a_copy_of_the_common_directory(history: History, tmp_path: Path) -> None:
    """Its file ``shallow`` is a link to that of the repository, which most repositories lack."""
    environ = git_environment({**os.environ, "XDG_STATE_HOME": os.fspath(tmp_path / "state")})
    common_dir = history.repo.path / ".git"
    git = Git(history.repo.path, environ, git_dir=common_dir, safe=SafeCommonDirs(environ, common_dir))
    assert find_damage(git, [history.tip], [history.base]) is None


OBJECTS = {
    "blob at the tip": "HEAD:last.txt",
    "blob in the middle": "HEAD~1:only-here.txt",
    "blob deep in the tree": "HEAD:deep/er/still/file",
    "tree at the tip": "HEAD^{tree}",
    "tree in the middle": "HEAD~1^{tree}",
    "tree deep in the tree": "HEAD:deep/er/still",
    "commit at the tip": "HEAD",
    "commit in the middle": "HEAD~1",
    "tag at the tip": "outer",
    "tag in the middle": "inner",
}


def _named(found: str | None, oid: str, how: str) -> bool:
    verb = "missing" if how == "missing" else "damaged"
    return (
        found is not None
        and re.search(rf"(object|blob|tree|commit|tag) {oid}\b.* is {verb}", found) is not None
    )


@pytest.mark.parametrize("name", OBJECTS.values(), ids=OBJECTS.keys())
def test_each_damage_of_a_loose_object_is_found(history: History, name: str) -> None:
    """The object is named; when it is whole again, nothing is found."""
    oid = history.oid(name)
    found = {}
    for how in DAMAGES:
        with damaged(history.repo, oid, how):
            found[how] = history.damage()
    assert [how for how in DAMAGES if not _named(found[how], oid, how)] == [], found
    assert history.damage() is None


@pytest.mark.parametrize("name", OBJECTS.values(), ids=OBJECTS.keys())
def test_each_damage_of_a_packed_object_is_found(history: History, name: str) -> None:
    """Also if the checksums of the pack and of its index are right."""
    oid, objects = history.oid(name), objects_of(history.repo)
    found = {}
    for how in DAMAGES:
        pack(history.repo, objects, oid, how)
        found[how] = history.damage()
    assert [how for how in DAMAGES if not _named(found[how], oid, how)] == [], found
    pack(history.repo, objects)
    assert history.damage() is None
