"""Checks of the file systems and their free space."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.git import list_refs, run_git
from ralph_wrap.state.project import WORKTREES, Project
from ralph_wrap.system import files
from ralph_wrap.system.text import readable_size

_BLOCK = 512  # bytes, of st_blocks (stat(3type))
_MEBIBYTE = 1 << 20
_MUCH, _MANY = 5 << 30, 5000  # bytes and refs


def kind(path: Path, table: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system of a path; empty if it is unknown (``proc(5)``)."""
    try:
        rows = table.read_bytes().splitlines()
    except OSError:
        return ""
    name, depth = "", -1
    for row in rows:
        mount_fields, _, file_system_fields = row.partition(b" - ")
        point = Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", _octal, mount_fields.split(b" ")[4])))
        # Of two mounts at one place, the later one hides the earlier one.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            name, depth = os.fsdecode(file_system_fields.split(b" ")[0]), len(point.parts)
    return name


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])


def mounts(project: Project, *, contained: bool) -> Iterator[DoctorCheck]:
    """Check whether the file systems are writable, and whether there is only one.

    Arguments:
        contained: this is a container.

    """
    why = "a session writes worktrees, records and branches in the project"
    worktrees = existing_parent(project.root / WORKTREES)
    root = existing_parent(project.root)  # that of a bare repository is made by the first session
    paths = [root, worktrees, *([project.repository.common_dir] if project.repository else [])]
    for path in paths:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            yield failed("mounts", f"{path} is mounted read-only", why, "mount it without :ro")
            return
    if worktrees.stat().st_dev != root.stat().st_dev:
        found = f"{worktrees} is on another file system ({kind(worktrees)}) than {root}"
        fix = "keep it as long as the project: it holds the unsaved work of killed sessions"
        yield noted("mounts", found, why, fix)
    elif contained and kind(root) == "overlay":
        found = f"{root} is in the container's own layer, which Docker deletes with the container"
        yield noted("mounts", found, why, 'docker run -v "$PWD:/workspace/project"')
    else:
        yield fine("mounts", f"{kind(root) or 'a file system'}, writable", why)


class _SpaceNeeded(NamedTuple):
    """The size of a worktree, in bytes and files."""

    size: int
    files: int


def disk(project: Project) -> DoctorCheck:
    """Check whether a worktree fits on the disk."""
    name, why = "disk", "a session needs space for its worktree"
    path = existing_parent(project.root / WORKTREES)
    need, file_system = _need(project), os.statvfs(path)
    size = file_system.f_bavail * file_system.f_frsize
    worktree_size = (
        f"a worktree takes {readable_size(need.size)} in {need.files} file{'' if need.files == 1 else 's'}"
    )
    if not file_system.f_blocks:  # it does not count its blocks: ramfs, a tmpfs without a limit, some of FUSE
        return fine(name, f"an unknown amount left on {path}; {worktree_size}", why)
    if size < need.size + _MEBIBYTE:
        return failed(name, f"{readable_size(size)} left on {path}; {worktree_size}", why, "free some space")
    if file_system.f_files and file_system.f_favail < need.files + 100:  # 0 means no limit (btrfs)
        return failed(
            name, f"{file_system.f_favail} inodes left on {path}; {worktree_size}", why, "delete files there"
        )
    return fine(name, f"{readable_size(size)} left on {path}; {worktree_size}", why)


def kept(project: Project) -> DoctorCheck:
    """Say what ``.ralph`` and our refs take; a lot of either is worth a note."""
    why = "records, logs, kept worktrees and snapshots stay until they are due"
    size = 0
    for path in files.files_below(project.root / WORKTREES.parent):
        with contextlib.suppress(OSError):  # a session has just deleted it
            size += path.lstat().st_blocks * _BLOCK
    refs = len(list_refs(project.git, "refs/ralph/"))
    held = f", and {refs} ref{' keeps' if refs == 1 else 's keep'} work below refs/ralph" if refs else ""
    found = f".ralph takes {readable_size(size)}{held}"
    if size > _MUCH or refs > _MANY:
        return noted("kept", found, why, "to see what is due: ralph-wrap clean --dry-run")
    return fine("kept", found, why)


def _need(project: Project) -> _SpaceNeeded:
    """Return the size of the checkout's files, which a worktree has, too."""
    top, size = os.fsencode(project.checkout), 0
    names = run_git(project.git, "ls-files", "-z").stdout.split(b"\0")[:-1]
    for name in names:
        with contextlib.suppress(OSError):  # the file is deleted, but still in the index
            size += os.lstat(top + b"/" + name).st_blocks * _BLOCK
    return _SpaceNeeded(size, len(names))


def existing_parent(path: Path) -> Path:
    """Return a directory, or the nearest one above it that exists."""
    return next(directory for directory in (path, *path.parents) if directory.is_dir())
