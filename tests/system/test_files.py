"""Claims, replacements, locks and reads, with real processes that get in each other's way."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import files
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAIM = """
try:
    files.claim(path, str(os.getpid()).encode())
    print("won")
except FileExistsError:
    print("lost")
"""

# The holder of the lock makes a file that must not be there, and takes it away again.
CONTEND = """
for _ in range(50):
    while (lock := files.try_lock(path)) is None:
        pass
    files.claim(path.with_name("inside"), b"")
    path.with_name("inside").unlink()
    lock.release(unlink=True)
print("done")
"""

REPLACE = """
for number in range(300):
    files.replace(path, bytes([number % 256]) * 100_000, sync=False)
"""

HOLD = """
lock = files.try_lock(path)
print("held", flush=True)
signal.pause()
"""

WAIT = """
with files.locked_directory(path, 20):
    print("had")
"""


@contextmanager
def _crowd(body: str, path: Path, number: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run processes that all begin at once."""
    setup = "import os, signal, sys\nfrom pathlib import Path\nfrom ralph_wrap.system import files\n"
    begin = "path = Path(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.read()\n"
    argv = (sys.executable, "-c", f"{setup}{begin}{body}", path)
    waiting, gate = os.pipe()
    with ExitStack() as stack:
        crowd = []
        for _ in range(number):
            process = subprocess.Popen(argv, stdin=waiting, stdout=subprocess.PIPE, text=True)
            crowd.append(stack.enter_context(process))
            stack.callback(process.kill)
        os.close(waiting)
        for process in crowd:
            assert _line(process) == "ready\n"
        os.close(gate)
        yield crowd


@contextmanager
def _holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds a lock until it is killed."""
    with _crowd(HOLD, path, 1) as crowd:
        assert _line(crowd[0]) == "held\n"
        yield crowd[0]


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _answers(crowd: list[subprocess.Popen[str]]) -> list[str]:
    return [process.communicate()[0] for process in crowd]


@contextmanager
def _no_room_behind(size: int) -> Iterator[None]:
    """Have the kernel refuse files that are larger (``setrlimit(2)``: RLIMIT_FSIZE)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Return an empty directory."""
    directory = tmp_path / "room"
    directory.mkdir()
    return directory


# Claims


def test_of_32_processes_one_claims_the_file(room: Path) -> None:
    """Exactly one wins, and what it wrote is what is there."""
    with _crowd(CLAIM, room / "claimed", 32) as crowd:
        answers = _answers(crowd)
    assert sorted(answers) == ["lost\n"] * 31 + ["won\n"]
    assert (room / "claimed").read_text() == str(crowd[answers.index("won\n")].pid)


def test_a_claim_does_not_touch_an_existing_file(room: Path) -> None:
    """Not even a symlink that leads nowhere, behind which a file could be made."""
    (room / "link").symlink_to(room / "behind")
    with pytest.raises(FileExistsError):
        files.claim(room / "link", b"mine")
    assert _names(room) == ["link"]


def test_a_claim_that_cannot_be_written_leaves_nothing(room: Path) -> None:
    """The next one may try again."""
    with _no_room_behind(10), pytest.raises(OSError, match="File too large"):
        files.claim(room / "claimed", b"x" * 20)
    assert _names(room) == []


# Replacements


def test_replacing_keeps_the_mode(room: Path) -> None:
    """An executable stays one, a private file private."""
    (room / "file").write_bytes(b"old")
    (room / "file").chmod(0o740)
    files.replace(room / "file", b"new")
    assert ((room / "file").read_bytes(), (room / "file").stat().st_mode & 0o7777) == (b"new", 0o740)
    assert _names(room) == ["file"]


def test_a_new_file_has_the_mode_that_the_umask_leaves(room: Path) -> None:
    """As if it had been opened in the ordinary way."""
    before = os.umask(0o027)
    try:
        files.replace(room / "file", b"new")
    finally:
        os.umask(before)
    assert (room / "file").stat().st_mode & 0o7777 == 0o640


def test_a_reader_sees_the_old_or_the_new_file(room: Path) -> None:
    """Whatever moment it reads in, while another process replaces the file again and again."""
    path = room / "file"
    path.write_bytes(b"\0" * 100_000)
    reads = 0
    with _crowd(REPLACE, path, 1) as crowd:
        while crowd[0].poll() is None:
            content = path.read_bytes()
            assert content == content[:1] * 100_000
            reads += 1
    assert reads > 10
    assert crowd[0].returncode == 0
    assert _names(room) == ["file"]


def test_a_file_is_whole_after_its_writer_was_killed(room: Path) -> None:
    """SIGKILL in the middle of many replacements."""
    path = room / "file"
    path.write_bytes(b"\0" * 100_000)
    with _crowd(REPLACE, path, 1) as crowd:
        eventually(lambda: path.read_bytes()[0] > 0, "a replacement")
        crowd[0].kill()
        crowd[0].wait()
    content = path.read_bytes()
    assert content == content[:1] * 100_000


def test_a_replacement_that_cannot_be_written_changes_nothing(room: Path) -> None:
    """The old content stands, and the temporary file is gone."""
    (room / "file").write_bytes(b"old")
    with _no_room_behind(10), pytest.raises(OSError, match="File too large"):
        files.replace(room / "file", b"x" * 20)
    assert _names(room) == ["file"]
    assert (room / "file").read_bytes() == b"old"


def test_a_replacement_that_cannot_be_put_in_place_leaves_nothing(room: Path) -> None:
    """A directory stands where the file should go."""
    (room / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        files.replace(room / "file", b"new")
    assert _names(room) == ["file"]


@pytest.mark.parametrize(
    "after", [b'{"state": "finished"}', b"{}", b'{"state": "ending", "iteration": 1000}']
)
def test_a_file_is_overwritten_where_it_is(room: Path, after: bytes) -> None:
    """Blanks take the place of what is left of a longer content; a further time they do not matter."""
    path = room / "record"
    before = b'{"state": "running"}\n'
    path.write_bytes(before)
    inode = path.stat().st_ino
    files.overwrite(path, before, after)
    assert (path.stat().st_ino, path.read_bytes().rstrip()) == (inode, after)
    files.overwrite(path, after, before)
    assert path.read_bytes().rstrip() == before.rstrip()


def test_a_file_that_has_changed_is_not_overwritten(room: Path, tmp_path: Path) -> None:
    """Nor one with another name, nor what a symlink names."""
    path, other, link = room / "record", tmp_path / "other", room / "link"
    path.write_bytes(b"theirs")
    other.write_bytes(b"ours")
    link.symlink_to(other)
    (room / "second").hardlink_to(other)
    for wrong in (path, link, other):
        with pytest.raises(OSError):  # noqa: PT011 -- ESTALE, or ELOOP of a symlink
            files.overwrite(wrong, b"ours", b"new")
    assert (path.read_bytes(), other.read_bytes()) == (b"theirs", b"ours")


def test_a_symlink_is_replaced_not_followed(room: Path, tmp_path: Path) -> None:
    """What it leads to keeps its content, and lends neither that nor its mode."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    outside.chmod(0o4755)
    (room / "file").symlink_to(outside)
    files.replace(room / "file", b"new")
    assert not (room / "file").is_symlink()
    assert (room / "file").stat().st_mode & 0o6111 == 0
    assert ((room / "file").read_bytes(), outside.read_bytes()) == (b"new", b"theirs")


# Locks


def test_a_lock_is_seen_by_another_process(room: Path) -> None:
    """It cannot be taken, and it can be asked about."""
    with _holder(room / "lock"):
        assert files.is_locked(room / "lock")
        assert files.try_lock(room / "lock") is None


def test_the_kernel_frees_the_lock_of_a_killed_process(room: Path) -> None:
    """No process has to clean up after SIGKILL."""
    with _holder(room / "lock") as holder:
        holder.kill()
        holder.wait()
        assert not files.is_locked(room / "lock")
        lock = files.try_lock(room / "lock")
        assert lock is not None
        lock.release()


def test_a_lock_is_not_inherited(room: Path) -> None:
    """A child that outlives us does not keep it."""
    lock = files.try_lock(room / "lock")
    assert lock is not None
    with subprocess.Popen(("cat",), stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        assert not files.is_locked(room / "lock")
        child.kill()


def test_two_processes_never_hold_a_lock_that_is_removed_on_release(room: Path) -> None:
    """A lock on a file that its last holder has just removed is no lock, and is not taken for one."""
    with _crowd(CONTEND, room / "lock", 8) as crowd:
        assert _answers(crowd) == ["done\n"] * 8
    assert _names(room) == []


def test_a_lock_is_released_once(room: Path) -> None:
    """A second call does not close a descriptor that has another owner by then."""
    lock = files.try_lock(room / "lock")
    assert lock is not None
    lock.release(unlink=True)
    other = files.try_lock(room / "lock")
    assert other is not None
    lock.release(unlink=True)
    assert files.is_locked(room / "lock")
    other.release()


def test_asking_for_a_lock_creates_nothing(room: Path) -> None:
    """A missing file is not locked, and stays missing."""
    assert not files.is_locked(room / "lock")
    assert _names(room) == []


@pytest.mark.parametrize("target", ["somewhere", "."])
def test_a_symlink_is_no_lock(room: Path, target: str) -> None:
    """Neither one that leads nowhere nor one that leads to a directory."""
    (room / "lock").symlink_to(target)
    with pytest.raises(OSError, match="Too many levels of symbolic links") as caught:
        files.try_lock(room / "lock")
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.is_locked(room / "lock")
    assert _names(room) == ["lock"]


def test_a_directory_is_locked_without_a_file(room: Path) -> None:
    """Nothing is left where nothing should be written, and the next one gets the lock."""
    with files.locked_directory(room, 0):
        assert files.is_locked(room)
        assert _names(room) == []
    assert not files.is_locked(room)


def test_a_directory_is_freed_by_an_exception() -> None:
    """Whatever went wrong inside."""
    here = Path.cwd()
    with pytest.raises(KeyError), files.locked_directory(here, 0):
        raise KeyError
    assert not files.is_locked(here)


def test_a_process_that_waits_for_a_directory_gets_it(room: Path) -> None:
    """As soon as its holder is done."""
    with _holder(room) as holder, _crowd(WAIT, room, 1) as crowd:
        holder.kill()
        assert _answers(crowd) == ["had\n"]


def test_waiting_for_a_directory_ends(room: Path) -> None:
    """A holder that hangs does not hang us."""
    with (
        _holder(room),
        pytest.raises(TimeoutError, match="has locked"),
        files.locked_directory(room, 0.1),
    ):
        pytest.fail("the lock was had twice")


# Reads


def test_a_file_is_read_up_to_the_limit(room: Path) -> None:
    """A huge file of an agent does not fill the memory."""
    (room / "file").write_bytes(b"0123456789")
    assert (files.read(room / "file"), files.read_beginning(room / "file", 4)) == (b"0123456789", b"0123")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("symlink", errno.ELOOP),
        ("FIFO", errno.EINVAL),
        ("directory", errno.EINVAL),
        ("device", errno.EINVAL),
        ("nothing", errno.ENOENT),
    ],
)
def test_only_a_regular_file_is_read(room: Path, kind: str, error: int) -> None:
    """Anything else is refused at once, and no descriptor stays open."""
    path = Path("/dev/zero") if kind == "device" else room / "file"
    if kind == "symlink":
        (room / "real").write_bytes(b"real")
        path.symlink_to(room / "real")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- the listing itself counts the same each time
    with pytest.raises(OSError) as caught:  # noqa: PT011 -- its number is what is looked at
        files.read(path)
    assert caught.value.errno == error
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_only_a_regular_file_is_copied(room: Path, kind: str) -> None:
    """A FIFO would wait for a writer, and a device has no end. No half copy is left, which would count."""
    path = Path("/dev/zero") if kind == "device" else room / "file"
    if kind == "FIFO":
        os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        files.copy(path, room / "copy")
    assert not (room / "copy").exists()


def test_a_copy_has_the_mode_and_the_times(room: Path) -> None:
    """Of a file that is larger than what a copy holds in memory; an existing file is never replaced."""
    source = room / "file"
    source.write_bytes(os.urandom(3 << 20))
    source.chmod(0o640)
    os.utime(source, ns=(1_000_000_001, 2_000_000_002))
    files.copy(source, room / "copy")
    was, now = source.stat(), (room / "copy").stat()
    assert (room / "copy").read_bytes() == source.read_bytes()
    assert (now.st_mode, now.st_mtime_ns) == (was.st_mode, 2_000_000_002)
    with pytest.raises(FileExistsError):
        files.copy(source, room / "copy")


def test_half_a_file_is_not_read(tmp_path: Path) -> None:
    """It may have another meaning than the whole; who wants the beginning says so."""
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    assert files.read(path, 8) == b"12345678"
    with pytest.raises(OSError, match="larger than 7 bytes") as caught:
        files.read(path, 7)
    assert caught.value.errno == errno.EFBIG
    assert files.read_beginning(path, 7) == b"1234567"
