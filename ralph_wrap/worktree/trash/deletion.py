"""The process that deletes directories: it outlives the session that starts it, and has nothing of it.

``system.delete_tree`` deletes; this module starts it, as a fork or as a program.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.system import deferred, delete_tree, process, process_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NoReturn

TITLE = b"ralph-wrap: delete tree"
"""The command line of a fork that deletes. PID 1 knows it, too (``interfaces.init.processes``)."""

_OWN = f"{process.OWN_COMMAND}=1".encode()
_PATIENCE = 1.0  # seconds for a session to end before its deletion begins


class OpenEntry(NamedTuple):
    """A directory that is open, in a directory that is open.

    Attributes:
        parent: the descriptor of the directory that has it.
        directory: its own descriptor.
        name: its name in the parent.

    """

    parent: int
    directory: int
    name: str


def start(entries: Sequence[OpenEntry], token: str) -> None:
    """Delete directories, in a process that no process waits for.

    A fork takes 10 ms less processor time than a new Python. But it could wait without end for a lock that
    another thread holds (``fork(2)``). And other processes must recognise it.

    Arguments:
        entries: the directories; the process keeps their descriptors.
        token: the name of the file that is deleted last in each of them.

    """
    title = _ProcessTitle.find()
    if process_table.has_other_threads() or not title.has_room:
        with contextlib.suppress(OSError):
            # Root can have a Python that the owner of a project cannot read. Then the next start deletes.
            Path(delete_tree.__file__).open("rb").close()
            _start_program(entries, token)
            return
    ready, not_ready = os.pipe()
    with os.fdopen(ready, "rb") as pipe:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            if os.fork() == 0:
                _delete_and_exit(entries, token, title, before, not_ready)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(not_ready)
        pipe.read()  # until the fork has closed our descriptors: with them it keeps our locks (flock(2))


class _ProcessTitle(NamedTuple):
    """The command line and the environment that the kernel shows of this process (``ps(1)``).

    The kernel reads both from the memory of the process. So a write there changes them, as with
    ``setproctitle(3bsd)``.

    Attributes:
        arguments: the addresses of the command line.
        environment: the addresses of the environment.

    """

    arguments: range
    environment: range

    @classmethod
    def find(cls) -> _ProcessTitle:
        """Return the addresses; empty ranges if the kernel does not name them."""
        begin, end, environment_begin, environment_end = process_table.title_addresses()
        return cls(range(begin, end), range(environment_begin, environment_end))

    @property
    def has_room(self) -> bool:
        """Whether all that other processes look for fits into the memory."""
        return len(self.arguments) > len(TITLE) and len(self.environment) > len(_OWN)

    def change(self) -> None:
        """Show a deletion instead of a session."""
        process_table.rename("ralph-wrap")  # a session has its id there
        _write(self.arguments, [TITLE])
        _write(self.environment, [_OWN, *map(b"=".join, _environment().items())])


def _write(addresses: range, words: Iterable[bytes]) -> None:
    """Write words to our memory, with a NUL after each; a word that does not fit is left out."""
    content = b""
    for word in words:
        if len(content) + len(word) < len(addresses):
            content += word + b"\0"
    deferred.ctypes.memmove(addresses.start, content.ljust(len(addresses), b"\0"), len(addresses))


def _delete_and_exit(
    entries: Sequence[OpenEntry], token: str, title: _ProcessTitle, mask: Iterable[int], not_ready: int
) -> NoReturn:
    """Become a process of its own in a fork, as ``execve(2)`` would do, and delete directories.

    Arguments:
        mask: the signals to block meanwhile.
        not_ready: the descriptor to close last, once no other descriptor of the session is open.

    """
    try:
        gc.disable()  # to free an object may have an effect outside of the process
        session = os.getppid()
        os.setsid()
        os.chdir("/")
        title.change()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if signal.getsignal(number) is not signal.SIG_IGN:
                with contextlib.suppress(OSError):  # two signals cannot be ignored
                    signal.signal(number, signal.SIG_IGN)  # discards one that our group got before setsid(2)
                    signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        _close_all_but({0, 1, 2, not_ready, *_descriptors(entries)})
        os.close(not_ready)
        _wait_for_end(session)
        for entry in entries:
            with contextlib.suppress(OSError):
                delete_tree.TreeDeletion(*entry, token).run()
    finally:
        os._exit(0)


def _wait_for_end(session: int) -> None:
    """Let the session end first: its syncs would wait for us. With a child of PID 1 a container may end."""
    if session != 1 and session not in process_table.children(1):
        with contextlib.suppress(OSError, AttributeError):  # Linux has it since 5.3
            select.select([os.pidfd_open(session)], [], [], _PATIENCE)


def _environment() -> dict[bytes, bytes]:
    """Return our environment without the variables by which a session counts a process as its agent's."""
    return {name: value for name, value in os.environb.items() if not name.startswith(b"RALPH_")}


def _descriptors(entries: Sequence[OpenEntry]) -> list[int]:
    return [number for entry in entries for number in (entry.parent, entry.directory)]


def _close_all_but(kept: set[int]) -> None:
    directory = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    for number in [int(path.name) for path in directory.iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # that of the directory is closed already
                os.close(number)


def _start_program(entries: Sequence[OpenEntry], token: str) -> None:
    words = [f"{entry.parent}:{entry.directory}:{entry.name}" for entry in entries]
    process.detach(
        # -I, -S: neither the environment nor the installed packages change its behaviour.
        (sys.executable, "-I", "-S", "-X", "utf8", delete_tree.__file__, token, *words),
        cwd=Path("/"),
        env={process.OWN_COMMAND: "1"} | {os.fsdecode(n): os.fsdecode(v) for n, v in _environment().items()},
        inherited=_descriptors(entries),
    )
