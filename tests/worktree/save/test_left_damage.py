"""Damage in what a session has left: commits that HEAD does not name, earlier saves, and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save.commits import drop_lost_snapshots
from tests.support.damage import DAMAGES, damage_loose, loose_path
from tests.support.trees import ID, WIP, Tree
from tests.worktree.save.test_beside_gc import (
    OutOfTime,
    Prune,
    assert_whole,
    git_at,
    take_snapshot,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

_SOME = ("missing", "empty", "flipped byte")


def _left_branch(tree: Tree) -> None:
    """HEAD is on another branch, from the base."""
    tree.inside.git("checkout", "-q", "-b", "side", tree.linked.base)


def _left_branch_without_reflog(tree: Tree) -> None:
    """Only the session's branch names the commit."""
    _left_branch(tree)
    tree.inside.git("reflog", "expire", "--expire=all", "HEAD")
    (tree.linked.registration / "ORIG_HEAD").unlink(missing_ok=True)


def _on_another_branch(tree: Tree) -> None:
    """Have a commit on another branch, and in a ref of the worktree."""
    tip = tree.inside.git("rev-parse", "HEAD")
    tree.inside.git("branch", "other", tip)
    tree.inside.git("reset", "-q", "--hard", tree.linked.base)
    tree.inside.git("reflog", "expire", "--expire=all", "HEAD")
    tree.inside.git("update-ref", "refs/worktree/own", tip)


_AWAY = (_left_branch, _left_branch_without_reflog, _on_another_branch)


@pytest.mark.parametrize("leave", _AWAY)
@pytest.mark.parametrize("how", _SOME)
def test_damage_in_a_commit_that_head_has_left_keeps_the_worktree(
    tree: Tree, leave: Callable[[Tree], None], how: str
) -> None:
    """It is on a branch, so it needs no ref, but the session made it."""
    tree.inside.write("a.txt", "only here\n" * 20)
    tree.inside.commit("work")
    blob = tree.inside.git("rev-parse", "HEAD:a.txt")
    leave(tree)
    damage_loose(tree.repo, blob, how)
    outcome = tree.finish()
    assert outcome.later
    assert blob in str(outcome.kept)
    assert tree.path.exists()


@pytest.mark.parametrize("leave", _AWAY)
def test_a_prune_takes_no_commit_that_head_has_left(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: Callable[[Tree], None]
) -> None:
    """The prune has looked before the commit, and deletes it once the save has a pack."""
    ran = Prune(tree.repo, tmp_path).git_that_is_beside(monkeypatch, "worktree", once_packed=True)
    tree.inside.write("a.txt", "only here\n")
    tip = tree.inside.commit("work")
    leave(tree)
    tree.inside.write("new.txt", "new\n")
    assert tree.finish().kept is None
    assert ran.exists()
    assert tree.repo.git("show", f"{tip}:a.txt") == "only here"
    assert_whole(tree.repo)


@pytest.mark.parametrize("how", ["empty", "other content"])
@pytest.mark.parametrize("name", ["ORIG_HEAD", "refs/worktree/own", "rebase-merge/stopped-sha"])
def test_a_damaged_commit_that_only_the_registration_names_keeps_the_worktree(
    tree: Tree, name: str, how: str
) -> None:
    """It would be gone with the registration, and a mended object then has no name."""
    tip = tree.inside.git("commit-tree", "-m", "work " * 50, "HEAD^{tree}")
    path = tree.linked.registration / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{tip}\n")
    damage_loose(tree.repo, tip, how)
    outcome = tree.finish()
    assert tip in str(outcome.kept)
    assert tree.path.exists()


@pytest.mark.parametrize("how", _SOME)
@pytest.mark.parametrize("lost", [WIP, f"{WIP}^{{tree}}", f"{WIP}:new.txt", "main:dir/tracked.txt"])
def test_no_damage_takes_the_name_of_saved_work(tree: Tree, lost: str, how: str) -> None:
    """An earlier save goes only if its commit is missing; else it keeps a ref, and the new one has one."""
    tree.inside.write("new.txt", "old\n")
    assert tree.finish(cancel=OutOfTime()).later
    before = tree.repo.git("rev-parse", WIP)
    oid = tree.repo.git("rev-parse", lost)
    unpack(tree.repo)
    damage_loose(tree.repo, oid, how)
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert outcome.saved.ref is not None
    assert tree.repo.git("show", f"{outcome.saved.ref}:new.txt") == "new"
    is_gone = (lost, how) == (WIP, "missing")
    refs = tree.repo.git("for-each-ref", "--format=%(objectname)").split()
    assert (before in refs) != is_gone
    if is_gone:
        assert outcome.saved.branch == WIP
        assert_whole(tree.repo)


def _drop(tree: Tree) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return which refs of lost snapshots were dropped, and what is damaged."""
    dropped: list[tuple[str, str]] = []
    witnesses = [tree.linked.base, tree.repo.git("rev-parse", f"ralph/{ID}")]
    damaged = drop_lost_snapshots(
        git_at(tree.repo), ID, witnesses, lambda ref, oid: dropped.append((ref, oid)), complete=True
    )
    return dropped, damaged


def _two_snapshots(tree: Tree) -> tuple[str, str]:
    tree.inside.write("new.txt", "first\n")
    first = take_snapshot(tree, 1)
    tree.inside.write("new.txt", "second\n")
    return first, take_snapshot(tree, 2)


def _our_refs(repo: Repo) -> list[str]:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/").split()


def test_a_snapshot_whose_commit_is_missing_is_dropped(tree: Tree) -> None:
    """Git would fail at its ref. The whole one stays, and the work can be saved."""
    lost, whole = _two_snapshots(tree)
    oid = tree.repo.git("rev-parse", lost)
    loose_path(tree.repo, oid).unlink()
    assert tree.finish().kept is None
    assert _drop(tree) == ([(lost, oid)], ())
    assert _our_refs(tree.repo) == [whole]
    assert_whole(tree.repo)


@pytest.mark.parametrize(
    ("lost", "how"),
    [
        *(("", how) for how in DAMAGES if how != "missing"),
        *((below, how) for below in ("^{tree}", ":new.txt") for how in _SOME),
    ],
)
def test_a_damaged_snapshot_stays(tree: Tree, lost: str, how: str) -> None:
    """Only a commit that is missing is beyond repair; everything else is said, and no ref goes."""
    damaged, whole = _two_snapshots(tree)
    oid = tree.repo.git("rev-parse", f"{damaged}{lost}")
    damage_loose(tree.repo, oid, how)
    assert tree.finish().kept is None
    dropped, lines = _drop(tree)
    assert dropped == []
    assert [(line.partition(":")[0], oid in line) for line in lines] == [(damaged, True)]
    assert _our_refs(tree.repo) == [damaged, whole]


def _foreign_pack(repo: Repo) -> None:
    for suffix in ("pack", "idx"):
        (repo.path / ".git/objects/pack" / f"pack-{'a' * 40}.{suffix}").write_text("x\n")


def _alternate_away(repo: Repo) -> None:
    (repo.path / ".git/objects/info/alternates").write_text("/nowhere/objects\n")


def _base_away(repo: Repo) -> None:
    loose_path(repo, repo.git("rev-parse", "main")).unlink()


@pytest.mark.parametrize("trouble", [_foreign_pack, _alternate_away, _base_away])
def test_no_snapshot_is_dropped_while_git_may_not_see_every_object(
    tree: Tree, trouble: Callable[[Repo], None]
) -> None:
    """Git says missing, too, where a pack is damaged or a directory of objects is not there."""
    lost, whole = _two_snapshots(tree)
    path = loose_path(tree.repo, tree.repo.git("rev-parse", lost))
    content = path.read_bytes()
    path.unlink()
    dropped: list[str] = []
    witnesses = [tree.linked.base]
    trouble(tree.repo)
    drop_lost_snapshots(git_at(tree.repo), ID, witnesses, lambda ref, _oid: dropped.append(ref))
    assert dropped == []
    path.write_bytes(content)
    assert _our_refs(tree.repo) == [lost, whole]
