"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.

What a start does not need until its worktree is there is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.ignore import RULE, ensure_ignored, is_hidden, tidy
from ralph_wrap.worktree.layout import (
    EVERYTHING,
    Layout,
    check_layout,
    directories,
    environment_config,
)
from ralph_wrap.worktree.leaks.monitor import Lookout
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.model import LinkedWorktree

if TYPE_CHECKING:
    from ralph_wrap.worktree.create.copy_ignored import INCLUDE
    from ralph_wrap.worktree.create.report_copies import provide
    from ralph_wrap.worktree.fingerprints import fingerprint, is_pristine, pristine
    from ralph_wrap.worktree.managed.create import make
    from ralph_wrap.worktree.managed.find import OURS, directory_of, find, holds_its_branch
    from ralph_wrap.worktree.managed.git_config import tidy_hooks
    from ralph_wrap.worktree.managed.metadata import Mark, marked, write_mark
    from ralph_wrap.worktree.recover import adopt, bring_back
    from ralph_wrap.worktree.remove import Outcome, drop_branch, drop_branch_at, finish
    from ralph_wrap.worktree.save.checkpoint import Snapshot, commit_all, sees_all, snapshot
    from ralph_wrap.worktree.save.result import Losses
    from ralph_wrap.worktree.trash import empty_trash

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
    "find",
    "fingerprint",
    "finish",
    "holds_its_branch",
    "is_hidden",
    "is_pristine",
    "load",
    "make",
    "marked",
    "pristine",
    "provide",
    "repository_lock",
    "sees_all",
    "snapshot",
    "tidy",
    "tidy_hooks",
    "write_mark",
]

_LATER = {
    "recover": ("adopt", "bring_back"),
    "create.copy_ignored": ("INCLUDE",),
    "fingerprints": ("fingerprint", "is_pristine", "pristine"),
    "managed.git_config": ("tidy_hooks",),
    "managed.find": ("OURS", "directory_of", "find", "holds_its_branch"),
    "save.result": ("Losses",),
    "managed.create": ("make",),
    "managed.metadata": ("Mark", "marked", "write_mark"),
    "create.report_copies": ("provide",),
    "remove": ("Outcome", "drop_branch", "drop_branch_at", "finish"),
    "save.checkpoint": ("Snapshot", "commit_all", "sees_all", "snapshot"),
    "trash": ("empty_trash",),
}
"""Names by module. None is a module's own, which would hide it once that is loaded."""

_UNNAMED = (
    "leaks.compare",
    "leaks.observation",
    "create.submodules",
    "pool.maintenance",
    "save.submodules",
    "pool.entry",
)


def load() -> None:
    """Load all of it."""
    for module in (*_LATER, *_UNNAMED):
        import_module(f"{__name__}.{module}")
    import_module("ralph_wrap.state.landings")  # loaded late, too


if not TYPE_CHECKING:  # or every name would be there for whoever checks types

    def __getattr__(name: str) -> Any:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
