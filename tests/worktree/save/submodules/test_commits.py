"""The commit of a worktree and those of its submodules."""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import make_repo
from tests.support.submodules import ALLOWED, NESTED, SUB, Project, held, inside, make_project
from tests.support.trees import ID, WIP, Tree

if TYPE_CHECKING:
    from pathlib import Path

from tests.worktree.save.submodules.states import detached, found, reason_to_keep, repository, stashed


def test_the_files_and_the_index_are_one_commit(project: Project, tree: Tree) -> None:
    """As those of the worktree itself are."""
    sub = inside(tree)
    sub.write("file.txt", "staged\n")
    sub.git("add", "file.txt")
    sub.write("file.txt", "on disk\n")
    shutil.rmtree(tree.path / NESTED)
    (tree.path / NESTED).mkdir()
    head = sub.head
    tree.finish()
    (ref,) = held(project.store).values()
    assert project.store.show(f"{ref}:file.txt") == b"on disk\n"
    assert project.store.show(f"{ref}^2:file.txt") == b"staged\n"
    assert project.store.git("rev-parse", f"{ref}^1") == head


def test_the_commit_of_the_worktree_names_one_that_is_there(project: Project, tree: Tree) -> None:
    """``git submodule update`` in the main checkout, on the agent's branch, gets what the agent committed."""
    sub = inside(tree)
    sub.write("work", "committed\n")
    sub.commit("in the submodule")
    tree.inside.commit("another submodule")
    assert tree.finish().kept is None
    project.repo.git("checkout", "-q", f"ralph/{ID}")
    project.repo.git("submodule", "--quiet", "update")
    assert (project.repo.path / SUB / "work").read_text() == "committed\n"


def test_an_uncommitted_step_to_another_commit_is_saved(project: Project, tree: Tree) -> None:
    """In the worktree's own saved work."""
    commit = inside(tree).commit("in the submodule")
    assert tree.finish().kept is None
    assert project.repo.git("rev-parse", f"{WIP}:{SUB}") == commit


def test_files_below_a_submodule_are_not_the_worktrees(project: Project, tree: Tree) -> None:
    """A file in it is no file of the project."""
    inside(tree).write("new", "n\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert (outcome.saved.branch, outcome.saved.paths) == (None, (f"{SUB}/new",))
    assert WIP not in project.repo.branches()


def test_ignored_files_in_a_submodule_are_counted(tree: Tree) -> None:
    """They go with it, so the message counts them."""
    inside(tree).write("a.ignored", "x\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert (outcome.saved.ignored, outcome.saved.ignored_files) == ((f"{SUB}/a.ignored",), 1)


def test_a_submodule_that_the_agent_added(project: Project, tree: Tree, tmp_path: Path) -> None:
    """No other repository has it; its commits go where the project's are."""
    other = make_repo(tmp_path / "other")
    tree.inside.git(*ALLOWED, "submodule", "--quiet", "add", other.path, "added")
    inside(tree, "added").write("mine", "m\n")
    commit = inside(tree, "added").commit("mine")
    assert tree.finish().kept is None
    assert project.repo.git("rev-parse", f"{WIP}:added") == commit
    assert project.repo.show(f"{commit}:mine") == b"m\n"


def test_a_submodule_whose_directory_is_gone(project: Project, tree: Tree) -> None:
    """Its commits are saved all the same."""
    commit = inside(tree).commit("work")
    tree.inside.git("submodule", "--quiet", "deinit", "--force", "--all")
    assert tree.finish().kept is None
    assert commit in held(project.store).values()


def test_a_conflict_about_the_commit_of_a_submodule(project: Project, tree: Tree) -> None:
    """Both sides and what the agent has there are saved."""
    sub = inside(tree)
    commits = []
    for name in ("side", f"ralph/{ID}"):
        tree.inside.git("checkout", "-q", *(["-b"] if name == "side" else []), name)
        sub.git("checkout", "-q", "--detach", "origin/main")
        sub.write(name, "x\n")
        commits.append(sub.commit(name))
        tree.inside.git("commit", "-qam", name)
    tree.inside.git("merge", "side", check=False)
    assert len(tree.inside.git("ls-files", "--unmerged").splitlines()) == 3
    sub.write("new", "n\n")
    assert tree.finish().kept is None
    assert found(project.store, "new") == {b"n\n"}
    assert {*commits} <= {*project.store.git("rev-list", "--all").splitlines()}


def test_work_on_a_shallow_clone_of_a_shallow_clone(tmp_path: Path) -> None:
    """Where the repository that stays ends in the same place, it can take what stands on that."""
    project = make_project(tmp_path / "world", checked_out=False)
    project.upstream.commit("not the first")
    head = project.upstream.head
    project.repo.git("update-index", "--cacheinfo", f"160000,{head},{SUB}")
    project.repo.git("commit", "-q", "-m", "not the first")
    url = f"file://{project.upstream.path}"
    update = (*ALLOWED, "-c", f"submodule.{SUB}.url={url}", "submodule", "--quiet", "update", "--init")
    project.repo.git(*update, "--depth", "1")
    tree = project.tree(initialised=False)
    tree.inside.git(*update, "--depth", "1")
    assert (project.store.path / "shallow").read_text() == (repository(tree) / "shallow").read_text()
    detached(inside(tree))
    assert tree.finish().kept is None
    assert found(project.store, "work") == {b"detached\n"}
    assert project.store.git("fsck", "--no-dangling") == ""


def test_saving_again_makes_nothing_new(
    project: Project, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session killed after the save is followed by a sweep that saves the same."""
    stashed(inside(tree))
    inside(tree).write("new", "n\n")
    remove = import_module("ralph_wrap.worktree.remove")
    with monkeypatch.context() as patch:
        patch.setattr(remove, "_remove", lambda *_, **__: "killed")
        first = tree.finish()
    before = held(project.store)
    second = tree.finish()
    assert (first.kept, second.kept) == ("killed", None)
    assert held(project.store) == before
    assert first.saved is not None
    assert second.saved is not None
    assert [one.refs for one in first.saved.inner] == [one.refs for one in second.saved.inner]


BEGUN = {
    "nothing": (),
    "templates": ("hooks/post-checkout.sample", "info/exclude", "description"),
    "a head": ("description", "HEAD"),
    "no objects": ("HEAD", "config.lock"),
    "half a pack": ("HEAD", "config", "refs/heads/", "objects/pack/tmp_pack_AbCdEf", "objects/info/"),
}


@pytest.mark.parametrize("begun", BEGUN)
def test_a_clone_that_was_cut_short_is_nothing(project: Project, begun: str) -> None:
    """Git makes these in this order; before there is a ref or an index, there is no work."""
    tree = project.tree(initialised=False)
    directory = repository(tree)
    directory.mkdir(parents=True)
    for name in BEGUN[begun]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (directory / name).mkdir()
        else:
            (directory / name).write_text("ref: refs/heads/main\n" if name == "HEAD" else "")
    assert tree.finish().kept is None


@pytest.mark.parametrize("name", ["refs/heads/work", "packed-refs", "index", "logs/HEAD", "objects/work"])
def test_one_that_may_hold_work_is_not_taken_for_one_cut_short(project: Project, name: str) -> None:
    """The control for the test above; git cannot read this one, so that it is kept."""
    tree = project.tree(initialised=False)
    directory = repository(tree)
    (directory / name).parent.mkdir(parents=True)
    (directory / "HEAD").write_text("ref: refs/heads/main\n")
    (directory / name).write_text("")
    assert SUB in reason_to_keep(tree)
