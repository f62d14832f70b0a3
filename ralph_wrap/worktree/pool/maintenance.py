"""Maintain the pool: make warm worktrees, move kept directories into them, and remove them.

The caller holds the lock on the pool, so no other process does so at the same time. Sessions may take warm
worktrees meanwhile, under the repository's lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.git import (
    Git,
    Repository,
    create_ref,
    decode,
    delete_ref,
    finish_git,
    list_refs,
    pointer,
    run_git,
    start_git,
)
from ralph_wrap.git.index import submodules_in
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.model import WARM, LinkedWorktree
from ralph_wrap.worktree.ownership import MARK, WorktreeOwner, is_locked_for, others_naming
from ralph_wrap.worktree.recover import take_apart
from ralph_wrap.worktree.register import add, pointer_to
from ralph_wrap.worktree.remove import LEAVING, is_half_dropped
from ralph_wrap.worktree.remove import remove as remove_worktree
from ralph_wrap.worktree.save.result import Losses
from ralph_wrap.worktree.trash import (
    LEAVING_SUFFIX,
    TOKEN,
    discard,
    discard_worktree,
    has_token,
    is_name,
    write_token,
)
from ralph_wrap.worktree.warm import READY, REASON, WarmWorktree, in_pool, is_warm, ready

_KEPT = Path("kept")  # in the pool: directories from worktrees of sessions, by session
_BEGUN = "ralph-wrap-begun"  # in the registration of an unfinished one: an index of its commit
_AS_THEY_ARE = (*("-c", "core.logAllRefUpdates=false"), *("-c", "core.ignoreStat=false"))
_AT_ONCE = 64  # files that a checkout may write at once, one for each worker
_REFS = "refs/ralph/pool/"
_HOUR = 3600.0  # seconds; at low priority a large checkout may wait for other processes


def make(git: Git, repository: Repository, pool: Path, commit: str) -> WarmWorktree:
    """Register a new warm worktree without a checkout.

    Raises:
        GitError: git failed.
        OSError: the pool or the repository cannot be written.

    """
    path = pool / WARM.new()
    with repository_lock(repository.common_dir):
        path.mkdir()
        try:
            warm = WarmWorktree(path, add(git, repository, path, WorktreeOwner(REASON), commit), None)
            # Before the checkout: on a full disk git could write no index, so give_up could not compare the
            # files, and the disk would stay full.
            run_git(_begun(warm, warm.git(git, repository)), "read-tree", commit)
        except (GitError, OSError):
            with contextlib.suppress(OSError):
                (repository.common_dir / "worktrees" / path.name / _BEGUN).unlink(missing_ok=True)
                take_apart(repository.common_dir / "worktrees" / path.name, path, REASON, None)
            raise
    return warm


def _begun(warm: WarmWorktree, git: Git) -> Git:
    """Return git with the separate index of the commit to check out."""
    return git._replace(index_file=warm.registration / _BEGUN)


def check_out(warm: WarmWorktree, git: Git, repository: Repository, commit: str) -> WarmWorktree:
    """Check out a new worktree at low priority, and mark it ready.

    Raises:
        GitError: git failed, or did not end in time.
        OSError: a file cannot be written.

    """
    worktree_git = warm.git(git, repository)
    with start_git(
        worktree_git, "reset", "--hard", "--no-recurse-submodules", commit, config=_AS_THEY_ARE
    ) as running:
        running.give_way()
        finish_git(running, "reset --hard", patience=_HOUR)
    # A session's reflog must start with the session. And any later line in this one shows a git command of
    # another process.
    (warm.registration / _BEGUN).unlink(missing_ok=True)
    (warm.registration / "logs" / "HEAD").unlink(missing_ok=True)
    (warm.registration / "ORIG_HEAD").unlink(missing_ok=True)
    files.sync_file_system(warm.path)  # otherwise a power failure may leave empty files that match the index
    files.replace(warm.registration / READY, ready(warm.registration, commit, worktree_git))
    return warm._replace(commit=commit)


def give_up(unfinished: WarmWorktree, git: Git, repository: Repository, trash: Path, name: str) -> None:
    """Remove a worktree with an interrupted checkout, if no process has worked in it.

    Arguments:
        unfinished: a worktree that was never ready.
        trash: a directory on the worktree's file system.
        name: the name of its directory in the trash, in the form of a session id.

    Raises:
        RefusedError: it holds other files than a part of its commit.
        GitError: git failed.
        OSError: it cannot be read or removed.

    """
    worktree_git = unfinished.git(git, repository)
    with repository_lock(repository.common_dir) as lock:
        if reason := _work_in(unfinished, worktree_git):
            raise RefusedError(reason)
        if not is_locked_for(unfinished.registration, REASON):
            raise RefusedError("its lock is not ours any more")
        if others := others_naming(unfinished.registration, unfinished.path):
            raise RefusedError(f"{others[0].name} is registered in its place too")
        leaving = trash / f"{name}{LEAVING_SUFFIX}"
        unfinished.path.rename(leaving)
        run_git(git._replace(lock=lock), "worktree", "remove", "--force", "--force", unfinished.path)
    discard_worktree(leaving, trash / name, unfinished.registration, unfinished.path)


def _work_in(unfinished: WarmWorktree, git: Git) -> str | None:
    """Return a description of a change that the checkout of the commit did not make, ``None`` without one."""
    registration = unfinished.registration
    log = registration / "logs" / "HEAD"
    commit = decode(files.read(registration / "HEAD")).strip()
    moves = [line.split()[:2] for line in files.read(log).splitlines()] if log.is_file() else []
    created = [b"0" * len(commit), commit.encode()]  # the only entry of a `git worktree add`
    if not is_oid(commit) or any(move != created for move in moves):
        return "a process has worked in it"
    scratch = _begun(unfinished, git)
    if not (
        registration / _BEGUN
    ).is_file():  # its process was killed before it made this index, or after it deleted it
        run_git(scratch, "read-tree", commit)
    with start_status(scratch) as running:
        status = parse_status(finish_git(running, "status").stdout)
    if status.untracked or status.ignored:
        return f"there are other files in it: {next(iter((*status.untracked, *status.ignored)))}"
    for path, *_ in submodules_in(scratch):
        if (unfinished.path / path).is_dir() and any((unfinished.path / path).iterdir()):
            return f"there are other files in it: {path}"
    written = [path for path in status.unstaged if os.path.lexists(unfinished.path / path)]
    for path in written:
        if len(written) > _AT_ONCE or not _is_begun(unfinished.path / path, git, f"{commit}:{path}"):
            return f"a file in it was changed: {path}"
    return None


def _is_begun(path: Path, git: Git, blob: str) -> bool:
    """Return whether a file has the beginning of a blob, as a killed git leaves it."""
    try:
        content = files.read(path)
    except OSError:
        return False
    return run_git(git, "cat-file", "blob", blob).stdout.startswith(content)


def keep(leaving: Path, pool: Path, session: str, names: Iterable[str], ignored: Iterable[str]) -> None:
    """Move ignored directories out of a session's worktree, for later warm worktrees.

    Arguments:
        leaving: the worktree's directory; its registration is gone.
        session: the id of the session.
        names: directories below the top level.
        ignored: ignored paths of the worktree; a whole directory ends with a slash.

    Raises:
        OSError: a directory cannot be moved.

    """
    if any(directory.is_symlink() for directory in (pool, pool / _KEPT, pool / _KEPT / session)):
        return
    for name in names:
        source = leaving / name
        if f"{name}/" in ignored and source.is_dir() and source.resolve() == leaving.resolve() / name:
            directory = pool / _KEPT / session
            directory.mkdir(parents=True, exist_ok=True)
            if not any(directory.iterdir()):
                write_token(directory)
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)


def kept(pool: Path) -> list[Path]:
    """Return the directories with kept directories, one for each session, newest first."""
    if (pool / _KEPT).is_symlink():
        return []
    found = [path for path in (pool / _KEPT).glob("*") if is_name(path.name)]
    return sorted((path for path in found if has_token(path)), reverse=True)


def discard_kept(source: Path, aside: Path) -> None:
    """Delete the kept directories of a session.

    Arguments:
        source: one of :func:`kept`.
        aside: its path in the trash.

    """
    discard(source, aside, lambda read: read(TOKEN) == source.name)


def give(warm: WarmWorktree, git: Git, repository: Repository, source: Path, names: Iterable[str]) -> None:
    """Move the kept directories of a session into a warm worktree that lacks them.

    The caller holds the repository's lock, so that no session takes the worktree meanwhile.

    Arguments:
        warm: a worktree that is ready.
        source: one of :func:`kept`.
        names: directories below the top level.

    Raises:
        GitError: git failed.
        OSError: a directory cannot be moved.

    """
    worktree_git = warm.git(git, repository)
    for name in names:
        target = warm.path / name
        if not (source / name).is_dir() or os.path.lexists(target):
            continue
        if (source / name).resolve() != source.resolve() / name:
            continue
        if not target.parent.is_dir() or target.parent.resolve() != (warm.path.resolve() / name).parent:
            continue
        if run_git(worktree_git, "check-ignore", "--quiet", f"{name}/", accept=(0, 1)).status == 0:
            (source / name).rename(target)


def remove(
    warm: WarmWorktree, git: Git, repository: Repository, trash: Path, name: str, keep: Collection[str]
) -> None:
    """Remove a warm worktree in which no process has worked.

    Arguments:
        warm: a worktree that is ready.
        trash: a directory on the worktree's file system.
        name: the name of its directory in the trash, in the form of a session id.
        keep: ignored directories that may be in it.

    Raises:
        RefusedError: it holds work, or a session has just taken it.
        GitError: git failed.
        OSError: it cannot be read or removed.

    """
    tree = LinkedWorktree(
        path=warm.path,
        registration=warm.registration,
        common_dir=repository.common_dir,
        branch="",
        base=str(warm.commit),
        branch_created=False,
        config=warm.git(git, repository).config,
        owner=WorktreeOwner(REASON),
    )

    def check(found: Losses) -> None:
        if not found.none or not {*found.ignored} <= {f"{path}/" for path in keep}:
            raise RefusedError("; ".join(found.lines()))

    # Its commit may be on no branch any more, but the commit was not made here, so this ref stands in.
    ref = f"{_REFS}{warm.path.name}"
    create_ref(git, ref, str(warm.commit), REASON)
    try:
        remove_worktree(tree, git, trash, name, check=check)
    finally:
        delete_ref(git, ref, str(warm.commit))


def drop_refs(git: Git) -> None:
    """Delete the refs of killed removals.

    Raises:
        GitError: a ref cannot be deleted.

    """
    for ref, commit in list_refs(git, _REFS).items():
        delete_ref(git, ref, commit)


def tidy(common_dir: Path, pool: Path, trash: Path) -> list[Path]:
    """Undo steps that were killed half-way, and return directories that ralph-wrap did not make.

    The caller holds the repository's lock and the pool's lock.

    Raises:
        OSError: a file cannot be read or moved.

    """
    _bring_back(common_dir, pool, trash)
    for warm in in_pool(common_dir, pool):
        (warm.registration / LEAVING).unlink(missing_ok=True)
        for scratch in warm.registration.glob("ralph-wrap-????????"):
            shutil.rmtree(scratch)
        for name in (pointer.BACK, "locked", READY, LEAVING, MARK):
            for temporary in files.temporaries(warm.registration / name):
                temporary.unlink()
        content = pointer.gitdir_content(warm.path)
        if files.read(warm.registration / pointer.BACK) != content:  # made under the path of another mount
            files.replace(warm.registration / pointer.BACK, content)
    complete = {warm.path for warm in in_pool(common_dir, pool)}
    registered = {
        pool / path.name for path in common_dir.glob(f"worktrees/{WARM.pattern}") if _is_of(path, pool)
    }
    directories = {path for path in pool.glob(WARM.pattern) if is_warm(path)}
    for path in sorted((registered | directories) - complete):
        take_apart(common_dir / "worktrees" / path.name, path, REASON, None)
    # A sweep completes the sessions that were killed while they took a worktree.
    registrations = common_dir / "worktrees"
    half_taken = {
        path for path in directories - complete if (registrations / path.name / pointer.BACK).is_file()
    }
    kept_by_others = {*(pool / _KEPT).glob("*/*")} - {
        path for session in kept(pool) for path in session.iterdir()
    }
    return sorted(
        path for path in (directories - complete - half_taken) | kept_by_others if os.path.lexists(path)
    )


def _is_of(registration: Path, pool: Path) -> bool:
    """Return whether a registration belongs to a pool; it may be half made after a kill."""
    try:
        content = files.read(registration / pointer.BACK)
    except OSError:
        return is_warm(registration) and (pool / registration.name).is_dir()
    return is_warm(registration) and content == pointer.gitdir_content(pool / registration.name)


def _bring_back(common_dir: Path, pool: Path, trash: Path) -> None:
    """Put back worktrees whose removal was killed; discard those whose registration is incomplete."""
    for leaving in sorted(trash.glob(f"*{LEAVING_SUFFIX}")):
        try:
            content = files.read(leaving / ".git")
        except OSError:
            continue
        name = Path(decode(content).rstrip("\n")).name
        registration, path = common_dir / "worktrees" / name, pool / name
        if not is_warm(registration) or content != pointer_to(registration, path):
            continue
        if leaving.is_symlink() or not is_name(leaving.stem) or os.path.lexists(path):
            continue
        if is_half_dropped(registration, marked=False):
            files.remove_tree(registration)
            discard_worktree(leaving, leaving.with_suffix(""), registration, path)
        else:
            leaving.rename(path)
