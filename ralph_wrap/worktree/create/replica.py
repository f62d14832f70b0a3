"""The replica of a clone: a repository of ours, in which we save what an agent does in its clone.

An agent owns its clone: it can write a program into the configuration, or a FIFO in the place of HEAD. So git
of ours never runs in a clone. :func:`refresh` reads the clone's files, and copies these to the replica:

- objects, which have their hash for a name, so that git notices a changed one;
- the branches, as far as a save needs them;
- HEAD, index, reflogs and the files of an unfinished operation, to the *registration* in the replica.

It copies no configuration, no hook, no attributes and no ``alternates``: the replica has its own. With the
registration in its place, the replica looks like the repository of a linked worktree at the clone's path. So
the same code saves and removes clones and worktrees.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import Git, decode, decode_lines, existing_commits, list_refs, run_git
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.remote import list_remotes
from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree

# An agent could make files with these names in its clone, and a save would believe them.
_OURS = re.compile(r"ralph-wrap-.*|commondir|gitdir|locked|info", re.DOTALL)
_NOT_COPIED = {
    *("objects", "modules", "lfs", "worktrees"),
    *("config", "config.worktree", "hooks", "info", "branches", "description"),
}
_OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]+|pack/pack-[0-9a-f]+\.(pack|idx)")
_LARGEST = 1 << 30  # bytes of a file that is no object
_MOST = 200_000  # files that are no objects
_COPIED_REFS = ("refs/heads/", "refs/remotes/")
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"

TEMPLATES = re.compile(r".*/(config|description|.*\.lock)|hooks/.*|info/exclude")
"""Directory and name of files that git writes to a new repository before its HEAD."""


CLONED = "ralph-wrap-cloned"
"""In a submodule's repository: the commits that it was cloned with from a place that is not ours."""


class _Entry(NamedTuple):
    path: str
    status: os.stat_result


def refresh(tree: LinkedWorktree, git: Git) -> None:
    """Copy what a clone holds to its replica; a linked worktree has none, and nothing happens.

    Arguments:
        tree: the clone.
        git: git in the replica.

    Raises:
        OSError: a file of the clone is not a plain file, or cannot be copied.
        GitError: the replica does not accept a branch.

    """
    if not tree.clone:
        return
    source = tree.path / ".git"
    if tree.path.is_symlink() or source.is_symlink() or not source.is_dir():
        raise OSError(errno.ENOTDIR, "it is not the directory of a repository any more", str(source))
    _copy_objects(source / "objects", tree.common_dir / "objects")
    entries = {entry.path: entry.status for entry in _plain_files(source)}
    _copy_files(source, tree.registration, entries)
    _copy_refs(tree, git, entries)
    if os.path.lexists(source / "modules"):
        _copy_modules(source / "modules", tree.registration / "modules")


def trust_cloned(worktree: LinkedWorktree, marked: Path) -> None:
    """Copy which commits the submodules of a clone were cloned with, so that these count as no work.

    Arguments:
        worktree: the clone; its replica has the repositories.
        marked: a directory with the same repositories, in which a file names the commits.

    Raises:
        OSError: a file cannot be copied.

    """
    modules = worktree.registration / "modules"
    for head in sorted(path for path in files.files_below(modules) if path.name == "HEAD"):
        repository = head.parent.relative_to(worktree.registration)
        if (head.parent / "objects").is_dir():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _copy(marked / repository / CLONED, head.with_name(CLONED))


def _copy_modules(source: Path, target: Path) -> None:
    """Copy the repositories of submodules; each gets a configuration of ours.

    Raises:
        OSError: a file belongs to no repository, is not a plain file, or cannot be copied.

    """
    waiting = [""]
    while waiting:
        name = waiting.pop()
        directory = source / name
        if directory.is_symlink():
            raise OSError(errno.ELOOP, "a symlink", str(directory))
        if name and os.path.lexists(directory / "HEAD") and not (directory / "HEAD").is_dir():
            _copy_repository(directory, target / name)
            continue
        for path in directory.iterdir():
            if path.is_dir() or path.is_symlink():
                waiting.append(f"{name}/{path.name}" if name else path.name)
            elif not TEMPLATES.fullmatch(f"{path.parent.name}/{path.name}"):
                raise OSError(errno.EINVAL, "it belongs to no repository", str(path))


def _copy_repository(source: Path, target: Path) -> None:
    for directory in ("objects/pack", "refs"):
        (target / directory).mkdir(parents=True, exist_ok=True)
    files.replace(target / "config", _CONFIG, sync=False)
    _copy_objects(source / "objects", target / "objects")
    _copy_files(source, target, {entry.path: entry.status for entry in _plain_files(source)})
    (target / "refs").mkdir(exist_ok=True)  # without it, this is no repository
    if os.path.lexists(source / "modules"):
        _copy_modules(source / "modules", target / "modules")


def copy_replica(old: Path, new: Path, git: Git, agent_id: str) -> None:
    """Copy objects and refs of a session's replica to a new one; an agent may have changed the first.

    Arguments:
        old: the replica of a dead session.
        new: the new replica, without branches.
        git: git in the new replica.
        agent_id: names the refs of the session.

    Raises:
        OSError: a file is not a plain file, or cannot be copied.
        GitError: git refuses a ref.

    """
    prefixes = ("refs/heads/", "refs/remotes/", f"refs/ralph/snapshots/{agent_id}/")
    _copy_objects(old / "objects", new / "objects")
    entries = {entry.path: entry.status for entry in _plain_files(old)}
    found = _refs(old, entries, prefixes)
    present = {*existing_commits(git, {*found.values()})}
    lost = {ref for ref, oid in found.items() if oid not in present and not ref.startswith("refs/remotes/")}
    if lost:
        raise OSError(f"{min(lost)} names a commit that is not in {old}")
    _update(git, {ref: oid for ref, oid in found.items() if oid in present})


def problems_of(tree: LinkedWorktree) -> list[str]:
    """Return one line for each thing in a clone that a replica does not hold."""
    found, own = [], tree.path / ".git"
    for repository in _repositories(own):
        if _has_entries(repository / "worktrees"):
            found.append(f"worktrees of the clone are in {repository / 'worktrees'}, which is not saved")
        if _has_large_files(own, repository / "lfs" / "objects", tree.common_dir / "objects"):
            found.append(f"large files of git-lfs are in {repository / 'lfs'}, which is not saved")
    return found


def _repositories(own: Path) -> Iterator[Path]:
    """Yield the git directory of a clone, and the repositories of its submodules."""
    yield own
    for directory, _, names in files.walk(own / "modules"):
        if "HEAD" in names:
            yield Path(directory)


def _has_large_files(own: Path, large: Path, objects: Path) -> bool:
    """Return whether git-lfs has stored a file that the project's repository lacks.

    Arguments:
        own: the git directory of the clone.
        large: where git-lfs stores files below it; a commit has only their names.
        objects: of the replica, which borrows those of the project.

    """
    if not large.is_dir():
        return False
    borrowed = objects / decode(files.read(objects / "info" / "alternates")).removesuffix("\n")
    shared = borrowed.resolve().parent
    return any(not (shared / path.relative_to(own)).is_file() for path in files.files_below(large))


def _has_entries(directory: Path) -> bool:
    try:
        return bool(_names(directory))
    except FileNotFoundError:
        return False


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _plain_files(source: Path) -> Iterator[_Entry]:
    """Yield every file of a git directory that is to be copied; each must be a plain file."""
    waiting = [""]
    count = 0
    while waiting:
        directory = waiting.pop()
        with os.scandir(source / directory) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if not directory and _is_left_out(entry.name):
                    continue
                status = entry.stat(follow_symlinks=False)
                count += 1
                if count > _MOST:
                    raise OSError(errno.EFBIG, f"more than {_MOST} files", str(source))
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                elif not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", str(source / path))
                elif not path.endswith(".lock"):
                    yield _Entry(path, status)


def _is_left_out(name: str) -> bool:
    """Return whether an entry of a git directory is ours in the replica, or is not copied as a plain file."""
    return name in _NOT_COPIED or _OURS.fullmatch(name) is not None


def _copy_objects(source: Path, target: Path) -> None:
    """Copy the objects that the replica lacks; an object never changes, so its name is enough."""
    for directory in ("pack", *sorted(_fan_out(source))):
        try:
            names = sorted((path.name for path in (source / directory).iterdir()), reverse=True)
        except FileNotFoundError:
            continue
        (target / directory).mkdir(exist_ok=True)
        for name in names:  # .pack before .idx: git reads the second first
            if _OBJECT.fullmatch(f"{directory}/{name}") and not (target / directory / name).exists():
                _copy(source / directory / name, target / directory / name)


def _fan_out(source: Path) -> list[str]:
    if source.is_symlink():
        raise OSError(errno.ELOOP, "a symlink", str(source))
    if not source.exists():  # we were killed while we made it
        return []
    found = [name for name in _names(source) if re.fullmatch("[0-9a-f]{2}", name)]
    if links := [name for name in (*found, "pack") if (source / name).is_symlink()]:
        raise OSError(errno.ELOOP, "a symlink", str(source / links[0]))
    return found


def _copy(source: Path, target: Path) -> None:
    """Copy one plain file in one step, with its times."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(source))
        temporary = target.with_name(f"ralph-wrap-{os.urandom(8).hex()}")
        try:
            with temporary.open("xb") as writing:
                shutil.copyfileobj(reading, writing)
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _copy_files(source: Path, registration: Path, entries: dict[str, os.stat_result]) -> None:
    """Make the files of a registration those of the clone; ours stay."""
    for directory, _, names in reversed([*files.walk(registration)]):
        for name in names:
            path = Path(directory, name)
            relative = path.relative_to(registration)
            if not _is_left_out(relative.parts[0]) and relative.as_posix() not in entries:
                path.unlink()
        top = Path(directory).relative_to(registration).parts[:1]
        if top and not _is_left_out(top[0]) and not _names(Path(directory)):
            Path(directory).rmdir()
    for name, status in entries.items():
        if status.st_size > _LARGEST:
            raise OSError(errno.EFBIG, "too large", str(source / name))
        target = registration / name
        if not _is_copied(target, status):
            if not target.parent.is_dir():
                if os.path.lexists(target.parent):
                    target.parent.unlink()
                target.parent.mkdir(parents=True)
            _copy(source / name, target)


def _is_copied(target: Path, status: os.stat_result) -> bool:
    try:
        copy = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    # A file that git has just written may change again within the same tick of the clock.
    settled = status.st_ctime_ns < copy.st_ctime_ns - 100_000_000
    return settled and (copy.st_size, copy.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def _copy_refs(tree: LinkedWorktree, git: Git, entries: dict[str, os.stat_result]) -> None:
    """Move the refs of the replica to where those of the clone are.

    Only these are copied: the session's branch, the branch at HEAD, and the branches of the project's
    remotes, which have these commits. A save finds every other commit in the registration.
    """
    found = _refs(tree.registration, entries)
    head = decode(files.read(tree.registration / "HEAD", 4096)).strip().removeprefix("ref: ")
    wanted = {
        ref: oid
        for ref, oid in found.items()
        if ref in {f"refs/heads/{tree.branch}", head} or ref.startswith("refs/remotes/")
    }
    before = list_refs(git, *_COPIED_REFS)
    changed = {ref: oid for ref, oid in wanted.items() if before.get(ref) != oid}
    if any(ref.startswith("refs/remotes/") for ref in changed):
        # The agent can push to a repository of its own, which goes with the clone.
        known = tuple(f"refs/remotes/{name}/" for name in list_remotes(git))
        changed = {
            ref: oid
            for ref, oid in changed.items()
            if not ref.startswith("refs/remotes/") or ref.startswith(known)
        }
    if changed:
        present = {*existing_commits(git, {*changed.values()})}
        missing = [ref for ref in changed if changed[ref] not in present and ref.startswith("refs/heads/")]
        if missing:
            raise OSError(f"{missing[0]} names a commit that is not in the clone")
        _update(git, {ref: oid for ref, oid in changed.items() if oid in present})


def _update(git: Git, refs: dict[str, str]) -> None:
    rows = [f"update {ref}\0{oid}\0\0" for ref, oid in refs.items()]
    run_git(git, "update-ref", "--no-deref", "-z", "--stdin", stdin=os.fsencode("".join(rows)))


def _refs(
    registration: Path, entries: dict[str, os.stat_result], prefixes: tuple[str, ...] = _COPIED_REFS
) -> dict[str, str]:
    """Return the refs in the files of a git directory; a symbolic ref names no commit of its own."""
    found = {}
    if "packed-refs" in entries:
        for line in decode_lines(files.read(registration / "packed-refs", _LARGEST)):
            oid, _, ref = line.partition(" ")
            if is_oid(oid) and ref.startswith(prefixes):
                found[ref] = oid
    for path in entries:
        if path.startswith(prefixes):
            oid = decode(files.read(registration / path, 4096)).strip()
            if is_oid(oid):
                found[path] = oid
    return found
