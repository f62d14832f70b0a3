"""Warm worktrees: checked out in advance, detached and locked, until a session takes one.

The registration of a warm worktree has a special name. One file in it, ``READY``, names the commit that is
checked out. Without this file the worktree is unfinished: the process that makes it is at work, or was
killed. The file also identifies the index after the checkout. While the index is the same, no process has to
read its entries.

A session takes a warm worktree under the repository's lock. First the registration gets the session's mark.
From then on the worktree belongs to the session, and after a kill a sweep completes the rest
(:func:`complete`). One rename moves the files, so their index stays valid. Last, the registration gets the
session's name. The session deletes ``READY`` after it has checked out its own commit. Until then, differences
from this commit may be older than the session.

No process works in a warm worktree. If a user worked in one, or has locked it, no session takes it, and it
is not removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.git import Git, Repository, decode, file_system_config, finish_git, pointer, run_git
from ralph_wrap.git.index import IndexListing, list_index
from ralph_wrap.git.oid import OID
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.system import files, process_table
from ralph_wrap.worktree.model import WARM
from ralph_wrap.worktree.ownership import (
    MARK,
    WorktreeOwner,
    describe,
    is_locked_for,
    names_registration,
    read_mark,
    write_mark,
)
from ralph_wrap.worktree.register import pointer_to

READY = "ralph-wrap-warm"
"""The file in a registration with the checked out commit, until a session has checked out its own commit.
Its next line identifies the index, if git checks every file that the index lists."""

REASON = "ralph-wrap pool"
"""The reason of the lock on its registration."""

_READY = re.compile(f"({OID})\n(.+\n)?".encode())
_TAIL = 4  # parts of a path: .ralph/run/pool/<name>
_LOOKS = 2  # warm worktrees that a session checks before it makes a new one
_REGISTERED = {"HEAD", "commondir", pointer.BACK, "index", "locked", "logs", "refs", READY} | {
    *("config.worktree", "info")  # copied by `git worktree add` from a sparse checkout
}


class WarmWorktree(NamedTuple):
    """A warm worktree.

    Attributes:
        path: its directory, in the pool.
        registration: ``.git/worktrees/<name>``.
        commit: the commit that is checked out; ``None`` if it is unfinished.

    """

    path: Path
    registration: Path
    commit: str | None

    def git(self, git: Git, repository: Repository) -> Git:
        """Return git in this worktree."""
        return git._replace(
            cwd=self.path,
            git_dir=self.registration,
            common_dir=repository.common_dir,
            work_tree=self.path,
            config=file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
        )

    def is_untouched(self) -> bool:
        """Return whether it is ready, and no git command has changed it; its files are not checked."""
        registration = self.registration
        try:
            return (
                self.commit is not None
                and _is_whole(self)
                and is_locked_for(registration, REASON)
                and files.read(registration / "HEAD") == f"{self.commit}\n".encode()
                and not any(path.is_file() for path in files.files_below(registration / "logs"))
                and not any(path.is_file() for path in files.files_below(registration / "refs"))
                and {path.name for path in registration.iterdir()} <= _REGISTERED
            )
        except OSError:
            return False

    def take(self, path: Path, branch: str, owner: WorktreeOwner) -> Path:
        """Give it to a session, and return its registration; the caller holds the repository's lock.

        The files stay at the commit that is checked out.

        Arguments:
            path: the new directory, which does not exist or is empty.
            branch: the existing branch of the session.
            owner: the owner of the worktree, which is the session.

        Raises:
            OSError: it cannot be moved.

        """
        assert owner.mark is not None
        write_mark(self.registration, owner.mark)
        try:
            return complete(self.registration, self.path.parent, path, branch, owner)
        except (OSError, RefusedError) as error:
            with contextlib.suppress(OSError):
                self._give_back()
            if isinstance(error, RefusedError):
                raise OSError(errno.ESTALE, error.message, str(self.path)) from None
            raise

    def _give_back(self) -> None:
        """Return it to the pool, as far as possible after an error."""
        if self.path.is_dir():
            files.replace(self.registration / "HEAD", f"{self.commit}\n".encode(), sync=False)
            files.replace(self.registration / "locked", f"{REASON}\n".encode(), sync=False)
            files.replace(self.path / ".git", pointer_to(self.registration, self.path), sync=False)
            files.replace(self.registration / pointer.BACK, pointer.gitdir_content(self.path), sync=False)
            (self.registration / MARK).unlink(missing_ok=True)


def settle(registration: Path) -> None:
    """Record that a session has checked out its own commit in a worktree that was warm.

    Arguments:
        registration: the result of :meth:`WarmWorktree.take`.

    Raises:
        OSError: the file cannot be deleted.

    """
    (registration / READY).unlink()


def is_warm(registration: Path) -> bool:
    """Return whether a registration has the name of a warm worktree."""
    return WARM.fits(registration.name)


def in_pool(common_dir: Path, pool: Path) -> list[WarmWorktree]:
    """Return the warm worktrees of a pool, unfinished ones included."""
    registrations = sorted(common_dir.glob(f"worktrees/{WARM.pattern}"))
    found = (WarmWorktree(pool / path.name, path, None) for path in registrations)
    return [warm._replace(commit=taken_at(warm.registration)) for warm in found if _is_whole(warm)]


def _is_whole(warm: WarmWorktree) -> bool:
    """Return whether directory and registration name each other, perhaps under the path of another mount."""
    if not is_warm(warm.registration) or warm.path.is_symlink() or not (warm.registration / "HEAD").is_file():
        return False
    if read_mark(warm.registration) is not None:  # a session has begun to take it
        return False
    try:
        return (
            pointer.is_below_some_mount(files.read(warm.registration / pointer.BACK), warm.path, _TAIL)
            and files.read(warm.path / ".git") == pointer_to(warm.registration, warm.path)
            and (warm.registration / "commondir").is_file()
        )
    except OSError:
        return False


def taken_at(registration: Path) -> str | None:
    """Return the commit of the warm checkout; ``None`` after a session has checked out its own commit."""
    try:
        match = _READY.fullmatch(files.read(registration / READY))
    except OSError:
        return None
    return match[1].decode() if match else None


def choose(
    git: Git,
    repository: Repository,
    pool: Path,
    *,
    base: str,
    beside: Path,
    keep: Collection[str],
) -> WarmWorktree | None:
    """Return an unchanged warm worktree, ``None`` if there is none.

    Arguments:
        base: the commit that the session needs.
        beside: the parent of its new directory.
        keep: ignored directories that may be in it.

    """
    with contextlib.suppress(OSError):
        if pool.is_symlink() or pool.stat().st_dev != beside.stat().st_dev:
            return None
    # In random order, so that sessions that start together check different ones.
    candidates = sorted(in_pool(repository.common_dir, pool), key=lambda _: os.urandom(4))
    for warm in [warm for warm in candidates if warm.is_untouched()][:_LOOKS]:
        with contextlib.suppress(GitError, OSError):  # another session has taken it meanwhile
            worktree_git = warm.git(git, repository)
            if (
                warm.path.stat().st_uid == os.geteuid()
                and has_unchanged_files(warm, worktree_git, keep)
                and not process_table.occupants(warm.path)
                and _leads_to(warm, worktree_git, base, keep)
            ):
                return warm
    return None


def has_unchanged_files(warm: WarmWorktree, git: Git, keep: Collection[str]) -> bool:
    """Return whether the files of a warm worktree are unchanged since the checkout.

    Arguments:
        keep: ignored directories that may be in it.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    with start_status(git) as running:
        index = _index(warm.registration)
        listing = IndexListing(b"") if index == _vouching(warm.registration) else list_index(git)
        status = parse_status(finish_git(running, "status").stdout)
    submodules = (warm.path / entry.path for entry in listing.submodules())
    return (
        status.clean
        and {*status.ignored} <= {f"{name}/" for name in keep}
        and not any(listing.hidden())
        and not any(any(path.iterdir()) for path in submodules if path.is_dir())
    )


def ready(registration: Path, commit: str, git: Git) -> bytes:
    """Return the content of ``READY`` for a worktree right after its checkout.

    Arguments:
        commit: the commit that is checked out.

    Raises:
        GitError: git cannot read the index.
        OSError: the index cannot be read.

    """
    index = _index(registration)
    listing = list_index(git)
    looks_at_all = not any(listing.hidden()) and not any(listing.submodules())
    return f"{commit}\n".encode() + (index if looks_at_all else b"")


def _index(registration: Path) -> bytes:
    """Return a value that changes whenever git writes the index."""
    status = (registration / "index").stat()
    return b"index %d %d %d %d\n" % (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _vouching(registration: Path) -> bytes:
    """Return this value for an index with only files that git checks; nothing if there is none."""
    return files.read(registration / READY).partition(b"\n")[2]


def _leads_to(warm: WarmWorktree, git: Git, base: str, keep: Collection[str]) -> bool:
    """Return whether a checkout of only the differences gives the same files as a new worktree."""
    if warm.commit == base:
        return True
    answer = run_git(git, "diff-tree", "-r", "-z", "--name-only", "--no-renames", str(warm.commit), base)
    changed = [PurePosixPath(decode(path)) for path in answer.stdout.split(b"\0")[:-1]]
    kept = [PurePosixPath(name) for name in keep if os.path.lexists(warm.path / name)]
    return not any(
        path.name == ".gitattributes"  # unchanged files may need other conversions
        or (kept and path.name == ".gitignore")  # a kept directory may no longer be ignored
        or any(path == name or path in name.parents or name in path.parents for name in kept)
        for path in changed
    )


def complete(registration: Path, pool: Path, path: Path, branch: str, owner: WorktreeOwner) -> Path:
    """Complete :meth:`WarmWorktree.take` for a registration that has the session's mark.

    Arguments:
        registration: the registration under its present name.
        pool: the directory of the pool.
        path: the new directory, as in :meth:`WarmWorktree.take`.
        branch: the session's branch.
        owner: the owner of the worktree, which is the session.

    Raises:
        RefusedError: another directory is in the place of the worktree; it is not touched.
        OSError: a file cannot be written or moved.

    """
    final = registration.with_name(path.name)
    directory = pool / registration.name
    waits = os.path.lexists(directory)
    if waits and not (
        names_registration(directory, registration) or names_registration(directory, final, path=path)
    ):
        raise RefusedError(f"its worktree was moved or replaced: {describe(directory)}", "git worktree list")
    files.replace(registration / pointer.BACK, pointer.gitdir_content(path), sync=False)
    files.replace(registration / "locked", os.fsencode(f"{owner.lock}\n"), sync=False)
    files.replace(registration / "HEAD", os.fsencode(f"ref: refs/heads/{branch}\n"), sync=False)
    if waits:
        for leftover in files.temporaries(directory / ".git"):  # a session was killed here
            leftover.unlink()
        files.replace(directory / ".git", pointer_to(final, path), sync=False)
        directory.rename(path)
    registration.rename(final)
    return final
