"""Warm worktrees: checked out beforehand, detached and locked, until a session takes one.

The registration of a warm worktree has a name of its own, and says in one file at which commit everything
is checked out. Without that file it is unfinished: whoever made it works on it, or was killed. The same file
says which index vouches for that; while that index is there, nobody has to read it to learn what it holds.

A session takes one under the repository's lock. First the registration gets the session's mark: from then on
the worktree is the session's, and a sweep that finds it half-way goes on (:func:`complete`). The files are
moved by one rename, so their index stays valid; the registration gets the session's name last. That one file
goes once the session's own commit is checked out: until then, what differs from that may be from before.

Nobody works in a warm worktree. One in which a user did, or that a user has locked, is not taken, and not
removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.system import directory_users, files
from ralph_wrap.worktree.ownership import (
    MARK,
    Owner,
    describe,
    is_locked_for,
    names_registration,
    read_mark,
    write_mark,
)
from ralph_wrap.worktree.register import pointer_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.git import Git, Repository

READY = "ralph-wrap-warm"
"""In a registration: at which commit the worktree was ready, until a session has it as it wants it; on the
next line its index, if git looks at every file which that lists."""

REASON = "ralph-wrap pool"
"""Why its registration is locked."""

_NAME = re.compile(r"warm-[0-9a-f]{8}")
_HIDDEN = rb"(?:\A|\0)[a-zS] "  # assume-unchanged, skip-worktree: git does not look at the file
_SUBMODULE = rb"(?:\A|\0). 160000 [0-9a-f]+ \d\t([^\0]+)"  # nor below it
_LOOKS = 2  # at one that turns out to be changed, before a session makes a worktree of its own
_REGISTERED = {"HEAD", "commondir", "gitdir", "index", "locked", "logs", "refs", READY} | {
    *("config.worktree", "info")  # copied by `git worktree add` from a sparse checkout
}


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
                and is_locked_for(registration, REASON)
                and files.read(registration / "HEAD") == f"{self.commit}\n".encode()
                and not any(path.is_file() for path in (registration / "logs").rglob("*"))
                and not any(path.is_file() for path in (registration / "refs").rglob("*"))
                and {path.name for path in registration.iterdir()} <= _REGISTERED
            )
        except OSError:
            return False

    def take(self, path: Path, branch: str, owner: Owner) -> Path:
        """Make it a session's, under the repository's lock, and return its registration.

        What is checked out stays at the commit it was at.

        Arguments:
            path: where it is to be; there is nothing, or an empty directory.
            branch: of the session; it is there.
            owner: the session.

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
        """Be in the pool again, as far as that is possible where something has just failed."""
        if self.path.is_dir():
            files.replace(self.registration / "HEAD", f"{self.commit}\n".encode(), sync=False)
            files.replace(self.registration / "locked", f"{REASON}\n".encode(), sync=False)
            files.replace(self.path / ".git", pointer_to(self.registration, self.path), sync=False)
            files.replace(self.registration / "gitdir", _back_to(self.path), sync=False)
            (self.registration / MARK).unlink(missing_ok=True)


def settle(registration: Path) -> None:
    """Note that a session has checked out what it wants in a worktree that was warm.

    Arguments:
        registration: the one that :meth:`Warm.take` returned.

    Raises:
        OSError: that cannot be done.

    """
    (registration / READY).unlink()


def _back_to(path: Path) -> bytes:
    return os.fsencode(path / ".git") + b"\n"


def is_warm(registration: Path) -> bool:
    """Tell whether a registration has the name of a warm worktree's."""
    return _NAME.fullmatch(registration.name) is not None


def in_pool(common_dir: Path, pool: Path) -> list[Warm]:
    """Return the warm worktrees of a pool, unfinished ones included."""
    found = (Warm(pool / path.name, path, None) for path in sorted(common_dir.glob("worktrees/warm-*")))
    return [warm._replace(commit=taken_at(warm.registration)) for warm in found if _is_whole(warm)]


def _is_whole(warm: Warm) -> bool:
    """Tell whether directory and registration name each other, perhaps under the path of another mount."""
    if not is_warm(warm.registration) or warm.path.is_symlink() or not (warm.registration / "HEAD").is_file():
        return False
    if read_mark(warm.registration) is not None:  # a session has begun to take it
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
        found = re.fullmatch(rb"([0-9a-f]{40}|[0-9a-f]{64})\n(.+\n)?", files.read(registration / READY))
    except OSError:
        return None
    return found[1].decode() if found else None


def choose(
    where: Git,
    repository: Repository,
    pool: Path,
    *,
    base: str,
    beside: Path,
    keep: Collection[str],
    meanwhile: Callable[[], object] = lambda: None,
) -> Warm | None:
    """Return a warm worktree in which nobody has done anything, ``None`` if there is none.

    Arguments:
        base: the commit that is wanted.
        beside: the directory into which it will be moved.
        keep: ignored directories that may be in it.
        meanwhile: called while git looks.

    """
    with contextlib.suppress(OSError):
        if pool.is_symlink() or pool.stat().st_dev != beside.stat().st_dev:
            return None
    # In any order: sessions that start together look at different ones.
    candidates = sorted(in_pool(repository.common_dir, pool), key=lambda _: os.urandom(4))
    for warm in [one for one in candidates if one.is_untouched()][:_LOOKS]:
        with contextlib.suppress(GitError, OSError):  # somebody else has taken it meanwhile
            here = warm.git(where, repository)
            if (
                warm.path.stat().st_uid == os.geteuid()
                and holds_nothing(warm, here, keep, meanwhile)
                and not directory_users.occupants(warm.path)
                and _leads_to(warm, here, base, keep)
            ):
                return warm
    return None


def holds_nothing(
    warm: Warm, here: Git, keep: Collection[str], meanwhile: Callable[[], object] = lambda: None
) -> bool:
    """Tell whether the files of a warm worktree are as they were checked out.

    Arguments:
        keep: ignored directories that may be in it.
        meanwhile: called while git looks.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    with git.start_status(here) as asking:
        index = _index(warm.registration)
        listing = b"" if index == _vouching(warm.registration) else _entries(here)
        meanwhile()
        status = git.parse_status(git.finish(asking, "status").stdout)
    submodules = (warm.path / git.text(path) for path in re.findall(_SUBMODULE, listing))
    return (
        status.clean
        and {*status.ignored} <= {f"{name}/" for name in keep}
        and not re.search(_HIDDEN, listing)
        and not any(any(path.iterdir()) for path in submodules if path.is_dir())
    )


def ready(registration: Path, commit: str, here: Git) -> bytes:
    """Return what a registration says of a worktree in which everything was just checked out.

    Arguments:
        commit: which was checked out.

    Raises:
        GitError: the index cannot be read.
        OSError: the same.

    """
    index = _index(registration)
    listing = _entries(here)
    looks_at_all = not re.search(_HIDDEN, listing) and not re.search(_SUBMODULE, listing)
    return f"{commit}\n".encode() + (index if looks_at_all else b"")


def _entries(here: Git) -> bytes:
    return git.run(here, "ls-files", "-v", "-s", "-z").stdout


def _index(registration: Path) -> bytes:
    """Return what changes whenever git writes the index."""
    found = (registration / "index").stat()
    return b"index %d %d %d %d\n" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _vouching(registration: Path) -> bytes:
    """Return the same of the index that lists only files which git looks at; nothing if there is none."""
    return files.read(registration / READY).partition(b"\n")[2]


def _leads_to(warm: Warm, here: Git, base: str, keep: Collection[str]) -> bool:
    """Tell whether checking out the difference alone makes of it what a new worktree would be."""
    if warm.commit == base:
        return True
    answer = git.run(here, "diff-tree", "-r", "-z", "--name-only", "--no-renames", str(warm.commit), base)
    changed = [PurePosixPath(git.text(path)) for path in answer.stdout.split(b"\0")[:-1]]
    there = [PurePosixPath(name) for name in keep if os.path.lexists(warm.path / name)]
    return not any(
        path.name == ".gitattributes"  # other conversions for files that stay
        or (there and path.name == ".gitignore")  # what is kept might be ignored no more
        or any(path == name or path in name.parents or name in path.parents for name in there)
        for path in changed
    )


def complete(registration: Path, pool: Path, path: Path, branch: str, owner: Owner) -> Path:
    """Do what is left of :meth:`Warm.take` once the registration bears the session's mark.

    Arguments:
        registration: as it was found.
        pool: where the directory was.
        path: as in :meth:`Warm.take`, and the next two.
        branch: see there.
        owner: see there.

    Raises:
        RefusedError: another directory is in the place of the worktree; it is not touched.
        OSError: something cannot be written or moved.

    """
    final = registration.with_name(path.name)
    directory = pool / registration.name
    waits = os.path.lexists(directory)
    if waits and not (
        names_registration(directory, registration) or names_registration(directory, final, path=path)
    ):
        raise RefusedError(f"its worktree was moved or replaced: {describe(directory)}", "git worktree list")
    files.replace(registration / "gitdir", _back_to(path), sync=False)
    files.replace(registration / "locked", os.fsencode(f"{owner.lock}\n"), sync=False)
    files.replace(registration / "HEAD", os.fsencode(f"ref: refs/heads/{branch}\n"), sync=False)
    if waits:
        for left in files.temporaries(directory / ".git"):  # of a session that was killed at this
            left.unlink()
        files.replace(directory / ".git", pointer_to(final, path), sync=False)
        directory.rename(path)
    registration.rename(final)
    return final
