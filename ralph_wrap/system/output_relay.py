"""Carry an agent's output to our own stdout and stderr, and into its log.

Bytes pass unchanged, unless the listener on stdout returns a readable form. Where our own lines go, the words
that begin them get a mark, so that an agent cannot write in our name. The log has the agent's bytes.

Both pipes stay open for the whole session: a process that an agent left running may still write. We keep the
writing ends open too, so there is never an end of file. After an agent's end, the rest of its output is in
the pipe.

If the reader of our output is slow, the agent blocks, as with a direct pipe. We never block: we wait for
space together with signals and time limits, and write without blocking. If a reader closes its end, we stop
writing to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.output_log import shorten
from ralph_wrap.system.reopen import write_again
from ralph_wrap.system.screen import ScreenModes
from ralph_wrap.system.status_line import StatusLine

_OURS = (b"ralph-wrap: ", b'{"at": ')  # how our own lines begin, see system.log
_MARK = b"agent: "
_LONGEST = max(map(len, _OURS))
_READ = 1 << 16  # bytes; what a pipe holds (pipe(7))
_DRAINED = 1 << 20  # bytes taken from a pipe at the end of an iteration, at most
_LOG_AGAIN = 1.0  # seconds between two attempts to open the log
_ROOM = 4096  # bytes; what fits into a pipe that poll() says has room (pipe(7): PIPE_BUF)


class _Channel:
    """One stream: a pipe to read, a descriptor to write, and the bytes between them.

    Arguments:
        target: our own stdout or stderr.
        lost: called once if the reader closes its end.

    """

    def __init__(self, target: int, lost: Callable[[], None]) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.waiting = b""
        self.last_line: StatusLine | None = None
        self._end = b""
        self._lost = lost
        self._chunk = _READ
        self.target: int | None
        try:
            self.target = _reopened_nonblocking(target)
        except OSError:
            self._chunk = _ROOM
            try:
                self.target = os.dup(target)
            except OSError:  # we were started with it closed
                self.target = None
        self._screen = ScreenModes() if self.target is not None and os.isatty(self.target) else None

    def print(self, words: bytes) -> None:
        """Let bytes wait for their turn to be written."""
        if self.target is not None:
            self.waiting += words
            if self._screen is not None:
                self._screen.follow(words)

    def restore_screen(self) -> None:
        """On a terminal, leave the alternate screen and show the cursor, if they were switched."""
        if self._screen is not None:
            self.print(self._screen.taken_back())

    def forward(self) -> bool:
        """Write as much as fits; return whether more may fit."""
        if self.target is None:
            self.waiting = b""
        if self.target is None or not self.waiting or not _has_room(self.target):
            return False
        if self.last_line is not None and (away := self.last_line.taken_away()):
            self.waiting = away + self.waiting
        try:
            size = os.write(self.target, self.waiting[: self._chunk])
            if self.last_line is not None:
                self.last_line.wrote(self.waiting[size - 1 : size])
            self.waiting = self.waiting[size:]
        except BlockingIOError:
            return False
        except OSError:
            os.close(self.target)
            self.target = None
            self.waiting = b""
            self._lost()
            return False
        return True

    def marked(self, piece: bytes) -> bytes:
        """Return output in which nothing looks like the beginning of a line of ours."""
        for ours in _OURS:
            before = self._end[1 - len(ours) :]
            if ours in before + piece[: len(ours) - 1]:  # the last piece ended inside the words
                piece = _MARK + piece
            if ours in piece:
                piece = piece.replace(ours, _MARK + ours)
        self._end = (self._end + piece[-_LONGEST:])[-_LONGEST:]
        return piece

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (self.reading, self.writing, self.target):
            if descriptor is not None:
                os.close(descriptor)


class OutputRelay:
    """The pipes of one session.

    Arguments:
        log: the file to which all output is appended.
        targets: our descriptors for the agent's stdout and stderr.
        on_stdout: called with each piece of the agent's stdout; it returns the bytes to print.
        on_trouble: called once for each reader that closes its end (``stdout``, ``stderr``), when the log
            cannot be written for the first time (``log``), when it can be written again (``log again``), when
            it was made shorter (``shorter log``), and when that failed for the first time (``long log``).
        limit: of the log, in bytes; see :mod:`ralph_wrap.system.output_log`. 0: none.

    Attributes:
        last_output: time of the last output, as :func:`time.monotonic` counts.

    """

    def __init__(
        self,
        log: Path,
        targets: tuple[int, int],
        on_stdout: Callable[[bytes], bytes | None],
        on_trouble: Callable[[str], None],
        limit: int = 0,
    ) -> None:
        self._on_stdout = on_stdout
        self._on_stderr: Callable[[bytes], None] | None = None
        self._on_trouble = on_trouble
        self._log_path = log
        self._log: int | None = None
        self._missing = 0  # bytes of output that the log lacks at its end
        self._log_error = ""
        self._log_is_due = 0.0
        self._is_trouble_told = False
        self._limit = self._longest = limit
        self._is_length_told = False
        self._open_log()
        self._stdout = _Channel(targets[0], lambda: on_trouble("stdout"))
        self._stderr = _Channel(targets[1], lambda: on_trouble("stderr"))
        self._imitating = [self._stderr]  # the streams of the agent that go where our own lines go
        with contextlib.suppress(OSError):
            if os.path.sameopenfile(*targets):
                self._imitating.append(self._stdout)
        self.last_output = time.monotonic()

    @property
    def writing_ends(self) -> tuple[int, int]:
        """The descriptors for the agent's stdout and stderr."""
        return self._stdout.writing, self._stderr.writing

    @property
    def is_held_up(self) -> bool:
        """Whether output of the agent still waits for a slow reader."""
        return bool(self._stdout.waiting or self._stderr.waiting)

    @contextlib.contextmanager
    def heard_on_stderr(self, hear: Callable[[bytes], None]) -> Iterator[None]:
        """Call a function with each piece of what comes to our stderr, until the context ends."""
        self._on_stderr = hear
        try:
            yield
        finally:
            self._on_stderr = None

    def write_log_again(self) -> None:
        """Write the log anew if it was deleted, with all that it held.

        Raises:
            OSError: it cannot be written.

        """
        if self._log is not None:
            write_again(self._log, self._log_path)

    def share(self, line: StatusLine) -> bool:
        """Hide the status line of a terminal before each output to it.

        Arguments:
            line: the status line of the terminal at our stderr.

        Returns:
            Whether the line may be drawn. If our stdout is a pipe, its reader may write to the terminal too,
            and the line must not be drawn.

        """
        for channel in (self._stdout, self._stderr):
            if channel.target is not None and line.is_on(channel.target):
                channel.last_line = line
        target = self._stdout.target
        if target is None or self._stdout.last_line is not None:
            return True
        mode = os.fstat(target).st_mode
        return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(target))

    def interest(self) -> dict[int, int]:
        """Return what to ``poll`` for: descriptors and events."""
        wanted: dict[int, int] = {}
        for channel in (self._stdout, self._stderr):
            if not channel.waiting:
                wanted[channel.reading] = select.POLLIN
            elif channel.target is not None:
                wanted[channel.target] = select.POLLOUT
        return wanted

    def handle(self, ready: set[int]) -> None:
        """Move as much output as possible without waiting.

        Arguments:
            ready: the descriptors that ``poll`` returned.

        """
        for channel in (self._stdout, self._stderr):
            if not channel.waiting and channel.reading in ready:
                self._take(channel)
            while channel.forward():
                pass

    def show(self, words: bytes) -> None:
        """Print bytes on our stdout that do not come from the pipe."""
        self._stdout.print(words)
        self.handle(set())

    def restore_screen(self) -> None:
        """On a terminal, take back what a killed agent has switched: the alternate screen and the cursor."""
        for channel in (self._stdout, self._stderr):
            channel.restore_screen()
        self.handle(set())

    def drain(self) -> None:
        """Read everything from the pipes, even if our reader is slow."""
        for channel in (self._stdout, self._stderr):
            # Bounded: a process that the agent left running could fill the pipe as fast as we read it.
            taken = 0
            while max(taken, len(channel.waiting)) < _DRAINED and (size := self._take(channel)):
                taken += size

    def flush(self, patience: float, cancel: CancelToken) -> int:
        """Wait until our readers have read all output.

        Arguments:
            patience: maximum time to wait, in seconds.
            cancel: looked at every second; after a signal it is a second at most.

        Returns:
            Number of bytes that were not read; the log has them.

        """
        begun = time.monotonic()
        self.restore_screen()
        for channel in (self._stdout, self._stderr):
            while channel.waiting and channel.target is not None:
                # A reader that takes a little again and again must not hold the end up, either.
                left = begun + (min(patience, 1.0) if cancel.requested else patience) - time.monotonic()
                if left <= 0:
                    break
                if _has_room(channel.target, min(left, 1.0)):
                    channel.forward()
        return len(self._stdout.waiting) + len(self._stderr.waiting)

    def close(self) -> None:
        """Close the pipes and the log."""
        self._stdout.close()
        self._stderr.close()
        if self._log is not None:
            self._mark_gap(self._log)
            os.close(self._log)

    def _take(self, channel: _Channel) -> int:
        """Read one piece and return its size; 0 if there is nothing."""
        try:
            piece = os.read(channel.reading, _READ)
        except BlockingIOError:
            return 0
        self.last_output = time.monotonic()
        self._write_log(piece)
        shown = self._on_stdout(piece) if channel is self._stdout else None
        if channel is self._stderr and self._on_stderr is not None:
            self._on_stderr(piece)
        if channel.target is not None:
            printed = piece if shown is None else shown
            channel.print(channel.marked(printed) if channel in self._imitating else printed)
        return len(piece)

    def _open_log(self) -> None:
        """Open the log; on a full disk it is tried again later."""
        self._log_is_due = time.monotonic() + _LOG_AGAIN
        try:
            self._log = os.open(
                self._log_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
            )
        except OSError as error:
            self._note_trouble(error)

    def _note_trouble(self, error: OSError) -> None:
        self._log_error = error.strerror or str(error)
        if not self._is_trouble_told:
            self._is_trouble_told = True
            self._on_trouble("log")

    def _write_log(self, piece: bytes) -> None:
        """Write a piece of output into the log; what a full disk does not take is missing in it."""
        if self._log is None and time.monotonic() >= self._log_is_due:
            self._open_log()
        if self._log is None or not self._mark_gap(self._log):
            self._missing += len(piece)
            return
        while piece:
            try:
                piece = piece[os.write(self._log, piece) :]
            except OSError as error:
                self._missing += len(piece)
                self._note_trouble(error)
                return
        self._shorten_log()

    def _shorten_log(self) -> None:
        """Shorten the log if it is too long; if that fails, it may grow a little before the next try."""
        if not self._limit or self._log is None or (size := os.fstat(self._log).st_size) <= self._longest:
            return
        try:
            new = shorten(self._log, self._log_path, self._limit)
        except OSError:
            self._longest = size + self._limit // 8
            if not self._is_length_told:
                self._is_length_told = True
                self._on_trouble("long log")
            return
        os.close(self._log)
        self._log, self._longest = new, self._limit
        self._on_trouble("shorter log")

    def _mark_gap(self, log: int) -> bool:
        """Write where output is missing, as soon as there is room; return whether output can follow."""
        if not self._missing:
            return True
        words = f"{self._missing} bytes of output are missing here: {self._log_error}"
        mark = f"\nralph-wrap: {words}\n".encode(errors="backslashreplace")
        try:
            size = os.fstat(log).st_size
            if os.write(log, mark) < len(mark):
                os.ftruncate(log, size)
                return False
        except OSError:
            return False
        self._missing = 0
        self._on_trouble("log again")
        return True


def _has_room(descriptor: int, patience: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(patience * 1000))


def _reopened_nonblocking(descriptor: int) -> int:
    """Open the pipe or terminal of a descriptor a second time, to write to it without blocking.

    ``O_NONBLOCK`` on the descriptor itself would change it for every process that shares it.

    Raises:
        OSError: it is no pipe and no terminal, or we may not open it (after a change of user). A file is
            refused: after a second open, writing would start at its beginning.

    """
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
        raise OSError(errno.EINVAL, "neither pipe nor terminal")
    return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
