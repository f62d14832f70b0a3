"""A git that stops at one of its commands until it is let through."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Self

from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

_SHIM = """\
#!/bin/sh
# Git, but the first command that begins with the words $GATE_AT waits for a line from the gate. A gate that
# is no longer there is an open one: then the FIFO ends.
words= skip=
for word; do
    if [ "$skip" ]; then skip=; continue; fi
    case $words$word in
        -c) skip=1 ;;
        -*) ;;
        *) words="$words$word " ;;
    esac
done
case $words in
    "$GATE_AT "*) if mkdir "$GATE/reached" 2>/dev/null; then read -r _ < "$GATE/line"; fi ;;
esac
exec "$GATE_GIT" "$@"
"""


class Gate:
    """Holds a session at one moment of its life; leaving the context opens the gate.

    Arguments:
        directory: for its files; created.
        at: the first words of the git command that is to wait, options before them left out.

    """

    def __init__(self, directory: Path, at: str) -> None:
        git = shutil.which("git")
        assert git is not None
        directory.mkdir()
        shim = directory / "bin" / "git"
        shim.parent.mkdir()
        shim.write_text(_SHIM)
        shim.chmod(0o755)
        self._reached = directory / "reached"
        self._at = at
        line = directory / "line"
        os.mkfifo(line)
        self._line = os.open(line, os.O_RDWR)
        self.env = {
            "PATH": f"{shim.parent}:{os.environ['PATH']}",
            "GATE": os.fspath(directory),
            "GATE_AT": at,
            "GATE_GIT": git,
        }

    def wait(self) -> None:
        """Wait until a git command waits at the gate."""
        eventually(self._reached.exists, f"git {self._at}")

    def open(self) -> None:
        """Let the waiting command through."""
        os.write(self._line, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        os.close(self._line)
