"""A clone among the dependencies of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.repo import Repo

if TYPE_CHECKING:
    from tests.support.trees import Tree

DEPENDENCY = "node_modules/dep"
KEPT = f"nested repository {DEPENDENCY} cannot be saved: "
"""The beginning of the reason why a worktree stays."""


def clone(tree: Tree, upstream: Repo, path: str = DEPENDENCY, *options: str) -> Repo:
    """Clone it into the worktree."""
    tree.inside.git("clone", "-q", *options, str(upstream.path), path)
    return Repo(tree.path / path)
