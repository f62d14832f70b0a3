"""Delete the branch of a session that left no commits on it.

A record names the commit that the branch started from. An agent can write there that a branch with commits is
still at its start. So the record only proposes the deletion. The proof is in the repository: some other ref,
or HEAD, has every commit of the branch. The branch of the same name on a remote is no such ref: it goes with
``git fetch --prune`` as soon as another user deletes it there.
"""

from __future__ import annotations

from pathlib import Path

from ralph_wrap.git import Git, delete_ref, list_refs, resolve_commit, worktree_holding
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.read_back import other_tips, require_whole
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.save.commits import unreachable


def drop_branch_at(git: Git, common_dir: Path, branch: str, base: str) -> bool:
    """Delete a branch that is still at its base and holds no commit of its own.

    Arguments:
        git: git in the repository.
        branch: short name of the branch.
        base: the commit that it started from, as the session or its record says.

    Returns:
        Whether it was deleted.

    Raises:
        DamageError: an object of the commit is damaged or missing; the branch stays.
        GitError: another process has just moved it; it stays.
        OSError: the repository cannot be locked.

    """
    ref = f"refs/heads/{branch}"
    with repository_lock(common_dir):
        if list_refs(git, ref).get(ref) != base or worktree_holding(git, ref):
            return False
        if unreachable(git, [base], without=(ref, f"refs/remotes/*/{branch}")) and not _is_at_head(git, base):
            return False
        require_whole(git, [base], other_tips(git, ref))
        delete_ref(git, ref, base)
    return True


def _is_at_head(git: Git, commit: str) -> bool:
    """Return whether HEAD of the checkout has a commit; a detached HEAD may be the only thing that has it."""
    head = resolve_commit(git, "HEAD")
    return head is not None and is_ancestor(git, commit, head)
