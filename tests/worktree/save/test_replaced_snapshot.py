"""A second snapshot of one iteration of one session: what the first one has is not lost with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save.checkpoint import snapshot
from tests.support.trees import ID, SESSION, located

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.trees import Tree

FIRST = f"refs/ralph/snapshots/{ID}/1"
KEPT = f"refs/ralph/snapshots/{ID}/commit-1"


def _take(tree: Tree) -> None:
    git, _ = located(tree.repo)
    snapshot(tree.linked, git, agent_id=ID, session=SESSION, number=1)


def _delete_a_file(tree: Tree) -> None:
    (tree.path / "work").unlink()


def _reset_a_commit(tree: Tree) -> None:
    tree.inside.git("reset", "-q", "--hard", "HEAD~1")
    tree.inside.write("work", "w\n")


@pytest.mark.parametrize("change", [_delete_a_file, _reset_a_commit])
def test_other_work_stays(tree: Tree, change: Callable[[Tree], object]) -> None:
    """A command of the project may have deleted it in between, also a commit that was at HEAD."""
    head = tree.inside.commit("the agent's")
    tree.inside.write("work", "w\n")
    _take(tree)
    change(tree)
    tree.inside.write("later", "l\n")
    _take(tree)
    assert tree.repo.show(f"{FIRST}:later") == b"l\n"
    assert tree.repo.show(f"{KEPT}:work") == b"w\n"
    assert tree.repo.git("rev-parse", f"{KEPT}^1") == head


def test_the_same_work_takes_no_other_ref(tree: Tree) -> None:
    """The newer one takes the place of the first."""
    tree.inside.write("work", "w\n")
    _take(tree)
    _take(tree)
    assert tree.repo.git("for-each-ref", "--format=%(refname)", "refs/ralph") == FIRST
