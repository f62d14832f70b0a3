"""A repository with submodules, one of them in another one, and worktrees in which they are initialised."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.repo import Repo, make_repo
from tests.support.trees import ID, Tree, make_tree

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = ("-c", "protocol.file.allow=always")
SUB = "vendor/x"
NESTED = f"{SUB}/deep"
PREFIX = f"refs/ralph/snapshots/{ID}/"


@dataclass(frozen=True)
class Project:
    """A project with the submodule ``vendor/x``, which has the submodule ``deep``.

    Attributes:
        repo: the project.
        upstream: where ``vendor/x`` comes from.

    """

    repo: Repo
    upstream: Repo

    @property
    def store(self) -> Repo:
        """The main checkout's repository of ``vendor/x``."""
        return Repo(self.repo.path / ".git" / "modules" / SUB)

    def tree(self, *, initialised: bool = True) -> Tree:
        """Make a worktree, and initialise all submodules as an agent would."""
        tree = make_tree(self.repo)
        if initialised:
            tree.inside.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
        return tree


def make_project(directory: Path, *, checked_out: bool = True) -> Project:
    """Make a project in a new directory.

    Arguments:
        directory: for it and what its submodules come from.
        checked_out: the main checkout has its submodules.

    """
    deep = make_repo(directory / "deep")
    deep.write("deep.txt", "deep\n")
    deep.commit("deep")
    upstream = make_repo(directory / "upstream")
    upstream.write(".gitignore", "*.ignored\n")
    upstream.git(*ALLOWED, "submodule", "--quiet", "add", deep.path, "deep")
    upstream.commit("with deep")
    repo = make_repo(directory / "project")
    repo.write(".gitignore", ".ralph/\n")
    repo.git(*ALLOWED, "submodule", "--quiet", "add", upstream.path, SUB)
    repo.commit("with submodule")
    if checked_out:
        repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    else:
        repo.git("submodule", "--quiet", "deinit", "--force", "--all")
        shutil.rmtree(repo.path / ".git" / "modules")
    return Project(repo, upstream)


def held(repo: Repo) -> dict[str, str]:
    """Return the snapshots that a repository holds: name without its prefix, and commit."""
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", PREFIX).splitlines()
    return {name.removeprefix(PREFIX): oid for name, oid in (row.split(" ") for row in rows)}


def inside(tree: Tree, path: str = SUB) -> Repo:
    """Return a submodule of a worktree."""
    return Repo(tree.path / path)
