"""Give one worktree its own git configuration, for example to switch off hooks, or for a sparse checkout.

Git reads the configuration of a worktree (``config.worktree`` in its registration) only if the shared
configuration enables it (git-worktree(1): CONFIGURATION FILE). So the first such worktree adds a few lines to
the shared configuration, and the last one removes them, byte for byte. We never change anything else in it.

Both changes happen under git's own lock of this file. They are refused if they would affect other worktrees.
This is so if the shared file has ``core.bare`` or ``core.worktree``. It is also so if a worktree has a
``config.worktree`` that git does not read yet.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

from ralph_wrap.errors import ConflictError, RefusedError
from ralph_wrap.git import Git, Repository, run_git
from ralph_wrap.system import files
from ralph_wrap.system.text import command
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.metadata import marked
from ralph_wrap.worktree.model import LinkedWorktree

_OLDEST = (2, 20)  # knows extensions.worktreeConfig
_SECTION = b"[extensions]\n\tworktreeConfig = true\n"
_COMMENT = b"# ralph-wrap: for worktrees without hooks, goes with the last of them"
_BLOCK = _COMMENT + b"\n" + _SECTION
_BLOCK_AFTER_NO_NEWLINE = b"\n" + _COMMENT + b", and so does the line break\n" + _SECTION
HOOKS_OFF = ("hooksPath", "/dev/null")
"""A key below ``core``, and its value."""
_OWN_FILE = "config.worktree"
_OURS = re.compile(  # it also matches after a user has changed the lines
    _COMMENT + rb"(?P<broken>, and so does the line break)?\r?\n"
    rb"(?:(?P<header>\[extensions\]\r?\n)(?:\tworktreeConfig = true(?:\r?\n|\Z))?)?"
)
_HOLDER = b"ralph-wrap\n"  # content of the lock; git only checks that the file exists
_PATIENCE = 5.0  # seconds to wait for git's lock; git itself does not wait
_PAUSE = 0.02  # seconds between two tries


def require_configurable(git: Git, repository: Repository) -> None:
    """Check that one worktree can have its own configuration without an effect on other worktrees.

    Raises:
        RefusedError: other worktrees would change.
        OSError: the repository cannot be locked.

    """
    instead = "use --hooks on, without --sparse and --link"
    if repository.git_version < _OLDEST:
        raise RefusedError("git before 2.20 cannot switch off hooks in one worktree alone", instead)
    with repository_lock(repository.common_dir):  # no other process is half-way through configure
        _require_harmless(git, repository.common_dir, instead)


def _require_harmless(git: Git, common_dir: Path, instead: str) -> None:
    if _is_extended(git, common_dir):
        return
    shared = common_dir / "config"
    bare = run_git(git, "config", "--file", shared, "--bool", "--get", "core.bare", accept=(0, 1, 128))
    if bare.stdout.strip() == b"true":
        raise RefusedError(
            "the shared configuration has core.bare, which other worktrees would lose", instead
        )
    if run_git(git, "config", "--file", shared, "--get", "core.worktree", accept=(0, 1)).status == 0:
        raise RefusedError(
            "the shared configuration has core.worktree, which all worktrees would get", instead
        )
    ours = {registration for registration, mark in marked(common_dir).items() if mark.configured}
    if unread := [path for path in _own_configurations(common_dir) if path.parent not in ours]:
        raise RefusedError(f"git does not read {unread[0]} now, but would read it afterwards", instead)


def configure(git: Git, worktree: LinkedWorktree, core: Collection[tuple[str, str]]) -> None:
    """Give a new worktree its own configuration; the caller holds the repository's lock.

    Arguments:
        core: keys below ``core``, with values.

    Raises:
        ConflictError: another process holds the lock of the configuration.
        OSError: a file cannot be written.

    """
    if not _is_extended(git, worktree.common_dir):
        with _locked(worktree.common_dir) as (before, replace):
            replace(before + (_BLOCK if before.endswith(b"\n") or not before else _BLOCK_AFTER_NO_NEWLINE))
    # Last, because a kill before it must not leave a file that git does not read yet.
    # The values that git copied from the main checkout (git-worktree(1): add) stay in force.
    for key, value in core:
        run_git(git, "config", "--file", worktree.registration / _OWN_FILE, f"core.{key}", value)


def tidy_hooks(common_dir: Path) -> None:
    """Remove our lines from the shared configuration if no worktree needs them.

    The caller holds the repository's lock. Any worktree with its own configuration needs the lines, even if
    ``git sparse-checkout`` wrote this configuration, for example.

    Raises:
        ConflictError: another process holds the lock of the configuration.
        OSError: the configuration cannot be locked, read or written.

    """
    if any(mark.configured for mark in marked(common_dir).values()) or _own_configurations(common_dir):
        return
    before = _shared(common_dir).read_bytes()
    if without_our_lines(before) == before:
        return
    with _locked(common_dir) as (before, replace):
        if (after := without_our_lines(before)) != before:
            replace(after)


def without_our_lines(content: bytes) -> bytes:
    """Return the configuration without our lines; lines that other programs added to them stay."""
    while match := _OURS.search(content):
        head, tail = content[: match.start()], content[match.end() :]
        if match["broken"]:
            head = head.removesuffix(b"\n")
            if tail:  # another program has added lines
                head += b"\n"
        if match["header"] and _begins_with_a_key(tail):
            head += match["header"]
        content = head + tail
    return content


def _begins_with_a_key(tail: bytes) -> bool:
    lines = (line.strip() for line in tail.splitlines())
    first = next((line for line in lines if line and not line.startswith((b"#", b";"))), b"[")
    return not first.startswith(b"[")


def _own_configurations(common_dir: Path) -> list[Path]:
    """Return the files that git reads only with the extension (git-worktree(1): CONFIGURATION FILE)."""
    paths = (common_dir / _OWN_FILE, *common_dir.glob(f"worktrees/*/{_OWN_FILE}"))
    return [path for path in paths if os.path.lexists(path)]


def _is_extended(git: Git, common_dir: Path) -> bool:
    arguments = ("config", "--file", common_dir / "config", "--bool", "--get", "extensions.worktreeConfig")
    return run_git(git, *arguments, accept=(0, 1, 128)).stdout.strip() == b"true"


def _shared(common_dir: Path) -> Path:
    return (common_dir / "config").resolve()  # git also replaces the target of a symlink


@contextlib.contextmanager
def _locked(common_dir: Path) -> Iterator[tuple[bytes, Callable[[bytes], object]]]:
    """Hold git's lock of the shared configuration; yield its content, and a function that replaces it."""
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
                    f"{lock} exists: another process changes the configuration",
                    f"if no git is running: {command('rm', lock)}",
                ) from None
            time.sleep(_PAUSE)
    try:
        yield path.read_bytes(), partial(files.replace, path)
    finally:
        lock.unlink(missing_ok=True)


def _is_left(lock: Path) -> bool:
    """Return whether a lock file is ours. Its process is dead, since we hold the repository's lock."""
    try:
        return files.read(lock) == _HOLDER
    except OSError:
        return False
