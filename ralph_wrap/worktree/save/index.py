"""A copy of an index that gets the state of the files on the disk.

The index of a worktree itself never changes: its owner may need it, if the worktree is kept.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ralph_wrap.git import Git, finish_git, run_git
from ralph_wrap.git.index import IndexListing, encode_paths, submodules_in
from ralph_wrap.git.status import Status, parse_status, stage_paths, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.layout import is_sparse
from ralph_wrap.worktree.model import LinkedWorktree

LONGEST_SEARCH = 5.0
"""Seconds for all of a save's calls of :func:`add_what_can_be`; ``docker stop`` waits for 10."""


@contextlib.contextmanager
def scratch_in(registration: Path) -> Iterator[Path]:
    """Yield a new directory for copies of the index in a worktree's registration; git deletes it with it."""
    directory = registration / f"ralph-wrap-{os.urandom(4).hex()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        if directory.exists():  # the worktree stays
            files.remove_tree(directory)


def status_of(git: Git) -> Status:
    """Return the state of all files; for a submodule, only whether it is at another commit.

    ``submodules`` checks the files in submodules, and any other repository keeps the worktree anyway.

    Raises:
        GitError: git failed.

    """
    with start_status(git) as running:
        return parse_status(finish_git(running, "status").stdout)


def copy_index(worktree: LinkedWorktree, scratch: Git) -> None:
    """Make the copy if it does not exist yet.

    Raises:
        OSError: there is no index, or it cannot be copied.

    """
    # With its times: a file may have changed in the moment when git wrote the index. Git finds such files by
    # the time of the index. With a newer time it would miss these changes.
    if scratch.index_file is not None and not scratch.index_file.exists():
        files.copy(worktree.registration / "index", scratch.index_file)


def lift_flags(worktree: LinkedWorktree, scratch: Git, listing: IndexListing) -> bool:
    """Remove index flags that hide changed files from git; return whether there were any.

    In a sparse checkout, an absent file with *skip worktree* was never checked out, so it is not deleted.

    Arguments:
        scratch: git in it with the copy, which this function makes if necessary.
        listing: of the worktree's own index.

    Raises:
        GitError: git failed.
        OSError: the index cannot be copied.

    """
    entries = [*listing.hidden()]
    if not entries:
        return False
    copy_index(worktree, scratch)
    arguments = ("config", "--bool", "--get", "core.sparseCheckout")
    sparse = (
        is_sparse(worktree.registration)
        or (worktree.clone and is_sparse(worktree.path / ".git"))  # the agent did that
        or run_git(scratch, *arguments, accept=(0, 1)).stdout == b"true\n"
    )
    lifted = {
        "--no-assume-unchanged": [entry.path for entry in entries if entry.is_assumed],
        "--no-skip-worktree": [
            entry.path
            for entry in entries
            if entry.is_skipped and (not sparse or os.path.lexists(worktree.path / entry.path))
        ],
    }
    for option, paths in lifted.items():
        run_git(scratch, "update-index", option, "-z", "--stdin", stdin=encode_paths(paths))
    return True


def not_in_index(scratch: Git) -> list[str]:
    """Return the files whose content on disk is not in the index, without nested repositories."""
    status = status_of(scratch)
    return [*status.unstaged, *(path for path in status.untracked if not path.endswith("/"))]


def add_what_can_be(scratch: Git, left: list[str], before: Collection[str], end: float) -> None:
    """Add files that ``git add`` has left out although it could store them.

    At most errors it goes on, so what is left cannot be stored. At some it stops, for example where a filter
    fails, and then has added nothing. ``git update-index``, which adds submodules, stops at each error. Only
    then halves of the list are tried, a process each, for a limited time: thousands of files that cannot be
    read would take longer than ``docker stop`` waits. The first half comes first, down to a single file, so
    that some files are added in the time there is.

    Arguments:
        scratch: git in the worktree with a copy of its index.
        left: the files that are not in the index.
        before: the same before the attempt.
        end: when to stop, as :func:`time.monotonic` counts.

    """
    if {*left} < {*before}:  # it did not stop
        submodules = {entry.path for entry in submodules_in(scratch)}
        left = [path for path in left if path in submodules]
    top = scratch.cwd
    waiting = [[path for path in left if may_be_read(top / path)]]
    while waiting and time.monotonic() < end:
        if not (paths := waiting.pop()):
            continue
        failure = stage_paths(scratch, paths)
        unlock(scratch)
        if failure is not None and len(paths) > 1:
            middle = len(paths) // 2
            waiting += [paths[middle:], paths[:middle]]


def may_be_read(path: Path) -> bool:
    """Return whether the modes of files let git store the state of a path."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # git stores that it is gone
        return True
    except OSError:
        return False
    return not stat.S_ISREG(mode) or os.access(path, os.R_OK)


def unlock(scratch: Git) -> None:
    """Remove the lock of a git that was killed (out of memory); no other process uses this index."""
    if scratch.index_file is not None:
        scratch.index_file.with_name(f"{scratch.index_file.name}.lock").unlink(missing_ok=True)


def resolve(scratch: Git) -> None:
    """Replace each conflict in the index by one side, our own first: a tree cannot hold conflicts.

    No work is lost: all sides are in commits, and the file with its conflict markers is on the disk.
    """
    sides: dict[bytes, dict[bytes, bytes]] = {}
    for entry in run_git(scratch, "ls-files", "--unmerged", "-z").stdout.split(b"\0")[:-1]:
        info, _, path = entry.partition(b"\t")
        mode, oid, stage = info.split(b" ")
        sides.setdefault(path, {})[stage] = b"%s %s" % (mode, oid)
    answer = b""
    for path, staged in sides.items():
        ours = staged.get(b"2") or staged.get(b"3") or staged[b"1"]
        nothing = b"0" * len(ours.partition(b" ")[2])
        answer += b"0 %s\t%s\0%s\t%s\0" % (nothing, path, ours, path)
    run_git(scratch, "update-index", "-z", "--index-info", stdin=answer)
