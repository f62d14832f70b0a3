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


def have_git_register(project: Path) -> None:
    """Have ``git worktree add`` register the next worktrees of a project.

    If there are patterns of a sparse checkout, only git knows whether it has to copy them.
    """
    (project / ".git/info").mkdir(exist_ok=True)
    (project / ".git/info/sparse-checkout").touch()


def old_git(directory: Path, version: str) -> str:
    """Make a git that says that it has another version, and return the PATH that finds it first.

    Only ``git version`` tells it: git before 2.22 prints no trace (api-trace2).
    """
    return shim_git(directory, f'*" version "*) echo git version {version}; exit ;;\n*) unset GIT_TRACE2 ;;')


def path_without_git(directory: Path) -> str:
    """Make a directory with links to the few programs that agents need, and return a PATH without git."""
    directory.mkdir()
    for name in ("sh", "cat", "rm", "sleep"):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    return str(directory)


def deadly_git(directory: Path) -> str:
    """Make a git that dies of SIGKILL when the environment says so, and return the PATH that finds it first.

    ``DEADLY`` is ``git-before`` (it does anything), ``git-after`` (it has done it), or ``git-middle``.
    In the middle :func:`deadly_filter` kills it, or another git that it starts.
    """
    killer = directory.with_name(f"{directory.name}-exec") / "git"
    killer.parent.mkdir()
    killer.write_text("#!/bin/sh\nkill -9 $PPID\n")
    killer.chmod(0o755)
    cases = f"""*)
    case $DEADLY in
        git-before) kill -9 $$ ;;
        git-after) unset DEADLY; "$REAL" "$@"; kill -9 $$ ;;
        git-middle) case " $* " in *" worktree add "*) export GIT_EXEC_PATH={killer.parent} ;; esac ;;
    esac ;;"""
    return shim_git(directory, cases)


def deadly_filter(path: Path) -> str:
    """Make a filter driver (gitattributes(5)) that kills the git which runs it, and return its command."""
    # Without anything special in it git executes it by itself, so that git is its parent.
    path.write_text('#!/bin/sh\n[ "$DEADLY" = git-middle ] && kill -9 $PPID\nexec cat\n')
    path.chmod(0o755)
    return os.fspath(path)
