"""Find what a damaged worktree still has: commits that are gone, and the newest one that is whole."""

from __future__ import annotations

from collections.abc import Sequence

from ralph_wrap.errors import BlockingFileError, GitError
from ralph_wrap.git import Git, decode, decode_lines, existing_commits, list_refs, run_git
from ralph_wrap.git.command import STUCK
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.inspect import head_of

_LARGEST = 64 << 20  # bytes of a reflog


def may_be_damage(error: GitError) -> bool:
    """Return whether git may have failed because an object is missing or damaged."""
    return not isinstance(error, BlockingFileError) and error.status != STUCK


def head_commit(tree: LinkedWorktree, git: Git) -> str | None:
    """Return the commit that HEAD names, also if it does not exist; ``None`` for an unborn branch.

    Arguments:
        git: git in the worktree.

    """
    head = head_of(tree, git)
    if head.commit or head.branch:
        return head.commit or list_refs(git, str(head.branch)).get(str(head.branch))
    content = decode(files.read(tree.registration / "HEAD", _LARGEST)).strip()
    return content if is_oid(content) else None


def commits_at_head(tree: LinkedWorktree, git: Git) -> list[str]:
    """Return the commits that HEAD has named, newest first; some may not exist any more.

    Git keeps what a reflog names, so one that is missing is damage.

    Arguments:
        git: git in the worktree.

    """
    now = head_commit(tree, git)
    try:
        rows = files.read(tree.registration / "logs" / "HEAD", _LARGEST).splitlines()
        logged = [decode(row.split(b" ", 2)[1]) for row in reversed(rows) if row.count(b" ") > 1]
    except OSError:  # in a reftable
        logged = decode_lines(run_git(git, "reflog", "--format=%H", "HEAD", accept=(0, 128)).stdout)
    return [oid for oid in dict.fromkeys([now or "", *logged]) if is_oid(oid) and oid.strip("0")]


def lost_commit(tree: LinkedWorktree, git: Git) -> str | None:
    """Return in words which commit of HEAD or its reflog is gone, ``None`` if none is.

    Arguments:
        git: git in the worktree.

    Raises:
        GitError: git failed.
        OSError: HEAD cannot be read.

    """
    commits = [oid for oid in commits_at_head(tree, git) if oid != tree.base]
    gone = {*commits} - {*existing_commits(git, commits)} if commits else set()
    first = next((oid for oid in commits if oid in gone), None)
    if first is None:
        return None
    return find_damage(git, [first]) or f"commit {first} is missing"


def newest_whole_commit(
    tree: LinkedWorktree, git: Git, present: Sequence[str]
) -> tuple[str | None, str | None]:
    """Return the newest commit that HEAD has named and that is whole with its history; else the base.

    Also return what is damaged in HEAD, in words, if anything is.

    Arguments:
        git: git in the worktree.
        present: the commits that count as whole without a look.

    Raises:
        GitError: git failed.
        OSError: HEAD cannot be read.

    """
    first = None
    for oid in commits_at_head(tree, git):
        damage = None if oid in present else find_damage(git, [oid], present)
        if damage is None:
            return oid, first
        first = first or damage
    return next((oid for oid in present if oid == tree.base), None), first


def changed_paths(git: Git, before: str | None, after: str) -> tuple[str, ...]:
    """Return the paths in which two trees differ; without the first one, all paths.

    Raises:
        GitError: a tree cannot be read.

    """
    options = ("-r", "-z", "--name-only")
    if before is None:
        output = run_git(git, "ls-tree", *options, "--full-tree", after).stdout
    else:
        output = run_git(git, "diff-tree", *options, "--no-renames", before, after).stdout
    return tuple(decode(name) for name in output.split(b"\0")[:-1])
