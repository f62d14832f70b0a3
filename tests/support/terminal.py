"""A terminal with a user who types (``pty(7)``)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Any, Self

from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CTRL_C = b"\x03"
CTRL_Z = b"\x1a"
CTRL_BACKSLASH = b"\x1c"


class Terminal:
    """A program on a terminal of its own; leaving the context hangs up and kills it.

    Arguments:
        command: becomes leader of a session whose controlling terminal this is.
        cwd: where it is started.
        env: added to our environment.

    Attributes:
        screen: everything that was printed so far.

    """

    def __init__(
        self,
        *command: str | os.PathLike[str],
        cwd: Path,
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != FORMAT_VARIABLE}
        self._ours, self._theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self.screen = b""
        self.resize(*size)
        self.process = subprocess.Popen(
            ("setsid", "--ctty", *command),
            cwd=cwd,
            env={**inherited, "TERM": "xterm", **(env or {})},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def mode(self) -> list[Any]:
        """How the terminal is set (``termios(3)``)."""
        return termios.tcgetattr(self._theirs)

    @property
    def foreground(self) -> int:
        """The process group that keys go to."""
        return os.tcgetpgrp(self._ours)

    @property
    def words(self) -> str:
        """The screen as text, without what was taken away again, moves the cursor or colours it."""
        text = _left(self.screen).decode(errors="replace").replace("\r\n", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window (``tty_ioctl(4)``)."""
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the window; a second call does nothing."""
        for descriptor in (self._ours, self._theirs):
            if descriptor >= 0:
                os.close(descriptor)
        self._ours = self._theirs = -1

    def read(self) -> bytes:
        """Return the screen as it is now."""
        with contextlib.suppress(BlockingIOError, OSError):
            while piece := os.read(self._ours, 1 << 16):
                self.screen += piece
        return self.screen

    def wait_for(self, words: str, count: int = 1) -> None:
        """Wait until words were printed *count* times, at the beginning of a line."""
        wanted = b"\n" + words.encode()
        try:
            eventually(
                lambda: (b"\n" + _left(self.read())).count(wanted) >= count, f"{words!r} on the screen"
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen: {self.words}") from None

    def finish(self) -> int:
        """Read until the program has ended, and return its exit status."""
        eventually(lambda: self.read() is not None and self.process.poll() is not None, "its end", CAP)
        self.read()
        return self.process.returncode


def _left(screen: bytes) -> bytes:
    """Return what was printed: no title, notification or bell, and nothing that was taken away again."""
    return re.sub(rb"[^\n]*\r\x1b\[K", b"", re.sub(rb"(?:\x1b\](?:2|9|777);[^\x07]*)?\x07", b"", screen))


def shell(*prompt: str) -> Sequence[str]:
    """Return the command of an interactive shell with job control and a prompt to wait for."""
    return ("env", f"PS1={''.join(prompt)}", "bash", "--norc", "--noprofile", "--noediting", "-i")
