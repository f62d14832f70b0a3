"""Delete a directory that is open, and nothing else.

Every step uses a descriptor (``openat(2)``, ``unlinkat(2)``, ``O_NOFOLLOW``), never a path. An agent can
replace a directory by a symlink at any moment. With paths, 15 of 1,706 such deletions deleted files in
another project. A directory on another mount is left alone, and so are its parents. ``shutil.rmtree`` would
cross mounts, needs one descriptor a level, and deletes the file that marks a directory as ours in any order.

It also runs as a program, on the standard library alone: ``delete_tree.py LAST PARENT:DIRECTORY:NAME…``.
PARENT and DIRECTORY are inherited descriptors. So no session waits for the deletion of a large worktree.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a directory and follow no symlink."""

_DEEPEST = 64  # directories that are open at once; a process often has 1024 descriptors at most
_OWNER_MAY_ALL = stat.S_IRWXU


class TreeDeletion:
    """The deletion of one directory with everything in it.

    Arguments:
        parent: descriptor of the directory that it is in.
        directory: its own descriptor.
        name: its name in *parent*.
        last: the name of the file to delete last. Until then this file marks the directory as deletable.

    """

    def __init__(self, parent: int, directory: int, name: str, last: str) -> None:
        self._parent = parent
        self._directory = directory
        self._name = name
        self._last = last
        self._mount = mount_of(directory)
        self._changed = False

    def run(self) -> bool:
        """Delete as much as can be deleted, and return whether the directory is gone."""
        while True:
            self._changed = False
            allow_owner(self._directory)
            self._empty(self._directory, 0)
            if self._remove_directory():
                return True
            # Another round follows only if this one changed something. It deletes directories that were too
            # deep, and files that a process has created meanwhile.
            if not self._changed:
                return False

    def _empty(self, directory: int, depth: int) -> None:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            if depth == 0 and name == self._last and not is_directory:
                continue
            with contextlib.suppress(OSError):  # an entry that cannot be deleted stays
                if is_directory:
                    self._delete_below(directory, name, depth)
                else:
                    _unlink(name, directory)
                    self._changed = True

    def _delete_below(self, directory: int, name: str, depth: int) -> None:
        if depth >= _DEEPEST:
            higher = f"deep-{os.urandom(8).hex()}"
            os.rename(name, higher, src_dir_fd=directory, dst_dir_fd=self._directory)
            self._changed = True
            return
        inner = _open(name, directory)
        try:
            if mount_of(inner) != self._mount:
                return
            allow_owner(inner)
            self._empty(inner, depth + 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=directory)
        self._changed = True

    def _remove_directory(self) -> bool:
        content = _read(self._last, self._directory)
        try:
            os.unlink(self._last, dir_fd=self._directory)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        try:
            current = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
            if os.path.samestat(current, os.fstat(self._directory)):
                os.rmdir(self._name, dir_fd=self._parent)
        except FileNotFoundError:
            return True
        except OSError:
            with contextlib.suppress(OSError):
                write_new(self._last, self._directory, content)
            return False
        return True


def mount_of(descriptor: int) -> tuple[int, bytes]:
    """Return the identity of a mount. A bind mount has the device of its origin, but its own id (proc(5))."""
    content = b""
    with contextlib.suppress(OSError):
        content = _read(f"/proc/self/fdinfo/{descriptor}", None)
    rows = [row.split() for row in content.split(b"\n") if row.startswith(b"mnt_id:")]
    return os.fstat(descriptor).st_dev, rows[0][1] if rows else b""


def allow_owner(directory: int) -> None:
    """Let the owner of a directory delete in it: Go's module cache has directories that cannot be written.

    A file keeps its mode. It may have another name elsewhere, by a hard link.
    """
    if stat.S_IMODE(os.fstat(directory).st_mode) & _OWNER_MAY_ALL != _OWNER_MAY_ALL:
        with contextlib.suppress(OSError):
            os.fchmod(directory, _OWNER_MAY_ALL)


def write_new(name: str, directory: int, content: bytes) -> None:
    """Write a file that does not exist yet, in an open directory.

    Raises:
        OSError: it exists, or cannot be written; then no part of it stays.

    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=directory)
    try:
        os.write(descriptor, content)
    except OSError:
        os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _read(name: str, directory: int | None) -> bytes:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _open(name: str, directory: int) -> int:
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    except PermissionError:
        pass  # a directory that its owner may not read opens as a path alone (open(2), O_PATH)
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{path}", _OWNER_MAY_ALL)  # noqa: PTH101 -- a descriptor
        return os.open(f"/proc/self/fd/{path}", OPEN_DIRECTORY & ~os.O_NOFOLLOW)
    finally:
        os.close(path)


def _unlink(name: str, directory: int) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except (IsADirectoryError, PermissionError):  # POSIX has EPERM for a directory that took its place
        os.rmdir(name, dir_fd=directory)


if __name__ == "__main__":
    last_of_all, *orders = sys.argv[1:]
    for order in orders:
        above, opened, its_name = order.split(":", 2)
        with contextlib.suppress(OSError):
            TreeDeletion(int(above), int(opened), its_name, last_of_all).run()
