"""Provide a new worktree with what no commit holds, and tell of it: whatever fails, there is a worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.worktree.create.copy_ignored import copy_ignored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.model import LinkedWorktree


def provide(
    tree: LinkedWorktree,
    where: Git,
    checkout: Path,
    patterns: Sequence[str],
    *,
    told: Log,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Copy the ignored files that are wanted into a new worktree, and tell what was copied, and what was not.

    Arguments:
        tree: nobody works in it yet.
        checkout: that top level.
        patterns: those of the settings.
        stopped: tells that copying is to be cut short.

    """
    try:
        copied = copy_ignored(tree, where, checkout, patterns, stopped=stopped, progress=told.progress)
    except Exception as error:  # noqa: BLE001 -- nobody else would remove the worktree
        told.warning(
            "files.not_copied", f"no ignored files were copied into the worktree: {error}", "copy them"
        )
        return
    if copied is not None:
        for line, hint in copied.left_out:
            told.warning("files.not_copied", line, hint)
        message = f"ignored files copied into the worktree: {copied.number}" if copied.number else ""
        told.event("files.copied", message, count=copied.number)
