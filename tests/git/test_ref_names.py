"""The names of refs in the files of a repository: those that git lists, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.pointer import names_below
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

TOPS = ("refs/heads/ralph", "refs/ralph")
NAMES = ("heads/ralph/a3f2", "heads/ralph/a3f2-wip", "ralph/snapshots/a3f2/1", "ralph/pool/x", "heads/ralphs")


def _names(repo: Repo) -> set[str]:
    names = names_below(repo.path / ".git", *TOPS)
    assert names is not None
    return set(names.decode().splitlines())


def _listed(repo: Repo) -> set[str]:
    return set(repo.git("for-each-ref", "--format=%(refname)", *TOPS).splitlines())


@pytest.mark.parametrize("packed", [0, 2, len(NAMES)])
def test_they_are_those_of_git(repo: Repo, packed: int) -> None:
    """Each is in a file of its own, in packed-refs, or in both."""
    for name in NAMES[:packed]:
        repo.git("update-ref", f"refs/{name}", "HEAD")
    repo.git("pack-refs", "--all")
    for name in NAMES[max(packed - 1, 0) :]:
        repo.git("update-ref", f"refs/{name}", "HEAD~0")
    repo.git("update-ref", "-d", f"refs/{NAMES[0]}")
    assert _names(repo) == _listed(repo) == {f"refs/{name}" for name in NAMES[1:4]}


def test_there_may_be_none(repo: Repo) -> None:
    """A branch with the name of the directory is not below it."""
    assert _names(repo) == set()
    repo.git("branch", "ralph")
    assert _names(repo) == _listed(repo) - {"refs/heads/ralph"} == set()


def test_no_moment_of_a_pack_refs_hides_one(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git packs a ref after we have looked for its file, or before we look into packed-refs."""
    repo.git("update-ref", "refs/heads/ralph/a3f2", "HEAD")
    read = files.read

    def late(path: Path, limit: int) -> bytes:
        repo.git("pack-refs", "--all")
        return read(path, limit)

    monkeypatch.setattr(files, "read", late)
    assert _names(repo) == {"refs/heads/ralph/a3f2"}


def _link_directory(git_dir: Path) -> None:
    (git_dir / "refs" / "ralph" / "link").symlink_to(git_dir / "refs" / "heads")


def _make_unreadable(git_dir: Path) -> None:
    (git_dir / "packed-refs").mkdir()


def _damage(git_dir: Path) -> None:
    (git_dir / "packed-refs").write_text("garbage\n")


def _add_reftable(git_dir: Path) -> None:
    (git_dir / "reftable").mkdir()


@pytest.mark.parametrize("disturb", [_link_directory, _make_unreadable, _damage, _add_reftable])
def test_where_only_git_knows_there_is_no_answer(repo: Repo, disturb: Callable[[Path], None]) -> None:
    """No ref may be overlooked."""
    repo.git("update-ref", "refs/ralph/pool/x", "HEAD")
    disturb(repo.path / ".git")
    assert names_below(repo.path / ".git", *TOPS) is None
