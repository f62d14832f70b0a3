"""Run ralph-wrap with one of its defences switched off, so that an attack can be seen to succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.sessions import Result
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PROGRAM = """
import sys
exec(sys.argv.pop(1))
sys.argv[0] = "ralph-wrap"
from ralph_wrap.__main__ import main
main()
"""

NO_SCAN = """
from ralph_wrap.state.audit import look
look.scan = lambda *_: look.Scan((), {})
"""
"""No command looks for what makes git run a program; only the comparison with a baseline is left."""

NO_OWNER = """
from ralph_wrap.errors import NotARepositoryError
from ralph_wrap.git import repository
repository._no_repository = lambda git, _: NotARepositoryError(str(git.cwd))
"""
"""A repository that git does not trust counts as none."""

FOLLOWS_SYMLINKS = """
from ralph_wrap.state import project
project.linked_directory = lambda _: None
"""
"""A directory of ours that is a symlink is followed."""

NO_LIMIT = """
import contextlib, fcntl, os
from ralph_wrap.system import files

@contextlib.contextmanager
def locked_directory(path, _timeout):
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    os.close(descriptor)

files.locked_directory = locked_directory
"""
"""The kernel waits for a lock, as ``flock(1)`` does."""


def start(
    without: str, *words: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command of ralph-wrap that lacks a defence.

    Arguments:
        without: one of the programs above.
        words: of the command line.
        cwd: where.
        env: added to our environment.

    """
    return subprocess.Popen(
        (sys.executable, "-c", _PROGRAM, without, *words),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(without: str, *words: str, cwd: Path, env: Mapping[str, str] | None = None) -> Result:
    """Run such a command to its end."""
    with start(without, *words, cwd=cwd, env=env) as process:
        stdout, stderr = process.communicate(timeout=CAP)
        return Result(process.wait(), stdout, stderr.decode(errors="replace"), None)
