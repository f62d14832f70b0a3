"""The worktrees of a repository and their branches, parsed from ``git worktree list --porcelain``.

With ``-z`` git ends each line with NUL, and paths come back byte for byte. ``-z`` needs git 2.36. Older git
ends lines with a newline. It cuts a path that contains a newline, and the rest of the path may look like
other lines of the output. A parser cannot detect this. Git 2.31 to 2.35 quotes reasons as C strings. Git
before 2.31 prints neither locked nor prunable.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import NO_SUCH_OPTION, Git, decode, run_git_again, start_git
from ralph_wrap.system.process import RunningCommand

_COMMAND = ("worktree", "list", "--porcelain")
_BRANCHES = "refs/heads/"
# The content of a ref is on the disk before its name is: after a power failure no ref is an empty file.
_WRITTEN_OUT = ("-c", "core.fsync=reference", "-c", "core.fsyncMethod=writeout-only")
_ESCAPE = re.compile(rb"(?s)\\([0-7]{3}|.)")
_ESCAPED = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


class WorktreeInfo(NamedTuple):
    """One worktree, the main one included.

    Attributes:
        path: its directory; for a bare repository, the directory of the repository.
        branch: short name of its branch; ``None`` for a detached HEAD or a bare repository.
        head: id of its commit; ``None`` before the first commit, or for a bare repository.
        locked: reason of the lock, empty if the lock has none; ``None`` if the worktree is not locked.
        prunable: reason why ``git worktree prune`` would remove it; ``None`` if it would not.

    """

    path: Path
    branch: str | None = None
    head: str | None = None
    locked: str | None = None
    prunable: str | None = None


def list_worktrees(git: Git) -> list[WorktreeInfo]:
    """Return all worktrees of a repository, the main one first.

    Raises:
        GitError: there is no repository, or git cannot read it.

    """
    try:
        return parse_porcelain(run_git_again(git, *_COMMAND, "-z").stdout, b"\0")
    except GitError as error:
        if error.status != NO_SUCH_OPTION:
            raise
    return parse_porcelain(run_git_again(git, *_COMMAND).stdout, b"\n")


def parse_porcelain(output: bytes, separator: bytes) -> list[WorktreeInfo]:
    """Parse ``git worktree list --porcelain`` (git-worktree(1), *PORCELAIN FORMAT*); skip unknown lines.

    Arguments:
        output: the output of git.
        separator: the end of a line: NUL with ``-z``, else a newline.

    """
    found: list[WorktreeInfo] = []
    for line in output.split(separator):
        key, _, value = line.partition(b" ")
        if key == b"worktree":
            # For a repository in the root directory git removes "/.git" from "/.git": nothing is left.
            found.append(WorktreeInfo(Path(decode(value) or "/")))
        elif found:
            found[-1] = _with_line(found[-1], key, value if separator == b"\0" else _unquoted(value))
    return found


def _with_line(info: WorktreeInfo, key: bytes, value: bytes) -> WorktreeInfo:
    word = decode(value)
    if key == b"HEAD":
        return info._replace(head=word if word.strip("0") else None)
    if key == b"branch" and word.startswith(_BRANCHES):
        return info._replace(branch=word.removeprefix(_BRANCHES))
    if key == b"locked":
        return info._replace(locked=word)
    if key == b"prunable":
        return info._replace(prunable=word)
    return info


def _unquoted(value: bytes) -> bytes:
    if value[:1] != b'"':
        return value
    return _ESCAPE.sub(_unescaped, value[1:-1])


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1].isdigit():
        return bytes((int(match[1], 8) & 0xFF,))
    return bytes((_ESCAPED.get(match[1][0], match[1][0]),))


def start_to_create_branch(git: Git, branch: str, commit: str, reason: str) -> RunningCommand:
    """Start to create the branch of a new worktree, which must not exist; the caller syncs it.

    Arguments:
        branch: its name, without ``refs/heads/``.
        commit: object id.
        reason: message for its reflog.

    """
    new = (f"{_BRANCHES}{branch}", commit, "0" * len(commit))
    return start_git(git, "update-ref", "--no-deref", "-m", reason, *new, config=_WRITTEN_OUT)


def worktree_holding(git: Git, ref: str) -> Path | None:
    """Return the path of the worktree that has a branch checked out, ``None`` if none has.

    Arguments:
        ref: full name of the branch.

    """
    infos = list_worktrees(git)
    return next((info.path for info in infos if info.branch and f"{_BRANCHES}{info.branch}" == ref), None)


def is_registered(git: Git, path: Path) -> bool:
    """Return whether the repository has a worktree registered at a path."""
    return any(info.path == path for info in list_worktrees(git))
