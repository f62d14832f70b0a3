"""A copy of an index that gets the state of the files on the disk.

The index of a worktree itself never changes: its owner may need it, if the worktree is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ralph_wrap.git import Git, decode, finish_git, run_git
from ralph_wrap.git.index import IndexListing, encode_paths
from ralph_wrap.git.status import STRICT, Status, parse_status, stage_all, stage_paths, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.layout import is_sparse
from ralph_wrap.worktree.model import LinkedWorktree

_NO_FILTER = {"unspecified", "unset", "set"}  # values of the attribute (git-check-attr(1)) that name none
_CLOSED = "they may not be read"
_SECOND = 1_000_000_000  # in nanoseconds


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


def status_of(git: Git, *, ignored: bool = True) -> Status:
    """Return the state of all files; for a submodule, only whether it is at another commit.

    ``submodules`` checks the files in submodules, and any other repository keeps the worktree anyway.

    Arguments:
        ignored: list ignored paths, too.

    Raises:
        GitError: git failed.

    """
    with start_status(git, ignored=ignored) as running:
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


@contextlib.contextmanager
def reading_anew(scratch: Git) -> Iterator[None]:
    """Give the copy a time before this block, if git writes it in the block.

    A process may write to the files meanwhile. Git compares the seconds of the times. If it writes the index
    a second after it has read a file, it takes that file for unchanged later, although an edit of the same
    size has followed in the same second: only files that are not older than the index are read again
    (https://git-scm.com/docs/racy-git). With an older time, git reads each later file again. So what is to
    find such an edit has to follow this block.

    Arguments:
        scratch: git in the worktree with a copy of its index, perhaps one that the block makes.

    """
    began = time.time_ns() - _SECOND  # the clock of a file system may be a little behind
    try:
        yield
    finally:
        if scratch.index_file is not None:
            with contextlib.suppress(FileNotFoundError):
                if scratch.index_file.stat().st_mtime_ns > began:  # otherwise git has not written it
                    os.utime(scratch.index_file, ns=(began, began))


def fresh_copy(worktree: LinkedWorktree, scratch: Git) -> None:
    """Make a new copy; without an index there is none.

    Raises:
        OSError: the index cannot be copied.

    """
    if scratch.index_file is None:
        return
    scratch.index_file.unlink(missing_ok=True)
    unlock(scratch)
    with contextlib.suppress(FileNotFoundError):
        copy_index(worktree, scratch)


def index_digest(worktree: LinkedWorktree) -> bytes | None:
    """Return a value that changes with the content of the index; ``None`` without an index.

    Raises:
        OSError: it cannot be read.

    """
    try:
        descriptor = os.open(worktree.registration / "index", os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as reading:  # noqa: PTH123 -- an agent may have put a FIFO there
        return hashlib.file_digest(reading, "sha256").digest()


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
    sparse = may_be_sparse(worktree) or run_git(scratch, *arguments, accept=(0, 1)).stdout == b"true\n"
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


def may_be_sparse(worktree: LinkedWorktree) -> bool:
    """Return whether a worktree has patterns of a sparse checkout; perhaps the agent has made them."""
    return is_sparse(worktree.registration) or (worktree.clone and is_sparse(worktree.path / ".git"))


def differing_files(scratch: Git) -> tuple[list[str], list[str]]:
    """Return the files that differ from an index, and the repositories among them, whatever HEAD is.

    Raises:
        GitError: git cannot read the index.

    """
    listed = ("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
    paths = dict.fromkeys(decode(run_git(scratch, *listed, config=STRICT).stdout).split("\0")[:-1])
    nested = [path.rstrip("/") for path in paths if path.endswith("/")]
    return [path for path in paths if not path.endswith("/")], nested


def not_in_index(scratch: Git) -> list[str]:
    """Return the files whose content on disk is not in the index, without nested repositories."""
    status = status_of(scratch, ignored=False)
    return [*status.unstaged, *status.new]


def stage_changes(
    scratch: Git, paths: Collection[str], nested: Collection[str] = ()
) -> tuple[list[str], str]:
    """Put the state of changed files into the copy of an index.

    Git gets these paths alone, so it looks at no other file. What the modes of files keep it from reading is
    left out before. At any other file that it cannot add, ``git update-index`` stops. Then ``git add`` takes
    all others, and the status says which are left. Where a filter fails, ``git add`` stops, too, and adds
    nothing. So those with each filter follow alone: some processes more for each filter, not for each file.

    Arguments:
        scratch: git in the worktree with a copy of its index.
        paths: the files, perhaps deleted ones; submodules get the commit at their HEAD.
        nested: repositories in the worktree, which git must not add.

    Returns:
        The files that are not in the index now, and the reason.

    """
    top = scratch.cwd
    closed = [path for path in paths if not may_be_read(top / path)]
    readable = [*({*paths} - {*closed})] if closed else [*paths]
    failure = stage_paths(scratch, readable) if readable else None
    unlock(scratch)
    if failure is None:
        return closed, _CLOSED
    stage_all(scratch, exclude=nested)
    unlock(scratch)
    left = not_in_index(scratch)
    groups = _by_filter(scratch, [path for path in left if may_be_read(top / path)])
    for group in groups:
        stage_paths(scratch, group)
        unlock(scratch)
    return not_in_index(scratch) if groups else left, failure.message


def _by_filter(git: Git, paths: Collection[str]) -> list[list[str]]:
    """Return paths in groups: without a filter, and with each one (gitattributes(5)).

    A filter is a program through which git sends the content of a file before it stores it.
    """
    answer = run_git(git, "check-attr", "-z", "--stdin", "filter", stdin=encode_paths(paths))
    fields = decode(answer.stdout).split("\0")[:-1]
    groups: dict[str, list[str]] = {}
    for path, value in zip(fields[::3], fields[2::3], strict=True):
        groups.setdefault("" if value in _NO_FILTER else value, []).append(path)
    return [*groups.values()]


def holds_unseen_files(submodule: Path) -> bool:
    """Return whether the directory of a submodule has files and no repository: git does not look at them."""
    return submodule.is_dir() and not (submodule / ".git").exists() and any(submodule.iterdir())


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
