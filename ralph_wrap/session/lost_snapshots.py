"""Refs of snapshots whose commits a ``git gc`` has deleted: they go, and each is logged."""

from __future__ import annotations

from pathlib import Path

from ralph_wrap.errors import TO_SEE_DAMAGE, GitError
from ralph_wrap.git import Git
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.commits import drop_lost_snapshots

log = get_logger()


def drop_lost(
    tree: LinkedWorktree, git: Git, agent_id: str, head: str | None, *, at_end: Path | None = None
) -> None:
    """Delete the refs of snapshots whose commits are gone; call this after the work is saved.

    Arguments:
        tree: the worktree, which may have been removed.
        git: git as the session's own.
        agent_id: names the refs.
        head: the commit that HEAD named at the save.
        at_end: at the end of the session, the directory of its project: what is damaged is logged, too.

    """
    git = git._replace(cwd=tree.common_dir, git_dir=tree.common_dir, common_dir=tree.common_dir)
    witnesses = [oid for oid in dict.fromkeys((tree.base, head)) if oid]

    def dropped(ref: str, oid: str) -> None:
        message = f"the commit of a snapshot is missing, so its ref is gone: {ref} ({oid})"
        log.warning("snapshot.lost", message, ref=ref, commit=oid)

    try:
        damaged = drop_lost_snapshots(git, agent_id, witnesses, dropped, complete=at_end is not None)
    except (GitError, OSError) as error:
        log.warning("snapshot.unread", f"it is unknown whether the snapshots are whole: {error}")
        return
    if at_end is None:
        return
    looking = command("git", "-C", at_end, *TO_SEE_DAMAGE.split()[1:])
    for line in damaged:
        message = f"a snapshot is damaged, and its ref stays: {line}"
        log.warning("snapshot.damaged", message, f"to see everything that is damaged: {looking}")
