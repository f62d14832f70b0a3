"""Give one worktree a configuration of its own, for whoever works there: hooks off, a part of the files.

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
import re
import time
from functools import partial
from typing import TYPE_CHECKING

from ralph_wrap import git
from ralph_wrap.errors import ConflictError, RefusedError
from ralph_wrap.system import files
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.metadata import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.worktree.model import LinkedWorktree

_OLDEST = (2, 20)  # knows extensions.worktreeConfig
_SECTION = b"[extensions]\n\tworktreeConfig = true\n"
_BLOCK = b"# ralph-wrap: for worktrees without hooks, goes with the last of them\n" + _SECTION
_BLOCK_AFTER_NO_NEWLINE = (
    b"\n# ralph-wrap: for worktrees without hooks, goes with the last of them, and so does the line break\n"
    + _SECTION
)
HOOKS_OFF = ("hooksPath", "/dev/null")
"""Key below ``core``, and value."""
_OWN_FILE = "config.worktree"
_OURS = re.compile(  # also without what somebody has changed since
    rb"# ralph-wrap: for worktrees without hooks, goes with the last of them"
    rb"(?P<broken>, and so does the line break)?\r?\n"
    rb"(?:(?P<header>\[extensions\]\r?\n)(?:\tworktreeConfig = true(?:\r?\n|\Z))?)?"
)
_HOLDER = b"ralph-wrap\n"  # in the lock; git looks at nothing but its being there
_PATIENCE = 5.0  # seconds to wait for git's lock; git itself does not wait
_PAUSE = 0.02  # seconds between two tries


def require_configurable(where: Git, repository: Repository) -> None:
    """Make sure that one worktree can have a configuration of its own without harm to the others.

    Raises:
        RefusedError: they cannot.
        OSError: the repository cannot be locked.

    """
    instead = "--hooks on, without --sparse and --link, needs none"
    if repository.git_version < _OLDEST:
        raise RefusedError(
            "git before 2.20 cannot configure one worktree alone, to switch hooks off in it", instead
        )
    with repository_lock(repository.common_dir):  # whoever configures one has not done half of it
        _require_harmless(where, repository.common_dir, instead)


def _require_harmless(where: Git, common_dir: Path, instead: str) -> None:
    if _is_extended(where, common_dir):
        return
    shared = common_dir / "config"
    bare = git.run(where, "config", "--file", shared, "--bool", "--get", "core.bare", accept=(0, 1, 128))
    if bare.stdout.strip() == b"true":
        raise RefusedError("core.bare stands in the shared configuration, which others would lose", instead)
    if git.run(where, "config", "--file", shared, "--get", "core.worktree", accept=(0, 1)).status == 0:
        raise RefusedError(
            "core.worktree stands in the shared configuration: all worktrees would get it", instead
        )
    ours = {registration for registration, mark in marked(common_dir).items() if mark.configured}
    if there := [path for path in _own_configurations(common_dir) if path.parent not in ours]:
        raise RefusedError(f"{there[0]}, which git does not read so far, would come into force", instead)


def configure(where: Git, worktree: LinkedWorktree, core: Collection[tuple[str, str]]) -> None:
    """Give a worktree that is being made a configuration of its own; the repository's lock is held.

    Arguments:
        core: keys below ``core``, and values.

    Raises:
        ConflictError: somebody else holds the lock of the configuration.
        OSError: it cannot be written.

    """
    if not _is_extended(where, worktree.common_dir):
        with _locked(worktree.common_dir) as (before, replace):
            replace(before + (_BLOCK if before.endswith(b"\n") or not before else _BLOCK_AFTER_NO_NEWLINE))
    # Last: killed before it, there is no such file that nobody reads.
    # What git has copied from the main checkout's (git-worktree(1): add) stays in force.
    for key, value in core:
        git.run(where, "config", "--file", worktree.registration / _OWN_FILE, f"core.{key}", value)


def tidy_hooks(common_dir: Path) -> None:
    """Take our lines out of the shared configuration if nobody needs them; the repository's lock is held.

    Whoever has a worktree's own configuration needs them by now, whoever wrote it: ``git sparse-checkout``,
    for one, does.

    Raises:
        ConflictError: somebody else holds the lock of the configuration.
        OSError: the same, or it cannot be read or written.

    """
    if any(mark.configured for mark in marked(common_dir).values()) or _own_configurations(common_dir):
        return
    before = _shared(common_dir).read_bytes()
    if without_ours(before) == before:
        return
    with _locked(common_dir) as (before, replace):
        if (after := without_ours(before)) != before:
            replace(after)


def without_ours(content: bytes) -> bytes:
    """Return the configuration without our lines, and with what others have added to them."""
    while found := _OURS.search(content):
        head, tail = content[: found.start()], content[found.end() :]
        if found["broken"]:
            head = head.removesuffix(b"\n")
            if tail:  # somebody has added to it
                head += b"\n"
        if found["header"] and _begins_with_a_key(tail):
            head += found["header"]
        content = head + tail
    return content


def _begins_with_a_key(tail: bytes) -> bool:
    lines = (line.strip() for line in tail.splitlines())
    first = next((line for line in lines if line and not line.startswith((b"#", b";"))), b"[")
    return not first.startswith(b"[")


def _own_configurations(common_dir: Path) -> list[Path]:
    """Return the files that are read only with the extension (git-worktree(1): CONFIGURATION FILE)."""
    places = (common_dir / _OWN_FILE, *common_dir.glob(f"worktrees/*/{_OWN_FILE}"))
    return [path for path in places if os.path.lexists(path)]


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
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                os.write(descriptor, _HOLDER)
            finally:
                os.close(descriptor)
            break
        except FileExistsError:
            if _is_left(lock):
                lock.unlink(missing_ok=True)
                continue
            if time.monotonic() >= deadline:
                raise ConflictError(
                    f"{lock} is there: somebody changes the configuration", f"if nobody does: rm {lock}"
                ) from None
            time.sleep(_PAUSE)
    try:
        yield path.read_bytes(), partial(files.replace, path)
    finally:
        lock.unlink(missing_ok=True)


def _is_left(lock: Path) -> bool:
    """Tell whether a lock is one of ours: who made it is dead, since we hold the lock of the repository."""
    try:
        return files.read(lock) == _HOLDER
    except OSError:
        return False
