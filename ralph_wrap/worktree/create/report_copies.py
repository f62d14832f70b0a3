"""Copy ignored files into a new worktree, and log the result; the worktree stays even after an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ralph_wrap.git import Git
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.worktree.create.copy_ignored import copy_ignored
from ralph_wrap.worktree.model import LinkedWorktree

log = get_logger()


def provide(
    tree: LinkedWorktree,
    git: Git,
    checkout: Path,
    patterns: Sequence[str],
    *,
    cancel: CancelToken = NEVER,
) -> None:
    """Copy ignored files into a new worktree, and log which were copied, and which were not.

    Arguments:
        tree: the new worktree, in which no process works yet.
        checkout: the top level of the project's checkout.
        patterns: the patterns of the settings.
        cancel: a signal interrupts the copying.

    """
    try:
        copied = copy_ignored(tree, git, checkout, patterns, cancel=cancel, progress=current().progress)
    except Exception as error:  # noqa: BLE001 -- the worktree must stay usable after any error
        log.warning(
            "files.not_copied",
            f"no ignored files were copied into the worktree: {error}",
            "copy the files that the agent needs by hand",
        )
        return
    if copied is not None:
        for line, hint in copied.left_out:
            log.warning("files.not_copied", line, hint)
        message = f"ignored files copied into the worktree: {copied.number}" if copied.number else ""
        log.event("files.copied", message, count=copied.number)
