"""Tell one state of a workspace from another, to see whether an iteration changed anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import finish_git, parse_status, resolve_commit, start_status
from ralph_wrap.system import deferred
from ralph_wrap.worktree.save.registration import is_replaced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralph_wrap.git import Git

_HASHED = 1 << 20  # bytes; a larger file is known by its size and times


def fingerprint(git: Git | None, top: Path) -> str:
    """Return a text that is another one when HEAD or a file that is not ignored has changed.

    Arguments:
        git: git in the workspace; ``None`` where there is no repository.
        top: the workspace.

    Returns:
        The text, empty if it cannot be told.

    """
    if git is None:
        return _digest("", top, _every_file(top), largest=-1)  # there may be any number of them
    if git.git_dir is not None and is_replaced(git.git_dir):
        return ""
    try:
        with start_status(git) as asking:
            head = resolve_commit(git, "HEAD") or ""
            status = parse_status(finish_git(asking, "status").stdout)
    except (GitError, OSError):
        return ""
    if status.clean:
        return pristine(head)
    paths = sorted({*status.changed, *status.untracked})
    # Of a submodule nothing is told but that it is another one.
    inner = [top / path for path in paths if (top / path / ".git").exists()]
    there = git._replace(git_dir=None, common_dir=None, work_tree=None)
    return _digest(
        " ".join([head, *(fingerprint(there._replace(cwd=path), path) for path in inner)]), top, paths
    )


def pristine(head: str) -> str:
    """Return the fingerprint of a worktree just checked out at a commit."""
    return head


def is_pristine(state: str) -> bool:
    """Tell whether a fingerprint says that nothing is uncommitted."""
    return state != "" and " " not in state


def _digest(head: str, top: Path, paths: Iterable[str], *, largest: int = _HASHED) -> str:
    digest = deferred.hashlib.sha1(usedforsecurity=False)
    for path in paths:
        digest.update(b"\0" + os.fsencode(path) + b"\0" + _content(top / path, largest))
    return f"{head} {digest.hexdigest()}"


def _content(path: Path, largest: int) -> bytes:
    """Return what changes when a file does; its text if it is short: rewriting the same is no change."""
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= largest:
            return b"%o " % found.st_mode + path.read_bytes()
        if stat.S_ISLNK(found.st_mode):
            return os.fsencode(path.readlink())
    except OSError:
        return b"absent"
    return b"%o %d %d %d" % (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _every_file(top: Path) -> Iterable[str]:
    for directory, names, files in os.walk(top):
        if Path(directory) == top and ".ralph" in names:
            names.remove(".ralph")
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            yield os.fspath(path.relative_to(top))
