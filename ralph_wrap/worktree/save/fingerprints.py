"""Compare two states of a workspace, to see whether an iteration changed anything."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, finish_git, resolve_commit
from ralph_wrap.git.repository import RepositoryCopies
from ralph_wrap.git.safe.submodules import inner_git, pointers_below
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.worktree.save.registration import is_replaced

_HASHED = 1 << 20  # bytes; a larger file is known by its size and times


def fingerprint(git: Git | None, top: Path, copies: RepositoryCopies | None = None) -> str:
    """Return a text that changes when HEAD changes, or a file that git does not ignore.

    Arguments:
        git: git in the workspace; ``None`` if there is no repository.
        top: the workspace.
        copies: the repositories of the submodules of a clone. Of another submodule only the commit counts.

    Returns:
        The text; empty if the state is unknown, or if *git* has a token and a signal came.

    """
    if git is None:
        return _digest("", top, _every_file(top), NEVER, largest=-1)  # there may be any number of them
    if git.git_dir is not None and is_replaced(git.git_dir):
        return ""
    try:
        with start_status(git) as running:
            head = resolve_commit(git, "HEAD") or ""
            status = parse_status(finish_git(running, "status").stdout)
        submodules = [*pointers_below(git, top, copies)]
    except (GitError, OSError):
        return ""
    inside = {
        submodule.path: fingerprint(inner_git(git, top, submodule), top / submodule.path, copies)
        for submodule in submodules
    }
    worked_in = {path for path, state in inside.items() if not is_pristine(state)}
    paths = sorted({*status.changed, *status.untracked, *worked_in})
    if not paths:
        return pristine(head)
    head = " ".join([head, *(inside[path] for path in paths if path in inside)])
    return _digest(head, top, paths, git.cancel or NEVER)


def pristine(head: str) -> str:
    """Return the fingerprint of a new worktree at a commit; without one the repository has none yet."""
    return head or "unborn"


def is_pristine(state: str) -> bool:
    """Return whether a fingerprint is that of a workspace without uncommitted files."""
    return state != "" and " " not in state


def _digest(
    head: str, top: Path, paths: Iterable[str], cancel: CancelToken, *, largest: int = _HASHED
) -> str:
    found = hashlib.sha1(usedforsecurity=False)
    for path in paths:
        if cancel.requested:  # 20,000 files take more than a second
            return ""
        found.update(b"\0" + os.fsencode(path) + b"\0" + _content(top / path, largest))
    return f"{head} {found.hexdigest()}"


def _content(path: Path, largest: int) -> bytes:
    """Return a value that changes with a file; for a short file its content, so a new time is no change."""
    try:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= largest:
            return b"%o " % status.st_mode + files.read(path, _HASHED)  # a FIFO may have come meanwhile
        if stat.S_ISLNK(status.st_mode):
            return os.fsencode(path.readlink())
    except OSError:
        return b"absent"
    return b"%o %d %d %d" % (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _every_file(top: Path) -> Iterable[str]:
    for directory, names, others in files.walk(top):
        if Path(directory) == top and ".ralph" in names:
            names.remove(".ralph")
        names.sort()
        for name in sorted(others):
            path = Path(directory, name)
            yield os.fspath(path.relative_to(top))
