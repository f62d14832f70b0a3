"""Start the program that deletes directories in the background (``system.delete_tree``)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import delete_tree, process


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
    """Delete directories, in a program that no process waits for.

    The program inherits the descriptors of the directories, and with them their locks (``flock(2)``). It has
    nothing else of the session: no name, no variable by which a session counts a process as its agent's, no
    descriptor, no signal handler, no working directory.

    Root can have a Python that the owner of a project cannot read. Then this process deletes.

    Arguments:
        entries: the directories.
        token: the name of the file that is deleted last in each of them.

    """
    words = [f"{entry.parent}:{entry.directory}:{entry.name}" for entry in entries]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RALPH_")}
    try:
        Path(delete_tree.__file__).open("rb").close()
        process.detach(
            # -I, -S: neither the environment nor the installed packages change its behaviour. PID 1 knows it
            # by these words (``interfaces.init.processes``).
            (sys.executable, "-I", "-S", "-X", "utf8", delete_tree.__file__, token, *words),
            cwd=Path("/"),
            env={process.OWN_COMMAND: "1"} | variables,
            inherited=[number for entry in entries for number in (entry.parent, entry.directory)],
        )
    except OSError:
        for entry in entries:
            with contextlib.suppress(OSError):
                delete_tree.TreeDeletion(*entry, token).run()
