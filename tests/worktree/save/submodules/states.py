"""Submodules, looked at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap import git
from ralph_wrap.worktree.remove import remove as remove_worktree
from tests.support.repo import Repo
from tests.support.submodules import SUB
from tests.support.trees import SESSION, Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.worktree.save.result import Losses


def refs_of(repo: Repo) -> str:
    """Return all refs of the project."""
    return repo.git("for-each-ref")


def detached(sub: Repo) -> dict[str, bytes]:
    """Commit on no branch."""
    sub.write("work", "detached\n")
    sub.commit("detached")
    return {"work": b"detached\n"}


def on_a_branch(sub: Repo) -> dict[str, bytes]:
    """Commit on a branch."""
    sub.git("checkout", "-q", "-b", "feature")
    sub.write("work", "on a branch\n")
    sub.commit("feature")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"on a branch\n"}


def stashed(sub: Repo) -> dict[str, bytes]:
    """Stash twice."""
    for number in (1, 2):
        sub.write(f"stashed-{number}", f"stash {number}\n")
        sub.git("stash", "push", "-q", "-u")
    return {"stashed-1": b"stash 1\n", "stashed-2": b"stash 2\n"}


def found(repo: Repo, path: str) -> set[bytes]:
    """Return every content that a path has in any commit that a ref of a repository leads to."""
    contents = set()
    for commit in repo.git("rev-list", "--all").splitlines():
        listing = repo.git("ls-tree", "-r", "-z", commit)
        names = {row.partition("\t")[2]: row.split()[2] for row in listing.split("\0") if row}
        contents |= {repo.show(oid) for name, oid in names.items() if name == path}
    return contents


def reason_to_keep(tree: Tree) -> str:
    """Finish a worktree that stays, and return the reason."""
    outcome = tree.finish()
    assert outcome.kept is not None
    assert tree.path.is_dir()
    assert (tree.linked.registration / "modules").is_dir()
    return outcome.kept


def repository(tree: Tree) -> Path:
    """Return where git keeps the submodule of the worktree."""
    return tree.linked.registration / "modules" / SUB


def remove_checked(tree: Tree, check: Callable[[Losses], None]) -> Losses:
    """Remove a worktree; what would be lost goes to a check."""
    where = git.Git(tree.repo.path, git.git_environment(os.environ))
    trash = tree.repo.path / ".ralph" / "run" / "trash"
    return remove_worktree(tree.linked, where, trash, SESSION, check=check)
