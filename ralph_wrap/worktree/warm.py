"""Warm worktrees: checked out beforehand, detached and locked, until a session takes one.

The registration of a warm worktree has a name of its own, and says in one file at which commit everything
is checked out. Without that file it is unfinished: whoever made it works on it, or was killed.

A session takes one under the repository's lock. First the registration names the session's place: from then
on the worktree is the session's, and whoever finds it half-way goes on (:func:`complete`). The files are
moved by one rename, so their index stays valid; the registration gets the session's name last. That one file
goes once the session's own commit is checked out: until then, what differs from that may be from before.

Nobody works in a warm worktree. One in which somebody did is not taken, and not removed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import files, git
from ralph_wrap.worktree.add import pointer_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.git import Git, Repository

_KEPT = Path("kept")  # in the pool: directories of sessions' worktrees, by session
READY = "ralph-wrap-warm"
"""In a registration: at which commit the worktree was ready, until a session has it as it wants it."""

_REASON = "ralph-wrap pool"
_NAME = re.compile(r"warm-[0-9a-f]{8}")
_HIDDEN = rb"(?:\A|\0)[a-zS] "  # assume-unchanged, skip-worktree: git does not look at the file
_LOOKS = 2  # at one that turns out to be changed, before a session makes a worktree of its own
_REGISTERED = {"HEAD", "commondir", "gitdir", "index", "locked", "logs", "refs", READY} | {
    *("config.worktree", "info")  # copied by `git worktree add` from a sparse checkout
}
_HOUR = 3600.0  # seconds; at low priority a large checkout may have to wait for others


class Warm(NamedTuple):
    """A warm worktree.

    Attributes:
        path: its directory, in the pool.
        registration: ``.git/worktrees/<name>``.
        commit: at which everything is checked out; ``None`` if it is unfinished.

    """

    path: Path
    registration: Path
    commit: str | None

    def git(self, where: Git, repository: Repository) -> Git:
        """Return git for it."""
        return where._replace(
            cwd=self.path,
            git_dir=self.registration,
            common_dir=repository.common_dir,
            work_tree=self.path,
            config=git.file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
        )

    def is_untouched(self) -> bool:
        """Tell whether it is ready, and nobody has worked with git in it; its files are not looked at."""
        registration = self.registration
        try:
            return (
                self.commit is not None
                and _is_whole(self)
                and files.read(registration / "HEAD") == f"{self.commit}\n".encode()
                and not any((registration / "logs").iterdir())
                and not any(path.is_file() for path in (registration / "refs").rglob("*"))
                and {path.name for path in registration.iterdir()} <= _REGISTERED
            )
        except OSError:
            return False

    def take(self, path: Path, branch: str, reason: str) -> Path:
        """Make it a session's, under the repository's lock, and return its registration.

        What is checked out stays at the commit it was at.

        Arguments:
            path: where it is to be; there is nothing, or an empty directory.
            branch: of the session; it is there.
            reason: of the registration's lock.

        Raises:
            OSError: it cannot be moved.

        """
        files.replace(self.registration / "gitdir", os.fsencode(path / ".git") + b"\n", sync=False)
        return complete(self.registration, self.path.parent, path, branch, reason)

    def settle(self, registration: Path) -> None:
        """Note that a session has checked out in it what it wants.

        Arguments:
            registration: the one that :meth:`take` returned.

        Raises:
            OSError: that cannot be done.

        """
        (registration / READY).unlink()


def is_warm(registration: Path) -> bool:
    """Tell whether a registration has the name of a warm worktree's."""
    return _NAME.fullmatch(registration.name) is not None


def in_pool(common_dir: Path, pool: Path) -> list[Warm]:
    """Return the warm worktrees of a pool, unfinished ones included.

    Arguments:
        common_dir: of the repository.
        pool: where they are.

    """
    found = (Warm(pool / path.name, path, None) for path in sorted(common_dir.glob("worktrees/warm-*")))
    return [warm._replace(commit=taken_at(warm.registration)) for warm in found if _is_whole(warm)]


def _is_whole(warm: Warm) -> bool:
    """Tell whether directory and registration name each other, perhaps under the path of another mount."""
    if not is_warm(warm.registration) or warm.path.is_symlink() or not (warm.registration / "HEAD").is_file():
        return False
    tail = os.fsencode("/" + "/".join((*warm.path.parts[-4:], ".git")) + "\n")
    try:
        return (
            files.read(warm.registration / "gitdir").endswith(tail)
            and files.read(warm.path / ".git") == pointer_to(warm.registration, warm.path)
            and (warm.registration / "commondir").is_file()
        )
    except OSError:
        return False


def taken_at(registration: Path) -> str | None:
    """Return the commit at which a worktree was ready; ``None`` once a session has it as it wants it."""
    try:
        found = re.fullmatch(rb"([0-9a-f]{40}|[0-9a-f]{64})\n", files.read(registration / READY))
    except OSError:
        return None
    return found[1].decode() if found else None


def choose(
    where: Git, repository: Repository, pool: Path, meanwhile: Callable[[], object] = lambda: None
) -> Warm | None:
    """Return a warm worktree in which nobody has changed anything, ``None`` if there is none.

    Arguments:
        where: git at the project root.
        repository: the project's.
        pool: where they are.
        meanwhile: called while git looks.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    if pool.is_symlink():
        return None
    ready = [warm for warm in in_pool(repository.common_dir, pool) if warm.is_untouched()]
    mine = [warm for warm in ready if warm.path.stat().st_uid == os.geteuid()]
    # In any order: sessions that start together look at different ones.
    for warm in sorted(mine, key=lambda _: os.urandom(4))[:_LOOKS]:
        here = warm.git(where, repository)
        with git.start_status(here) as asking, git.start(here, "ls-files", "-v", "-z") as entries:
            meanwhile()
            status = git.parse_status(git.finish(asking, "status").stdout)
            listing = git.finish(entries, "ls-files").stdout
        if status.clean and not re.search(_HIDDEN, listing):
            return warm
    return None


def complete(registration: Path, pool: Path, path: Path, branch: str, reason: str) -> Path:
    """Do what is left of :meth:`Warm.take` once the registration names the session's place.

    Arguments:
        registration: as it was found.
        pool: where the directory was.
        path: as in :meth:`Warm.take`, and the next two.
        branch: see there.
        reason: see there.

    Raises:
        OSError: something cannot be written or moved.

    """
    final = registration.with_name(path.name)
    files.replace(registration / "locked", os.fsencode(f"{reason}\n"), sync=False)
    files.replace(registration / "HEAD", os.fsencode(f"ref: refs/heads/{branch}\n"), sync=False)
    directory = pool / registration.name
    if directory.is_dir() and not directory.is_symlink():
        for left in files.temporaries(directory / ".git"):  # whoever was killed at this
            left.unlink()
        files.replace(directory / ".git", pointer_to(final, path), sync=False)
        directory.rename(path)
    registration.rename(final)
    return final
