"""Saved work of submodules comes back into those of a new worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import environment_with_config
from ralph_wrap.worktree.create.submodules import init_submodules
from ralph_wrap.worktree.restore import SavedSubmoduleWork, restore, restore_submodules
from tests.support.submodules import NESTED, SUB, Project, inside, make_project
from tests.support.trees import ID, SESSION, Tree, located, make_tree, on_disk

if TYPE_CHECKING:
    from pathlib import Path


def _again(
    project: Project, tree: Tree, *, initialised: bool = True
) -> tuple[Tree, list[SavedSubmoduleWork]]:
    """End a worktree, and return a new one with its work in it, and the work that is not."""
    outcome = tree.finish()
    assert outcome.kept is None
    assert outcome.saved is not None
    saved = [SavedSubmoduleWork(one.path, one.refs) for one in outcome.saved.inner if one.refs]
    again = make_tree(project.repo, continued=True)
    git = located(project.repo)[0]
    restore(again.linked, git, ID)
    if initialised:
        allowed = git._replace(env=environment_with_config(git.env, "protocol.file.allow", "always"))
        init_submodules(again.linked, allowed)
    return again, restore_submodules(again.linked, git, ID, SESSION, saved, again.linked.common_dir)


def _state(tree: Tree, path: str) -> tuple[object, ...]:
    repo = inside(tree, path)
    return (
        {name: entry for name, entry in on_disk(tree.path / path).items() if not name.endswith(b".git")},
        repo.git("status", "--porcelain", "-z"),
        repo.git("rev-parse", "HEAD"),
    )


@pytest.mark.parametrize("path", [SUB, NESTED])
@pytest.mark.parametrize("checked_out", [True, False])
@pytest.mark.parametrize("commit", ["nothing", "in it", "above it, too"])
def test_uncommitted_work_comes_back(tmp_path: Path, path: str, commit: str, *, checked_out: bool) -> None:
    """Staged and unstaged, with or without commits of the agent in the submodule."""
    project = make_project(tmp_path / "another", checked_out=checked_out)
    tree = project.tree()
    sub = inside(tree, path)
    if commit != "nothing":
        sub.write("committed", "by the agent\n")
        sub.commit("in the submodule")
    if commit == "above it, too" and path == SUB and checked_out:  # else git cannot fetch it by its own rules
        tree.inside.commit("another commit of the submodule")
    sub.write("staged", "staged\n")
    sub.git("add", "staged")
    sub.write("staged", "not staged\n")
    sub.write("new", "new\n")
    before = _state(tree, path)
    again, left = _again(project, tree)
    assert left == []
    assert _state(again, path) == before


def test_a_submodule_that_is_not_there_is_named(project: Project, tree: Tree) -> None:
    """Its work stays where it was saved."""
    inside(tree).write("new", "new\n")
    _, left = _again(project, tree, initialised=False)
    assert [work.path for work in left] == [SUB]


def test_other_refs_are_never_taken(project: Project, tree: Tree) -> None:
    """The report that names them is a file that an agent can write."""
    tree.finish()
    again = make_tree(project.repo, continued=True)
    init_submodules(again.linked, located(project.repo)[0])
    work = SavedSubmoduleWork(SUB, ("refs/heads/main", "--upload-pack=touch evil", "refs/heads/*"))
    git, store = located(project.repo)[0], again.linked.common_dir
    assert restore_submodules(again.linked, git, ID, SESSION, [work], store) == [work]
