"""The program, loaded once for many commands; something can happen to each of them (see ``faulty.py``)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.sessions import Result
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Mapping

FAULTY = os.fspath(Path(__file__).with_name("faulty.py"))
"""See there."""


class Preloaded:
    """Runs commands of ralph-wrap one after the other.

    Arguments:
        output: files that begin with this path take what a command prints.

    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._server = subprocess.Popen(
            (sys.executable, FAULTY, "serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pid = self._server.pid

    def run(
        self,
        *arguments: str,
        cwd: Path,
        points: Path,
        fault: str = "count",
        number: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run one command to its end.

        Arguments:
            arguments: of ralph-wrap.
            cwd: where.
            points: file to which the points that it reaches are appended.
            fault: what happens.
            number: at which point; 0 is never.
            env: added to our environment.

        """
        asked = {
            "cwd": os.fspath(cwd),
            "env": {**os.environ, **(env or {})},
            "output": os.fspath(self._output),
            "fault": (os.fspath(points), fault, str(number)),
            "arguments": arguments,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asked).encode() + b"\n")
        self._server.stdin.flush()
        assert select.select([self._server.stdout], [], [], CAP * 3)[0], f"no end of {arguments}"
        status = int(self._server.stdout.readline())
        out, err = (self._output.with_name(f"{self._output.name}.{number}") for number in (1, 2))
        return Result(status, out.read_bytes(), err.read_text(errors="replace"), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._server:
            self._server.kill()
