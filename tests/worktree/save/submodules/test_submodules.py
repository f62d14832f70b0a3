"""The repository of a submodule goes with the worktree's registration, so it is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.repo import Repo
from tests.support.submodules import NESTED, SUB, Project, held, inside, make_project
from tests.support.trees import Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.worktree.save.submodules.states import detached, found, on_a_branch, refs_of, stashed

# Commits and files that are not the agent's


def test_an_unchanged_submodule_goes(project: Project, tree: Tree) -> None:
    """The main checkout has all of it; nothing new is anywhere."""
    before = refs_of(project.store), refs_of(project.repo)
    assert tree.finish().kept is None
    assert not tree.path.exists()
    assert not (project.repo.path / ".git" / "worktrees").exists()
    assert (refs_of(project.store), refs_of(project.repo)) == before


def test_one_that_only_its_origin_has_is_kept_in_the_project(tmp_path: Path) -> None:
    """The project cannot know what of an agent's own clone is elsewhere; a remote may be gone tomorrow."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree()
    head = inside(tree).head
    assert tree.finish().kept is None
    assert (
        project.repo.git("merge-base", "--is-ancestor", head, "refs/ralph/snapshots/00aa/submodule-1") == ""
    )


def test_a_submodule_that_is_not_initialised_is_nothing(project: Project) -> None:
    """As before there were any."""
    tree = project.tree(initialised=False)
    outcome = tree.finish()
    assert (outcome.kept, outcome.saved and outcome.saved.inner) == (None, ())


# What an agent may leave: each state with what must be found again


def _dirty(sub: Repo) -> dict[str, bytes]:
    sub.write("file.txt", "changed\n")
    return {"file.txt": b"changed\n"}


def _untracked(sub: Repo) -> dict[str, bytes]:
    sub.write("a/new file\n", b"\0\xff")
    return {"a/new file\n": b"\0\xff"}


def _staged_and_gone(sub: Repo) -> dict[str, bytes]:
    sub.write("only-staged", "precious\n")
    sub.git("add", "only-staged")
    (sub.path / "only-staged").unlink()
    return {"only-staged": b"precious\n"}


def _flagged(sub: Repo) -> dict[str, bytes]:
    sub.git("update-index", "--assume-unchanged", "file.txt")
    sub.write("file.txt", "hidden\n")
    return {"file.txt": b"hidden\n"}


def _skipped(sub: Repo) -> dict[str, bytes]:
    sub.git("update-index", "--skip-worktree", "file.txt")
    sub.write("file.txt", "hidden\n")
    return {"file.txt": b"hidden\n"}


def _unseen(sub: Repo) -> dict[str, bytes]:
    sub.git("config", "status.showUntrackedFiles", "no")
    sub.git("config", "core.checkStat", "minimal")
    sub.write("unseen", "unseen\n")
    return {"unseen": b"unseen\n"}


def _tagged(sub: Repo) -> dict[str, bytes]:
    sub.write("work", "tagged\n")
    sub.commit("tagged")
    sub.git("tag", "-a", "-m", "words of a tag", "v1")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"tagged\n"}


def _reset_away(sub: Repo) -> dict[str, bytes]:
    sub.write("work", "reset away\n")
    sub.commit("reset away")
    sub.git("reset", "-q", "--hard", "HEAD~1")
    return {"work": b"reset away\n"}


def _fetched_away(sub: Repo) -> dict[str, bytes]:
    """Have a remote-tracking branch name a commit that no remote has."""
    sub.write("work", "not pushed\n")
    sub.commit("not pushed")
    sub.git("update-ref", "refs/remotes/origin/feature", "HEAD")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"not pushed\n"}


def _merging(sub: Repo) -> dict[str, bytes]:
    for name in ("one", "two"):
        sub.git("checkout", "-q", "-b", name, "origin/main")
        sub.write("file.txt", f"branch {name}\n")
        sub.commit(name)
    sub.git("merge", "one", check=False)
    sub.write("resolved", "half way\n")
    sub.git("add", "resolved")
    assert b"<<<<<<<" in (sub.path / "file.txt").read_bytes()
    return {"file.txt": (sub.path / "file.txt").read_bytes(), "resolved": b"half way\n"}


def _noted(sub: Repo) -> dict[str, bytes]:
    sub.git("notes", "add", "-m", "a note", "HEAD")
    return {sub.head: b"a note\n"}


def _unborn(sub: Repo) -> dict[str, bytes]:
    sub.git("checkout", "-q", "--orphan", "fresh")
    sub.write("file.txt", "no parent\n")
    return {"file.txt": b"no parent\n"}


STATES = [
    _dirty,
    _untracked,
    _staged_and_gone,
    _flagged,
    _skipped,
    _unseen,
    detached,
    on_a_branch,
    _tagged,
    stashed,
    _reset_away,
    _fetched_away,
    _merging,
    _noted,
    _unborn,
]


@pytest.mark.parametrize(
    ("location", "checked_out"),
    [(SUB, True), (SUB, False), (NESTED, True)],
    ids=["cloned", "bare", "deep"],
)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
def test_whatever_is_left_in_a_submodule_is_found_again(
    tmp_path: Path, state: Callable[[Repo], dict[str, bytes]], location: str, *, checked_out: bool
) -> None:
    """Reachable by a ref, for good, from a repository that stays; and no part of it is missing there."""
    project = make_project(tmp_path / "world", checked_out=checked_out)
    tree = project.tree()
    left = state(inside(tree, location))
    outcome = tree.finish()
    assert outcome.kept is None
    assert not tree.path.exists()
    store = project.repo
    if checked_out:
        store = project.store if location == SUB else Repo(project.store.path / "modules" / "deep")
    store.git("reflog", "expire", "--expire=all", "--all")
    store.git("-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now")
    assert {path: content in found(store, path) for path, content in left.items()} == dict.fromkeys(
        left, True
    )
    assert store.git("fsck", "--connectivity-only", "--no-dangling") == ""


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
def test_work_that_is_not_saved_is_nowhere_else(
    tmp_path: Path, state: Callable[[Repo], dict[str, bytes]]
) -> None:
    """The control for the test above: before the end, no repository that stays has any of it."""
    project = make_project(tmp_path / "world")
    left = state(inside(project.tree()))
    for store in (project.repo, project.store):
        assert [path for path, content in left.items() if content in found(store, path)] == []


def test_the_message_of_a_tag_is_saved(project: Project, tree: Tree) -> None:
    """It is an object of its own."""
    _tagged(inside(tree))
    tree.finish()
    assert any(b"words of a tag" in project.store.show(oid) for oid in held(project.store).values())
