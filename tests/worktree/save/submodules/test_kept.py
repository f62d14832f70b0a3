"""Where a submodule cannot be saved, the worktree stays."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.git.quarantine import borrow
from ralph_wrap.worktree.save import copy_commits
from tests.support.repo import Repo, make_repo
from tests.support.submodules import ALLOWED, SUB, Project, held, inside, make_project
from tests.support.trees import Tree, on_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.worktree.save.submodules.states import detached, reason_to_keep, refs_of, repository


def _nested_repository(tree: Tree) -> None:
    make_repo(tree.path / SUB / "inner")


def _nested_and_ignored(tree: Tree) -> None:
    inside(tree).write(".gitignore", "build/\n")
    make_repo(tree.path / SUB / "build" / "inner")


def _staged_without_files(tree: Tree) -> None:
    inside(tree).write("staged", "s\n")
    inside(tree).git("add", "staged")
    shutil.rmtree(tree.path / SUB)
    (tree.path / SUB).mkdir()


def _another_worktree(tree: Tree) -> None:
    inside(tree).git("worktree", "add", "-q", "--detach", tree.path.parent / "beside")


def _patches(tree: Tree) -> None:
    (repository(tree) / "rebase-apply").mkdir()
    (repository(tree) / "rebase-apply" / "applying").touch()


def _unknown_file(tree: Tree) -> None:
    (repository(tree) / "annex").mkdir()


def _large_files(tree: Tree) -> None:
    directory = repository(tree) / "lfs" / "objects" / "ab" / "cd"
    directory.mkdir(parents=True)
    (directory / "abcd").write_text("large\n")


def _file_beside(tree: Tree) -> None:
    (tree.linked.registration / "modules" / "precious").write_text("p\n")


def _symlink(tree: Tree) -> None:
    moved = tree.path.parent / "moved"
    repository(tree).rename(moved)
    repository(tree).symlink_to(moved)


def _two_directories(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    shutil.copytree(tree.path / SUB, tree.path / "vendor" / "y")
    oid = inside(tree).head
    tree.inside.git("update-index", "--add", "--cacheinfo", f"160000,{oid},vendor/y")


def _out_of_the_index(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    tree.inside.git("rm", "-q", "--cached", SUB)


def _broken_ref(tree: Tree) -> None:
    (repository(tree) / "refs" / "heads" / "broken").write_text("1" * 40 + "\n")


def _ref_to_a_file(tree: Tree) -> None:
    sub = inside(tree)
    sub.git("update-ref", "refs/precious", sub.git("hash-object", "-w", "file.txt"))


def _without_index(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    (repository(tree) / "index").write_bytes(b"garbage")


def _in_its_own_directory(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    (tree.path / SUB / ".git").unlink()
    shutil.move(repository(tree), tree.path / SUB / ".git")
    inside(tree).git("config", "--unset", "core.worktree")
    (tree.linked.registration / "modules" / "rest").mkdir(parents=True)


KEEPING: dict[Callable[[Tree], None], str] = {
    _nested_repository: "submodule vendor/x: nested repository inner cannot be saved",
    _nested_and_ignored: "submodule vendor/x: nested repository build/inner cannot be saved",
    _staged_without_files: "its directory is gone, and something is staged",
    _another_worktree: "submodule vendor/x: another worktree belongs to it",
    _patches: "git am is in progress",
    _unknown_file: "submodule vendor/x: annex in its repository is unknown",
    _large_files: "submodule vendor/x: large files of git-lfs are nowhere else",
    _file_beside: "modules/precious belongs to no repository",
    _symlink: "is a symlink",
    _two_directories: "two directories share modules/vendor/x: vendor/x, vendor/y",
    _out_of_the_index: "nested repository vendor/x cannot be saved",
    _broken_ref: "submodule vendor/x: it cannot be saved",
    _ref_to_a_file: "submodule vendor/x: refs/precious names a blob",
    _without_index: "submodule vendor/x: the index cannot be read",
    _in_its_own_directory: "nested repository vendor/x cannot be saved",
}


@pytest.mark.parametrize("state", KEEPING, ids=lambda state: state.__name__.strip("_"))
def test_what_cannot_be_saved_keeps_the_worktree(tree: Tree, state: Callable[[Tree], None]) -> None:
    """With a line that names the submodule."""
    state(tree)
    before = on_disk(tree.path)
    assert KEEPING[state] in reason_to_keep(tree)
    assert on_disk(tree.path) == before


def test_a_shallow_clone_with_work_keeps_the_worktree(tmp_path: Path) -> None:
    """A complete repository cannot take a commit whose parents are missing."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree(initialised=False)
    url = f"file://{project.upstream.path}"
    update = ("submodule", "--quiet", "update", "--init", "--depth", "1")
    project.upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    tree.inside.git(*ALLOWED, "-c", f"submodule.{SUB}.url={url}", *update)
    assert (repository(tree) / "shallow").exists()
    inside(tree).commit("work")
    assert "submodule vendor/x: it cannot be saved: it is a shallow clone" in reason_to_keep(tree)
    assert held(project.repo) == {}
    assert project.repo.git("fsck", "--no-dangling") == ""


def test_objects_that_do_not_come_keep_the_worktree(
    project: Project, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ref is made before every object has come, not only the commits."""

    def pack_commits(store: git.Git, objects: Path, wanted: tuple[str, ...], _: object) -> Path:
        assert store.quarantine is not None
        packed = store.quarantine / "packed"
        (packed / "pack").mkdir(parents=True)
        borrow(packed, objects)
        oids = "".join(f"{oid}\n" for oid in wanted).encode()
        git.run_git(store, "pack-objects", "-q", packed / "pack" / "pack", stdin=oids)
        return packed

    detached(inside(tree))
    before = refs_of(project.store)
    monkeypatch.setattr(copy_commits, "pack", pack_commits)
    assert "submodule vendor/x: it cannot be saved" in reason_to_keep(tree)
    assert refs_of(project.store) == before


def test_keeping_dirty_work_counts_that_in_submodules(project: Project, tree: Tree) -> None:
    """The worktree stays, as was asked for."""
    inside(tree).write("new", "n\n")
    outcome = tree.finish(keep_dirty=True)
    assert (outcome.kept, outcome.asked) == ("submodule vendor/x: 1 uncommitted path", True)
    assert held(project.store) == {}


def test_a_store_that_borrows_from_the_submodule_is_none(project: Project, tree: Tree) -> None:
    """What it seems to have would go."""
    commit = inside(tree).commit("work")
    alternates = project.store.path / "objects" / "info" / "alternates"
    alternates.write_text(f"{repository(tree)}/objects\n")
    project.store.git("update-ref", "refs/heads/seems", commit)
    assert tree.finish().kept is None
    assert commit in held(project.repo).values()


@pytest.mark.parametrize(("length", "saved"), [(40, False), (39, True)])
def test_a_commit_that_was_cloned_is_known_by_its_whole_id(tree: Tree, *, length: int, saved: bool) -> None:
    """Of a file that was cut short, what is left of the last line may be the beginning of any other one."""
    commit = inside(tree).commit("work")
    (repository(tree) / "ralph-wrap-cloned").write_text(commit[:length])
    assert tree.finish().kept is None
    store = Repo(tree.repo.path / ".git" / "modules" / SUB)
    assert (commit in held(store).values()) is saved
