"""A ``git`` first on PATH that does something else for some calls, and is the real one for the others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def shim_git(directory: Path, cases: str) -> str:
    """Make the shim and return the PATH that finds it first.

    Arguments:
        directory: a new directory for it.
        cases: branches of a shell ``case`` over all arguments, for example ``*" reset "*) exit 1 ;;``; the
            real program is ``$REAL``.

    """
    real = shutil.which("git")
    assert real is not None
    directory.mkdir()
    program = directory / "git"
    program.write_text(f'#!/bin/sh\nREAL={real}\ncase " $* " in\n{cases}\nesac\nexec "$REAL" "$@"\n')
    program.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def path_without_git(directory: Path) -> str:
    """Make a directory with links to the few programs that agents need, and return a PATH without git."""
    directory.mkdir()
    for name in ("sh", "cat", "rm", "sleep"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    return str(directory)
