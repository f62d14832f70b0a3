"""Clones of another machine, which cannot be asked, and those whose commits no branch of a remote has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.repo import Repo, make_repo
from tests.worktree.save.clones.dependencies import DEPENDENCY, KEPT, clone

if TYPE_CHECKING:
    from tests.support.trees import Tree

ELSEWHERE = "https://example.invalid/upstream.git"


def _elsewhere(dependency: Repo) -> None:
    """Have its remote, from which it was cloned, be one that cannot be asked."""
    url = dependency.git("config", "remote.origin.url")
    dependency.git("config", "remote.origin.url", ELSEWHERE)
    for reflog in (dependency.path / dependency.git("rev-parse", "--git-dir")).glob("logs/HEAD"):
        reflog.write_text(reflog.read_text().replace(f"clone: from {url}", f"clone: from {ELSEWHERE}"))


def _off_branch_tag(upstream: Repo) -> None:
    """Tag a commit that no branch has, as after the branch of a release was deleted."""
    upstream.git("checkout", "-q", "-b", "release")
    upstream.commit("release")
    upstream.git("tag", "v2")
    upstream.git("checkout", "-q", "other")
    upstream.git("branch", "-q", "-D", "release")


@pytest.mark.parametrize("options", [(), ("--depth=1",)], ids=["whole", "shallow"])
def test_a_clone_at_a_tag_goes(tree: Tree, upstream: Repo, options: tuple[str, ...]) -> None:
    """No remote branch has its commit, but the reflog, or the end of the history, says where it is from."""
    _off_branch_tag(upstream)
    tree.inside.git("clone", "-q", *options, "-b", "v2", f"file://{upstream.path}", DEPENDENCY)
    _elsewhere(Repo(tree.path / DEPENDENCY))
    assert tree.finish().kept is None


def test_what_came_from_this_machine_is_on_no_other_one(tree: Tree, upstream: Repo) -> None:
    """Cloned from a path and then given another address, or fetched beside it without a history."""
    _off_branch_tag(upstream)
    tree.inside.git("clone", "-q", "-b", "v2", f"file://{upstream.path}", DEPENDENCY)
    Repo(tree.path / DEPENDENCY).git("config", "remote.origin.url", ELSEWHERE)
    assert tree.finish().kept == f"{KEPT}1 commit in it is on no branch of a remote"


def test_a_shallow_history_proves_no_remote(tree: Tree, upstream: Repo) -> None:
    """A fetch from a path makes one, too."""
    dependency = clone(tree, upstream)
    _elsewhere(dependency)
    other = make_repo(upstream.path.with_name("other"))
    other.commit("only there")
    dependency.git("fetch", "-q", "--depth=1", f"file://{other.path}", "HEAD")
    dependency.git("checkout", "-q", "--detach", "FETCH_HEAD")
    assert tree.finish().kept == f"{KEPT}1 commit in it is on no branch of a remote"


def test_a_commit_on_top_of_a_tag_keeps_the_worktree(tree: Tree, upstream: Repo) -> None:
    """As for a clone of a branch."""
    _off_branch_tag(upstream)
    tree.inside.git("clone", "-q", "--depth=1", "-b", "v2", f"file://{upstream.path}", DEPENDENCY)
    Repo(tree.path / DEPENDENCY).commit("own")
    assert tree.finish().kept == f"{KEPT}1 commit in it is on no branch of a remote"


def test_a_tag_of_a_remote_here_is_no_own_work(tree: Tree, upstream: Repo) -> None:
    """Also one with a message that is not older than the clone."""
    dependency = clone(tree, upstream)
    upstream.commit("later")
    upstream.git("tag", "-a", "-m", "t", "v3")
    dependency.git("fetch", "-q", "--tags")
    assert tree.finish().kept is None
