"""What is asked for when a worktree is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.worktree.layout import EVERYTHING, WorktreeLayout
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import WorktreeOwner
from ralph_wrap.worktree.warm import WarmWorktree


class NewWorktree(NamedTuple):
    """A worktree, or a clone, that does not exist yet.

    Attributes:
        path: its directory; it must not exist.
        branch: the branch to check out; created at *base*.
        base: commit id.
        owner: the mark and the lock of its registration.
        continued: check out the branch if it exists already.
        layout: the part of the repository that it holds.

    """

    path: Path
    branch: str
    base: str
    owner: WorktreeOwner
    continued: bool = False
    layout: WorktreeLayout = EVERYTHING


class CheckoutWatch(NamedTuple):
    """What happens while files are checked out.

    Attributes:
        cancel: a signal ends the checkout.
        progress: called with the progress of a checkout that takes a second or more.

    """

    cancel: CancelToken = NEVER
    progress: Callable[[str], None] = lambda _: None


class OfferedWorktree(NamedTuple):
    """A warm worktree to take instead of a new one, if it is still unchanged.

    Attributes:
        warm: the worktree.
        abandon: called after it was taken if a later step fails: a process may have worked in it.

    """

    warm: WarmWorktree
    abandon: Callable[[LinkedWorktree], object]
