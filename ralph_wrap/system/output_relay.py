"""Carry an agent's output to our own stdout and stderr, and into its log.

Bytes pass unchanged, unless whoever listens to its stdout has something else to show. Both pipes live as
long as the session, not the iteration: what an agent left running may go on writing. We hold their writing
ends too, so there is no end of file to wait for; after an agent has ended, what is still in the pipe is all
there is.

A reader of ours who stands still slows the agent down, as a pipe between them would, but never us: we
wait for room together with signals and time limits, and write without blocking. A reader who went away is
left out from then on.
"""

from __future__ import annotations

import os
import select
import stat
import time
from typing import TYPE_CHECKING

from ralph_wrap.system.files import reopened_nonblocking, write_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.system.status_line import LastLine

_READ = 1 << 16  # bytes; what a pipe holds (pipe(7))
_DRAINED = 1 << 20  # bytes taken from a pipe at the end of an iteration, at most
_ROOM = 4096  # bytes; what fits into a pipe that poll() says has room (pipe(7): PIPE_BUF)


class _Channel:
    """One stream: a pipe to read, a descriptor to write, and what is on its way.

    Arguments:
        target: our own stdout or stderr.
        lost: called once if whoever reads it goes away.

    """

    def __init__(self, target: int, lost: Callable[[], None]) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.waiting = b""
        self.last_line: LastLine | None = None
        self._lost = lost
        self._chunk = _READ
        self.target: int | None
        try:
            self.target = reopened_nonblocking(target)
        except OSError:
            self._chunk = _ROOM
            try:
                self.target = os.dup(target)
            except OSError:  # we were started with it closed
                self.target = None

    def forward(self) -> bool:
        """Write what fits; tell whether more may fit."""
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

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (self.reading, self.writing, self.target):
            if descriptor is not None:
                os.close(descriptor)


class Relay:
    """The pipes of one session.

    Arguments:
        log: the file that everything is appended to.
        targets: our descriptors for the agent's stdout and stderr.
        on_stdout: is given each piece of the agent's stdout; it may return what is passed on instead.
        on_trouble: is told, once each, which reader went away, or that the log cannot be written.

    Attributes:
        last_output: when something came last, as :func:`time.monotonic` counts.

    """

    def __init__(
        self,
        log: Path,
        targets: tuple[int, int],
        on_stdout: Callable[[bytes], bytes | None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._on_stdout = on_stdout
        self._on_trouble = on_trouble
        self._log_works = True
        try:
            self._log = os.open(
                log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
            )
        except OSError:
            self._log_works = False
            self._log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            on_trouble("log")
        self._stdout = _Channel(targets[0], lambda: on_trouble("stdout"))
        self._stderr = _Channel(targets[1], lambda: on_trouble("stderr"))
        self.last_output = time.monotonic()

    @property
    def writing_ends(self) -> tuple[int, int]:
        """What an agent gets as its stdout and stderr."""
        return self._stdout.writing, self._stderr.writing

    @property
    def is_held_up(self) -> bool:
        """Whether a reader of ours has not yet taken what the agent wrote."""
        return bool(self._stdout.waiting or self._stderr.waiting)

    def share(self, line: LastLine) -> bool:
        """Take the last line of a terminal away before anything is written there.

        Arguments:
            line: of the terminal that our stderr is.

        Returns:
            Whether it may be drawn: not if our stdout is a pipe, whose reader may write on it, too.

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
        """Move what can be moved without waiting.

        Arguments:
            ready: the descriptors that ``poll`` returned.

        """
        for channel in (self._stdout, self._stderr):
            if not channel.waiting and channel.reading in ready:
                self._take(channel)
            while channel.forward():
                pass

    def show(self, words: bytes) -> None:
        """Pass on to our stdout what is not in the pipe."""
        if self._stdout.target is not None:
            self._stdout.waiting += words
        self.handle(set())

    def drain(self) -> None:
        """Take everything that is in the pipes, whether or not our reader keeps up."""
        for channel in (self._stdout, self._stderr):
            # Bounded: a process that was left running could fill the pipe as fast as it is emptied.
            taken = 0
            while max(taken, len(channel.waiting)) < _DRAINED and (size := self._take(channel)):
                taken += size

    def flush(self, patience: float, hurry: Callable[[], bool]) -> int:
        """Wait for our readers to take what waits for them.

        Arguments:
            patience: seconds.
            hurry: asked every second whether to wait no longer.

        Returns:
            How many bytes were given up; they are in the log.

        """
        deadline = time.monotonic() + patience
        for channel in (self._stdout, self._stderr):
            while channel.waiting and channel.target is not None:
                if _has_room(channel.target, 1.0):
                    channel.forward()
                elif hurry() or time.monotonic() >= deadline:
                    break
        return len(self._stdout.waiting) + len(self._stderr.waiting)

    def close(self) -> None:
        """Close the pipes and the log."""
        self._stdout.close()
        self._stderr.close()
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
        if channel.target is not None:
            channel.waiting += piece if shown is None else shown
        return len(piece)

    def _write_log(self, piece: bytes) -> None:
        if not self._log_works:
            return
        try:
            write_all(self._log, piece)
        except OSError:
            self._log_works = False
            self._on_trouble("log")


def _has_room(descriptor: int, patience: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(patience * 1000))


class LineFinder:
    """Look for one line in a stream that comes in pieces, in constant memory.

    Arguments:
        line: what the line must be, apart from white space around it; empty is never found.

    """

    def __init__(self, line: str) -> None:
        self._line = line.strip().encode("utf-8", "surrogateescape")
        self._begun = b""
        self.found = False

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        if not self._line or self.found:
            return
        *complete, begun = (self._begun + piece).split(b"\n")
        self.found = any(line.strip() == self._line for line in complete)
        self._begun = self._shortened(begun)

    def finish(self) -> bool:
        """Tell whether the line was there, the last one counted even without its newline; start anew."""
        found = self.found or (bool(self._line) and self._begun.strip() == self._line)
        self.found = False
        self._begun = b""
        return found

    def _shortened(self, begun: bytes) -> bytes:
        """Return what still decides whether a line that has only begun is the one; at most a byte longer."""
        begun = begun.lstrip()
        size = len(self._line)
        # White space behind that many bytes changes nothing: if anything follows it, the line is another.
        return begun[:size] + begun[size:].strip()[:1]
