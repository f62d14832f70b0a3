"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.
"""

from ralph_wrap.worktree.create import LinkedWorktree, create
from ralph_wrap.worktree.fingerprint import fingerprint, pristine
from ralph_wrap.worktree.ignore import RULE, ensure_ignored
from ralph_wrap.worktree.remove import Outcome, empty_trash, finish
from ralph_wrap.worktree.save import Saved

__all__ = [
    "RULE",
    "LinkedWorktree",
    "Outcome",
    "Saved",
    "create",
    "empty_trash",
    "ensure_ignored",
    "fingerprint",
    "finish",
    "pristine",
]
