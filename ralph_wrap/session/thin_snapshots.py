"""Delete the snapshots of a session that newer ones have replaced; a failure is logged, and stops nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.log import get_logger
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.thinning import thin_snapshots

log = get_logger()


def thin(
    tree: LinkedWorktree, git: Git, record: SessionRecord, choose: Callable[[Collection[int]], set[int]]
) -> None:
    """Delete the snapshots that *choose* returns, as :func:`ralph_wrap.worktree.thinning.thin_snapshots`."""
    branch = record.branch or f"ralph/{record.id}"
    git = git._replace(cwd=tree.common_dir, git_dir=tree.common_dir)
    try:
        gone = thin_snapshots(git, record.id, record.session, time.time(), choose, branch)
    except (GitError, OSError) as error:
        log.event("snapshots.not_thinned", reason=str(error))
        return
    if gone:
        log.event("snapshots.thinned", count=len(gone))
