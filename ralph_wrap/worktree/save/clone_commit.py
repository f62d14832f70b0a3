"""Commit the uncommitted work of a clone, as ``commit_each`` wants.

git of ours does not run in a clone. So the commit is made in the replica, then its files are written into the
clone, in the order of ``git commit``: objects, index, branch, reflogs. A kill between two of them leaves the
clone as a killed ``git commit`` does. Git's own locks keep out a git command that the agent has left running.

An agent may have put a symlink in the place of a directory. So each file is reached by descriptors
(``openat(2)``, ``O_NOFOLLOW``) from the top of the clone's repository, never by a path.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import decode, list_refs
from ralph_wrap.git.objects import write_pack
from ralph_wrap.system import files
from ralph_wrap.worktree.create.replica import refresh
from ralph_wrap.worktree.save.checkpoint import commit_all
from ralph_wrap.worktree.save.index import scratch_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST = 1 << 30  # bytes of an index or a reflog


def commit_in_clone(tree: LinkedWorktree, git: Git, message: str) -> bool:
    """Commit the uncommitted work to the session's branch, in the replica and in the clone.

    Arguments:
        tree: the clone.
        git: git in the replica.
        message: the message of the commit.

    Returns:
        Whether there was anything to commit, as ``commit_all`` says.

    Raises:
        GitError: git failed; the work is still uncommitted.
        OSError: a file of the clone cannot be read or written; the same.

    """
    ref = f"refs/heads/{tree.branch}"
    try:
        with locked(tree.path / ".git", "index", ref) as clone:
            refresh(tree, git)
            before = list_refs(git, ref).get(ref)
            _require_plain(tree.registration / ref, before)
            if not commit_all(tree, git, message):
                return False
            commit = list_refs(git, ref)[ref]
            with scratch_in(tree.registration) as scratch:
                (scratch / "pack").mkdir()
                write_pack(git, scratch, [commit], [before] if before else [])
                clone.add_pack(scratch / "pack")
            clone.replace("index", files.read(tree.registration / "index", _LARGEST))
            clone.replace(ref, os.fsencode(f"{commit}\n"))
            line = files.read(tree.registration / "logs" / "HEAD", _LARGEST).splitlines(keepends=True)[-1]
            for log in ("HEAD", ref):
                clone.append(f"logs/{log}", line)
            return True
    except (GitError, OSError):
        with contextlib.suppress(GitError, OSError):
            refresh(tree, git)  # what the clone has counts
        raise


def _require_plain(copy: Path, oid: str | None) -> None:
    """Raise an error unless the branch of a clone is no symbolic ref; a packed one has no file."""
    with contextlib.suppress(FileNotFoundError):
        if decode(files.read(copy, 4096)).strip() != oid:
            raise OSError("the branch of the clone names no commit")


class _CloneFiles:
    """Writes files of a clone's repository; no symlink is followed.

    Arguments:
        top: descriptor of the repository.

    """

    def __init__(self, top: int) -> None:
        self._top = top

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory of a file, and make it if it is missing; yield it and the name of the file."""
        parts = PurePosixPath(path).parts
        descriptor = os.dup(self._top)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor, parts[-1]
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        """Hold the lock that git takes before it changes a file."""
        with self.directory(path) as (directory, name):
            os.close(os.open(f"{name}.lock", _NEW, dir_fd=directory))
            try:
                yield
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{name}.lock", dir_fd=directory)

    def replace(self, path: str, content: bytes) -> None:
        """Replace a file in one step."""
        with self.directory(path) as (directory, name):
            temporary = f"ralph-wrap-{os.urandom(8).hex()}"
            descriptor = os.open(temporary, _NEW, 0o666, dir_fd=directory)
            try:
                try:
                    files.write_all(descriptor, content)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(temporary, dir_fd=directory)
                raise

    def append(self, path: str, line: bytes) -> None:
        """Add a line to a file; a hard link of the agent's leads nowhere, because the file is a new one."""
        with self.directory(path) as (directory, name):
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            except FileNotFoundError:
                before = b""
            else:
                with os.fdopen(descriptor, "rb") as reading:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise OSError(f"{path} is no file any more")
                    before = reading.read(_LARGEST)
        self.replace(path, before + line)

    def add_pack(self, packs: Path) -> None:
        """Copy packs to the objects of the clone: first the objects, then the index that shows them."""
        for suffix in (".pack", ".idx"):
            for path in packs.glob(f"*{suffix}"):
                self.replace(f"objects/pack/{path.name}", path.read_bytes())


@contextlib.contextmanager
def locked(git_dir: Path, *names: str) -> Iterator[_CloneFiles]:
    """Open the repository of a clone, and hold git's locks of some files in it.

    Raises:
        OSError: a git command holds a lock, or a file is not where it belongs.

    """
    top = os.open(git_dir, _DIRECTORY)
    try:
        clone = _CloneFiles(top)
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(clone.lock(name))
            yield clone
    finally:
        os.close(top)
