"""Switch git hooks off in one worktree, for whoever works there, and nowhere else.

Git reads a worktree's own configuration (``config.worktree`` in its registration) only where the shared one
says so (git-worktree(1): CONFIGURATION FILE). So a few lines are added to the shared configuration with the
first such worktree, and taken away, byte for byte, with the last one. Nothing else is ever changed in it.

Both happen under git's own lock of that file. Where the extension would change what others see, because
``core.bare`` or ``core.worktree`` stand in the shared file, or because a file of a worktree's own
configuration lies about that nobody reads so far, nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from ralph_wrap import files, git
from ralph_wrap.errors import ConflictError, RefusedError
from ralph_wrap.worktree.mark import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.worktree.create import LinkedWorktree

_OLDEST = (2, 20)  # knows extensions.worktreeConfig
_SECTION = b"[extensions]\n\tworktreeConfig = true\n"
_BLOCK = b"# ralph-wrap: for worktrees without hooks, goes with the last of them\n" + _SECTION
_BLOCK_AFTER_NO_NEWLINE = (
    b"\n# ralph-wrap: for worktrees without hooks, goes with the last of them, and so does the line break\n"
    + _SECTION
)
_OWN = b"[core]\n\thooksPath = /dev/null\n"
_PATIENCE = 5.0  # seconds to wait for git's lock; git itself does not wait
_PAUSE = 0.02  # seconds between two tries


def require_switchable(where: Git, repository: Repository) -> None:
    """Make sure that hooks can be switched off for one worktree without harm to the others.

    Raises:
        RefusedError: they cannot.

    """
    instead = "--hooks on leaves them as they are"
    if repository.git_version < _OLDEST:
        raise RefusedError("git before 2.20 cannot switch hooks off for one worktree", instead)
    if _is_extended(where, repository.common_dir):
        return
    shared = repository.common_dir / "config"
    bare = git.run(where, "config", "--file", shared, "--bool", "--get", "core.bare", accept=(0, 1, 128))
    if bare.stdout.strip() == b"true":
        raise RefusedError("core.bare stands in the shared configuration, which others would lose", instead)
    if git.run(where, "config", "--file", shared, "--get", "core.worktree", accept=(0, 1)).status == 0:
        raise RefusedError(
            "core.worktree stands in the shared configuration: all worktrees would get it", instead
        )
    dormant = [
        repository.common_dir / "config.worktree",
        *repository.common_dir.glob("worktrees/*/config.worktree"),
    ]
    if there := [path for path in dormant if os.path.lexists(path)]:
        raise RefusedError(f"{there[0]}, which git does not read so far, would come into force", instead)


def switch_off(where: Git, worktree: LinkedWorktree) -> None:
    """Switch hooks off in a worktree that is being made; the repository's lock is held.

    Raises:
        ConflictError: somebody else holds the lock of the configuration.
        OSError: it cannot be written.

    """
    files.replace(worktree.registration / "config.worktree", _OWN)
    if _is_extended(where, worktree.common_dir):
        return
    with _locked(worktree.common_dir) as (before, replace):
        replace(before + (_BLOCK if before.endswith(b"\n") or not before else _BLOCK_AFTER_NO_NEWLINE))


def tidy_hooks(common_dir: Path) -> None:
    """Take our lines out of the shared configuration if nobody needs them; the repository's lock is held.

    Raises:
        ConflictError: somebody else holds the lock of the configuration.
        OSError: it cannot be read or written.

    """
    if any(mark.hooks_off for mark in marked(common_dir).values()):
        return
    if _without_block(_shared(common_dir).read_bytes()) is None:
        return
    with _locked(common_dir) as (before, replace):
        if (after := _without_block(before)) is not None:
            replace(after)


def _without_block(content: bytes) -> bytes | None:
    for block in (_BLOCK_AFTER_NO_NEWLINE, _BLOCK):
        head, found, tail = content.partition(block)
        if found:
            return head + tail
    return None


def _is_extended(where: Git, common_dir: Path) -> bool:
    asked = ("config", "--file", common_dir / "config", "--bool", "--get", "extensions.worktreeConfig")
    return git.run(where, *asked, accept=(0, 1, 128)).stdout.strip() == b"true"


def _shared(common_dir: Path) -> Path:
    return (common_dir / "config").resolve()  # git, too, replaces what a symlink names


@contextlib.contextmanager
def _locked(common_dir: Path) -> Iterator[tuple[bytes, Callable[[bytes], object]]]:
    """Hold git's lock of the shared configuration; yield its content, and what replaces it."""
    path = _shared(common_dir)
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            break
        except FileExistsError:
            if time.monotonic() >= deadline:
                raise ConflictError(
                    f"{lock} is there: somebody changes the configuration", f"if nobody does: rm {lock}"
                ) from None
            time.sleep(_PAUSE)
    try:
        yield path.read_bytes(), partial(files.replace, path)
    finally:
        lock.unlink(missing_ok=True)
