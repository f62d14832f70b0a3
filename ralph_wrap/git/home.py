"""Where the worktrees and records of a repository belong: a directory that stays, whatever checkout one uses.

This is the main checkout, also for a user who works in a linked worktree: ``git worktree remove`` deletes
ignored directories in it without a word, and ours are ignored. A bare repository has no main checkout. It is
often the hidden neighbour of its worktrees, named by a ``.git`` file: then the directory of this file is the
place. Any other bare repository gets a directory of ours beside it, with such a ``.git`` file.

Only files are read here (gitrepository-layout(5)); git knows no more than they say.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import ConflictError, NoCheckoutError, RalphError
from ralph_wrap.git import pointer
from ralph_wrap.git.safe.common_dir import EXTENSION, OWN_CONFIG, configuration
from ralph_wrap.git.safe.entries import read_config
from ralph_wrap.system import files

_SUFFIX = ".ralph"
_TRUE = {"true", "yes", "on", "1"}
_PARTS = ("HEAD", "objects", "refs")  # of a repository


class RepositoryHome(NamedTuple):
    """Where the worktrees and records of a repository belong.

    Attributes:
        directory: it may not exist yet.
        is_checkout: it is the main checkout; otherwise the repository is bare.

    """

    directory: Path
    is_checkout: bool


def home_of(checkout: Path, common_dir: Path) -> RepositoryHome:
    """Return where the worktrees and records of a repository belong.

    Arguments:
        checkout: a checkout of the repository, resolved.
        common_dir: of the repository, resolved.

    Raises:
        NoCheckoutError: no file says where the main checkout is, or it is not there.
        GitError: the configuration cannot be read.

    """
    if pointer.git_dir_of(checkout) == common_dir:
        return RepositoryHome(checkout, is_checkout=True)
    entries = configuration(common_dir)
    if any(key == EXTENSION for key, _ in entries):  # git moves both keys to this file then
        with contextlib.suppress(OSError, ValueError):
            entries = [*entries, *read_config(common_dir / OWN_CONFIG)]
    values = dict(entries)
    is_bare = values.get("core.bare", "false") in {None, *_TRUE}
    if pointer.git_dir_of(common_dir.parent) == common_dir:
        _require_mounted(common_dir)
        return RepositoryHome(common_dir.parent, is_checkout=not is_bare)
    if is_bare:
        return RepositoryHome(_beside(common_dir), is_checkout=False)
    main = pointer.real(common_dir / (values.get("core.worktree") or "."))
    if pointer.git_dir_of(main) == common_dir:
        return RepositoryHome(main, is_checkout=True)
    config = shlex.quote(os.fspath(common_dir / "config"))
    raise NoCheckoutError(
        f"{checkout} is a linked worktree, and git does not know where the main checkout of {common_dir} is",
        f"git config --file {config} core.worktree PATH-OF-THE-MAIN-CHECKOUT",
    )


def home_of_bare(directory: Path) -> RepositoryHome | None:
    """Return where the worktrees of a bare repository belong; ``None`` if a directory is in none.

    Arguments:
        directory: in the repository, or the one with a ``.git`` file that names it; resolved.

    """
    for path in (directory, *directory.parents):
        if os.path.lexists(path / ".git"):
            common_dir = pointer.git_dir_of(path)
        elif all(os.path.lexists(path / name) for name in _PARTS):
            common_dir = path
        else:
            continue
        if not (common_dir / "objects").is_dir():
            return None
        if pointer.git_dir_of(common_dir.parent) == common_dir:
            return RepositoryHome(common_dir.parent, is_checkout=False)
        return RepositoryHome(_beside(common_dir), is_checkout=False)
    return None


def _beside(common_dir: Path) -> Path:
    return common_dir.with_name(common_dir.name + _SUFFIX)


def _require_mounted(common_dir: Path) -> None:
    """Check that the main checkout is there, and not only its ``.git``, as a container may have it."""
    main = common_dir.parent
    if not os.path.ismount(common_dir):
        return
    with contextlib.suppress(OSError):
        if {entry.name for entry in os.scandir(main)} <= {".git", ".ralph"}:
            raise NoCheckoutError(
                f"the main checkout {main} is not here, only its .git is mounted: worktrees and records in it"
                " would go with the container",
                f"mount the whole of it: docker run -v {shlex.quote(f'{main}:{main}')}",
            )


def make_home(home: Path, common_dir: Path) -> None:
    """Make the directory of a bare repository's worktrees, if it is not there yet.

    Raises:
        ConflictError: another repository has a directory of this name, or nobody of ours has made it.
        RalphError: it cannot be made.

    """
    git_file = home / ".git"
    try:
        if pointer.git_dir_of(home) == common_dir:
            return
        home.mkdir(exist_ok=True)
        others = {*home.iterdir()} - {*files.temporaries(git_file)}
        if others and pointer.git_dir_of(home) != common_dir:
            raise ConflictError(
                f"{home} is in the way: ralph-wrap keeps the worktrees of {common_dir} there",
                f"mv {shlex.quote(os.fspath(home))} {shlex.quote(f'{home}.old')}",
            )
        files.replace(git_file, pointer.git_file_content(os.path.relpath(common_dir, home)))
    except OSError as error:
        owner = f"-o {os.geteuid()} -g {os.getegid()}"
        raise RalphError(
            f"{home}, for the worktrees of the bare repository beside it, cannot be made: {error.strerror}",
            f"sudo install -d {owner} {shlex.quote(os.fspath(home))}",
        ) from error
