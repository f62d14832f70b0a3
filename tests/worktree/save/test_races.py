"""Edits of the same size in the second in which git has read a file; it writes the index a second later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.worktree.save import clones
from tests.support.repo import Repo, make_repo
from tests.support.trees import edit_while_lifting, located, make_tree

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_hidden_edit_in_a_clone_is_own_work(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clone would be deleted with its worktree."""
    repo.write(".gitignore", "node_modules/\n")
    repo.commit("ignore")
    tree, upstream = make_tree(repo), make_repo(tmp_path / "upstream")
    tree.inside.git("clone", "-q", str(upstream.path), "node_modules/clone")
    nested = Repo(tree.path / "node_modules" / "clone")
    edit_while_lifting(monkeypatch, clones, nested, "file.txt")
    found = clones.own_work(tree.linked, located(repo)[0], tmp_path / "index", "node_modules/clone")
    assert found == "1 path in it is not committed"
