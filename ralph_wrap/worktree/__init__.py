"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.
"""

from ralph_wrap.worktree.adopt import adopt, bring_back
from ralph_wrap.worktree.copies import INCLUDE
from ralph_wrap.worktree.create import LinkedWorktree, create
from ralph_wrap.worktree.find import OURS, directory_of, find, holds_its_branch
from ralph_wrap.worktree.fingerprint import fingerprint, is_pristine, pristine
from ralph_wrap.worktree.hooks import tidy_hooks
from ralph_wrap.worktree.ignore import RULE, ensure_ignored, is_hidden, tidy
from ralph_wrap.worktree.layout import (
    EVERYTHING,
    Layout,
    check_layout,
    directories,
    environment_config,
    excludes,
)
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.lookout import Lookout
from ralph_wrap.worktree.losses import Losses
from ralph_wrap.worktree.make import make
from ralph_wrap.worktree.mark import Mark, marked, write_mark
from ralph_wrap.worktree.provide import provide
from ralph_wrap.worktree.remove import Outcome, drop_branch, drop_branch_at, empty_trash, finish, remove
from ralph_wrap.worktree.snapshot import Snapshot, commit_all, sees_all, snapshot

__all__ = [
    "EVERYTHING",
    "INCLUDE",
    "OURS",
    "RULE",
    "Layout",
    "LinkedWorktree",
    "Lookout",
    "Losses",
    "Mark",
    "Outcome",
    "Snapshot",
    "adopt",
    "bring_back",
    "check_layout",
    "commit_all",
    "create",
    "directories",
    "directory_of",
    "drop_branch",
    "drop_branch_at",
    "empty_trash",
    "ensure_ignored",
    "environment_config",
    "excludes",
    "find",
    "fingerprint",
    "finish",
    "holds_its_branch",
    "is_hidden",
    "is_pristine",
    "make",
    "marked",
    "pristine",
    "provide",
    "remove",
    "repository_lock",
    "sees_all",
    "snapshot",
    "tidy",
    "tidy_hooks",
    "write_mark",
]
