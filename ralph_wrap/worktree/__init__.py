"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.
"""

from ralph_wrap.worktree.adopt import adopt
from ralph_wrap.worktree.create import LinkedWorktree, create
from ralph_wrap.worktree.fingerprint import fingerprint, pristine
from ralph_wrap.worktree.ignore import RULE, ensure_ignored, tidy
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.remove import Outcome, drop_branch, drop_branch_at, empty_trash, finish

__all__ = [
    "RULE",
    "LinkedWorktree",
    "Outcome",
    "adopt",
    "create",
    "drop_branch",
    "drop_branch_at",
    "empty_trash",
    "ensure_ignored",
    "fingerprint",
    "finish",
    "pristine",
    "repository_lock",
    "tidy",
]
