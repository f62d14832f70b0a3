"""Files that several processes share: exclusive claim, atomic replacement, no-follow reads, and locks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from types import EllipsisType

from ralph_wrap.system.delete_tree import OPEN_DIRECTORY, TreeDeletion
from ralph_wrap.system.files.lock import FileLock as FileLock
from ralph_wrap.system.files.lock import is_locked as is_locked
from ralph_wrap.system.files.lock import locked_directory as locked_directory
from ralph_wrap.system.files.lock import try_lock as try_lock

_BLOCK = 1 << 20  # bytes that a copy holds in memory
_PAGE = 4096  # bytes; files of the kernel have no size
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}  # link(2): errors of file systems without links
_RANDOM = 8  # bytes in the name of a temporary file
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100  # <linux/fcntl.h>
_STATX_BTIME, _STATX_SIZE = 0x800, 256  # <linux/stat.h>
_HEX = re.compile(f"[0-9a-f]{{{2 * _RANDOM}}}")

State = tuple[int, ...] | None
"""A value that changes with every change of a file; ``None`` if there is no file."""


def claim(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Create a file that must not exist yet.

    Arguments:
        path: the file; its directory exists.
        content: its content, durable when this returns.
        mode: file mode, before the umask.

    Raises:
        FileExistsError: the file exists. Of several callers at once, exactly one succeeds.
        OSError: the file could not be written; nothing is left of it.

    """
    # Write first, then link: if we are killed between, a reader must not find half of the content.
    temporary = temporary_path(path)
    try:
        create(temporary, content, mode=mode)
        try:
            path.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            create(path, content, mode=mode)
    finally:
        with contextlib.suppress(OSError):  # the release of a record removes such temporary files
            temporary.unlink()
    try:
        fsync(path.parent)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def create(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Create a file that must not exist yet, where a reader may find a part of its content.

    Arguments:
        path: the file; its directory exists.
        content: all of it.
        mode: file mode, before the umask.
        sync: the content is on the disk when this returns.

    Raises:
        FileExistsError: the file exists.
        OSError: the file could not be written; nothing is left of it.

    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        write_all(descriptor, content)
        if sync:
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = error.filename or os.fspath(path)  # that of a write(2) names no file
        raise
    finally:
        os.close(descriptor)


def state(path: Path) -> State:
    """Return a value that changes with every change of a file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def replace(
    path: Path,
    content: bytes,
    *,
    sync: bool = True,
    unless_changed_since: State | EllipsisType = ...,
    mode: int = 0o666,
) -> bool:
    """Replace the content of a file in one step: a reader sees the old or the new file, even after a crash.

    The mode of an existing file is kept.

    Arguments:
        path: the file; its directory exists.
        content: all of it.
        sync: the content is on the disk when this returns, and survives a power failure.
        unless_changed_since: do nothing if the file has changed since this state.
        mode: file mode of a new file, before the umask.

    Returns:
        Whether the file was replaced.

    Raises:
        OSError: the file has its old content. If only the sync of its directory failed, it has the new one.

    """
    temporary = temporary_path(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            write_all(descriptor, content)
            copy_mode_and_owner(descriptor, path)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if unless_changed_since is not ... and state(path) != unless_changed_since:
            temporary.unlink()
            return False
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or os.fspath(path)
        raise
    if sync:
        fsync(path.parent)
    return True


def overwrite(path: Path, before: bytes, after: bytes) -> None:
    """Overwrite a file in its place, durably, where a full disk has no room for :func:`replace`.

    Blanks fill up what is left of a longer content. A power failure may leave a mixture of both contents.

    Arguments:
        path: a small file: the new content fits into its last block, too (mostly 4 KiB).
        before: the expected content, but for blanks at its end.
        after: the new content, in which blanks at the end mean nothing.

    Raises:
        OSError: it could not be written.
            ESTALE: it is no regular file with one name and the expected content; nothing was written.

    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1  # another name may be in a backup
        if not is_ours or os.pread(descriptor, status.st_size, 0).rstrip() != before.rstrip():
            raise OSError(errno.ESTALE, "the file has changed", os.fspath(path))
        write_all(descriptor, after.ljust(status.st_size))
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(path: Path) -> Path:
    """Return a new name beside a file; :func:`temporaries` finds it after a kill."""
    return path.with_name(f".{path.name}.{os.urandom(_RANDOM).hex()}")


def fill(path: Path, content: bytes) -> None:
    """Create a file if it is missing or empty; several processes may do so at once with the same content.

    Raises:
        OSError: the file cannot be written, or is a symlink.

    """
    if path.exists() and path.stat().st_size:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def temporaries(path: Path) -> list[Path]:
    """Return the temporary files of a :func:`replace` that was killed, or still runs."""
    prefix = f".{path.name}."
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(prefix)]  # noqa: PTH208 -- no objects
    except OSError:
        return []
    return [path.with_name(name) for name in names if _HEX.fullmatch(name, len(prefix))]


def fsync(*paths: Path) -> None:
    """Write files, or the entries of directories, to the disk (``fsync(2)``: each needs its own call).

    Raises:
        OSError: one of them could not be opened or written, or is a symlink.

    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def start_fsync(*paths: Path) -> Callable[[], None]:
    """Start :func:`fsync` for all paths at once, and return a function that waits for the end.

    The kernel then writes for several of them together. Beside a checkout of 2,000 files on ext4, 14 calls in
    turn took 230 ms, as long as the checkout. At once they took 26 ms (measured, on a busy disk).

    Returns:
        The function. It raises what :func:`fsync` raises.

    """
    pool = ThreadPoolExecutor(max(1, len(paths)), "fsync")
    running, later = [], []
    for path in paths:
        try:
            running.append(pool.submit(fsync, path))
        except RuntimeError:  # no further thread is allowed: ulimit -u, docker run --pids-limit
            later.append(path)

    def wait() -> None:
        with pool:
            fsync(*later)
            for each in running:
                each.result()

    return wait


def anonymous_file() -> int:
    """Return a descriptor of a new file without a name, in memory if this Python can do that."""
    # Portable Pythons, as uv installs them, may lack it: https://github.com/astral-sh/uv/issues/15081
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ralph-wrap", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def sync_file_system(path: Path) -> None:
    """Write all data of a path's file system to the disk, also data of other processes (``syncfs(2)``).

    Raises:
        OSError: not all of it could be written.

    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def birth_time(path: Path) -> int:
    """Return when a file was made, in nanoseconds since the epoch; 0 if that is unknown (``statx(2)``).

    Raises:
        OSError: there is no such file.

    """
    library = ctypes.CDLL(None, use_errno=True)
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if not hasattr(library, "statx"):  # glibc before 2.28
        return 0
    if library.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) != 0:
        return 0
    if not int.from_bytes(found.raw[:4], sys.byteorder) & _STATX_BTIME:  # a file system without it
        return 0
    seconds, nanoseconds = found.raw[80:88], found.raw[88:92]  # stx_btime, <linux/stat.h>
    return int.from_bytes(seconds, sys.byteorder) * 10**9 + int.from_bytes(nanoseconds, sys.byteorder)


def read(path: Path, limit: int = 1 << 20) -> bytes:
    """Read a regular file that is not a symlink.

    Arguments:
        limit: the most bytes that it may have. Half a file can have another meaning than the whole.

    Raises:
        OSError: not there, not readable, not a regular file, or larger (``EFBIG``).

    """
    content = read_beginning(path, limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return content


def read_beginning(path: Path, limit: int) -> bytes:
    """Read at most this number of bytes of a regular file that is not a symlink.

    Raises:
        OSError: not there, not readable, or not a regular file.

    """
    # O_NONBLOCK: if an agent put a FIFO there, opening it must not hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        # Only as many bytes as the file has: a file object reserves memory for the limit, which takes 20 us.
        step = max(status.st_size + 1, _PAGE)
        content = b""
        while len(content) < limit and (part := os.read(descriptor, min(step, limit - len(content)))):
            content += part
        return content
    finally:
        os.close(descriptor)


def walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what ``os.walk`` does, at any depth: a directory, the directories in it, and the other names.

    ``os.walk`` and ``Path.rglob`` of Python 3.11 call themselves once for each level. An agent needs one
    command to make a thousand levels, and Python allows a thousand calls. Python 3.12 mended the former:
    https://github.com/python/cpython/issues/89727. The caller may take names out of the list of directories.
    A directory that cannot be read yields nothing.
    """
    waiting = [os.fspath(top)]
    while waiting:
        directory = waiting.pop()
        directories, names = list[str](), list[str]()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    (directories if _is_directory(entry) else names).append(entry.name)
        except OSError:
            continue
        yield directory, directories, names
        below = [f"{directory}/{name}" for name in reversed(directories)]
        waiting += [path for path in below if not Path(path).is_symlink()]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symlink that leads to itself
        return False


def files_below(top: Path) -> Iterator[Path]:
    """Yield everything below a directory that is no directory, also a symlink to none."""
    for directory, _, names in walk(top):
        yield from (Path(directory, name) for name in names)


def remove_tree(path: Path) -> None:
    """Delete a directory with everything in it, as far as possible and at any depth; one that is gone, too.

    ``shutil.rmtree`` calls itself once for each level (see :func:`walk`), also where it ignores errors.
    """
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        parent = os.open(path.parent, OPEN_DIRECTORY)
        stack.callback(os.close, parent)
        directory = os.open(path, OPEN_DIRECTORY)
        stack.callback(os.close, directory)
        TreeDeletion(parent, directory, path.name, last="").run()


def copy(source: Path, target: Path) -> None:
    """Copy a file with its mode and its times to a new file.

    Raises:
        OSError: it cannot be copied, is not a regular file, or the target exists.

    """
    with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as reading:  # noqa: PTH123 -- as in read()
        status = os.fstat(reading.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(source))
        _copy(reading, status, target)


def _copy(reading: BufferedReader, status: os.stat_result, target: Path) -> None:
    with target.open("xb") as writing:
        while content := reading.read(_BLOCK):
            writing.write(content)
        writing.flush()
        os.fchmod(writing.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(writing.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes; a single ``write(2)`` may write fewer."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def copy_mode_and_owner(descriptor: int, path: Path) -> None:
    """Give a new file the mode and the owner of the regular file that it will replace."""
    try:
        current = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(current.st_mode):
        with contextlib.suppress(PermissionError):  # only root can give a file away
            os.fchown(descriptor, current.st_uid, current.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(current.st_mode) & 0o777)


def mounts_in(directory: Path) -> list[str]:
    """Return the mount points in a directory, itself included (``proc(5)``: mountinfo)."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return []
    points = (line.split(b" ")[4] for line in table.splitlines())
    paths = (os.fsdecode(re.sub(rb"\\([0-7]{3})", _octal, at) if b"\\" in at else at) for at in points)
    top = os.path.join(directory, "")  # noqa: PTH118 -- with a slash at its end
    return [path for path in paths if f"{path}/".startswith(top)]


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])
