"""A command whose output has a limit: a few commits of an agent can differ in billions of files."""

from __future__ import annotations

import os
import select
import time
from typing import Any

from ralph_wrap.system.process import RunningCommand, TimeoutExpired

_PART = 1 << 20  # bytes that one read(2) returns at most


class LimitedCommand(RunningCommand):
    """A command that SIGPIPE ends after a number of bytes of output.

    Arguments:
        most: this number.
        more: see :class:`RunningCommand`.

    """

    def __init__(self, *arguments: Any, most: int, **more: Any) -> None:
        self._most = most
        self._output = bytearray()
        super().__init__(*arguments, **more)

    def _collect(self, timeout: float | None) -> bytes:
        pipe = self._popen.stdout
        assert pipe is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        while not pipe.closed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                raise TimeoutExpired(self._popen.args, timeout or 0.0)
            part = os.read(pipe.fileno(), min(_PART, self._most + 1 - len(self._output)))
            self._output += part
            if not part or len(self._output) > self._most:
                pipe.close()
        self._popen.wait(timeout)
        return bytes(self._output)
