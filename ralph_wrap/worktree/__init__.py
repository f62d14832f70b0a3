"""Worktrees: made in one transaction, saved in full, removed in one fixed order.

What may be removed, and when, is decided in this package and nowhere else.

What a start does not need until its worktree is there is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ralph_wrap.worktree.create import LinkedWorktree, create
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

if TYPE_CHECKING:
    from ralph_wrap.worktree.adoption import adopt, bring_back
    from ralph_wrap.worktree.copies import INCLUDE
    from ralph_wrap.worktree.fingerprints import fingerprint, is_pristine, pristine
    from ralph_wrap.worktree.hooks import tidy_hooks
    from ralph_wrap.worktree.lookup import OURS, directory_of, find, holds_its_branch
    from ralph_wrap.worktree.losses import Losses
    from ralph_wrap.worktree.making import make
    from ralph_wrap.worktree.mark import Mark, marked, write_mark
    from ralph_wrap.worktree.provision import provide
    from ralph_wrap.worktree.removal import (
        Outcome,
        drop_branch,
        drop_branch_at,
        empty_trash,
        finish,
        remove,
    )
    from ralph_wrap.worktree.snapshots import Snapshot, commit_all, sees_all, snapshot

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
    "load",
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

_LATER = {
    "adoption": ("adopt", "bring_back"),
    "copies": ("INCLUDE",),
    "fingerprints": ("fingerprint", "is_pristine", "pristine"),
    "hooks": ("tidy_hooks",),
    "lookup": ("OURS", "directory_of", "find", "holds_its_branch"),
    "losses": ("Losses",),
    "making": ("make",),
    "mark": ("Mark", "marked", "write_mark"),
    "provision": ("provide",),
    "removal": ("Outcome", "drop_branch", "drop_branch_at", "empty_trash", "finish", "remove"),
    "snapshots": ("Snapshot", "commit_all", "sees_all", "snapshot"),
}
"""Names by module. None is a module's own, which would hide it once that is loaded."""

_UNNAMED = ("changes", "landings", "outside", "populate", "stock", "submodules", "warm")


def load() -> None:
    """Load all of it."""
    for module in (*_LATER, *_UNNAMED):
        import_module(f"{__name__}.{module}")


if not TYPE_CHECKING:  # or every name would be there for whoever checks types

    def __getattr__(name: str) -> Any:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
