"""Keep warm worktrees in stock: make them, hand on directories from one to the next, remove them.

Nobody else does so at the same time: whoever calls this holds the lock on the pool. Sessions take warm
worktrees meanwhile, under the repository's lock.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import files, git
from ralph_wrap.errors import RefusedError
from ralph_wrap.worktree.add import add
from ralph_wrap.worktree.adopt import take_apart
from ralph_wrap.worktree.create import LinkedWorktree
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.remove import LEAVING, LEAVING_SUFFIX, discard, is_half_dropped
from ralph_wrap.worktree.remove import remove as remove_worktree
from ralph_wrap.worktree.warm import READY, Warm, in_pool, is_warm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.worktree.losses import Losses

_KEPT = Path("kept")  # in the pool: directories of sessions' worktrees, by session
_REASON = "ralph-wrap pool"
_HOUR = 3600.0  # seconds; at low priority a large checkout may have to wait for others


def make(where: Git, repository: Repository, pool: Path, commit: str) -> Warm:
    """Register a new warm worktree; nothing is checked out yet.

    Raises:
        GitError: git refuses.
        OSError: the pool or the repository cannot be written.

    """
    path = pool / f"warm-{os.urandom(4).hex()}"
    with repository_lock(repository.common_dir):
        path.mkdir()
        return Warm(path, add(where, path, _REASON, "--detach", path, commit), None)


def check_out(warm: Warm, where: Git, repository: Repository, commit: str) -> Warm:
    """Check out an unfinished worktree at low priority, and call it ready.

    Raises:
        GitError: git fails, or does not end.
        OSError: it cannot be written.

    """
    here = warm.git(where, repository)
    with git.start(here, "reset", "--hard", "--no-recurse-submodules", commit) as running:
        running.give_way()
        git.finish(running, "reset --hard", patience=_HOUR)
    # A session's reflog begins with the session; and any line that comes here later tells that somebody
    # works in it.
    (warm.registration / "logs" / "HEAD").unlink(missing_ok=True)
    (warm.registration / "ORIG_HEAD").unlink(missing_ok=True)
    files.sync_file_system(warm.path)  # after a power failure the index would vouch for empty files
    files.replace(warm.registration / READY, f"{commit}\n".encode())
    return warm._replace(commit=commit)


def keep(leaving: Path, pool: Path, session: str, names: Iterable[str], ignored: Iterable[str]) -> None:
    """Move directories that git ignores out of a session's worktree, for warm ones to have.

    Arguments:
        leaving: the worktree's directory; its registration is gone.
        pool: of the project.
        session: whose it was.
        names: directories below the top level.
        ignored: what git ignores there; a whole directory ends with a slash.

    Raises:
        OSError: one cannot be moved.

    """
    for name in names:
        directory = leaving / name
        if f"{name}/" in ignored and directory.is_dir() and directory.resolve() == leaving.resolve() / name:
            target = pool / _KEPT / session / name
            target.parent.mkdir(parents=True, exist_ok=True)
            directory.rename(target)


def kept(pool: Path) -> list[Path]:
    """Return the directories that hold what was kept, one of each session, the newest first."""
    if (pool / _KEPT).is_symlink():
        return []
    return sorted((path for path in (pool / _KEPT).glob("*-????") if not path.is_symlink()), reverse=True)


def give(warm: Warm, where: Git, repository: Repository, source: Path, names: Iterable[str]) -> None:
    """Move what was kept of a session into a warm worktree that has nothing in those places.

    Under the repository's lock, so that no session takes it meanwhile.

    Arguments:
        warm: one that is ready.
        where: git at the project root.
        repository: the project's.
        source: one of :func:`kept`.
        names: directories below the top level.

    Raises:
        GitError: git cannot tell what it ignores.
        OSError: something cannot be moved.

    """
    here = warm.git(where, repository)
    for name in names:
        place = warm.path / name
        if not (source / name).is_dir() or os.path.lexists(place):
            continue
        if not place.parent.is_dir() or place.parent.resolve() != (warm.path.resolve() / name).parent:
            continue
        if git.run(here, "check-ignore", "--quiet", f"{name}/", accept=(0, 1)).status == 0:
            (source / name).rename(place)


def remove(warm: Warm, where: Git, repository: Repository, trash: Path, name: str) -> None:
    """Remove a warm worktree in which nobody has worked.

    Arguments:
        warm: one that is ready.
        where: git at the project root.
        repository: the project's.
        trash: directory on the worktree's file system.
        name: of the directory in the trash, formed like the id of a session.

    Raises:
        RefusedError: it holds something, or a session has just taken it.
        GitError: it cannot be told.
        OSError: the same.

    """
    tree = LinkedWorktree(
        path=warm.path,
        registration=warm.registration,
        common_dir=repository.common_dir,
        branch="",
        base=str(warm.commit),
        branch_created=False,
        config=warm.git(where, repository).config,
    )

    def check(found: Losses) -> None:
        # Its own commit was that of the main checkout; nobody has made it here.
        if found.paths or found.problems or found.operation or {*found.commits} - {warm.commit}:
            raise RefusedError("; ".join(found.lines()))

    remove_worktree(tree, where, trash, name, check=check)


def tidy(common_dir: Path, pool: Path, trash: Path) -> list[Path]:
    """Undo what was killed half-way, and return directories of which git does not know.

    The repository's lock is held, and nobody else fills or empties the pool.

    Arguments:
        common_dir: of the repository.
        pool: of the project.
        trash: where worktrees go on their way out.

    Raises:
        OSError: something cannot be read or moved.

    """
    _bring_back(common_dir, pool, trash)
    for warm in in_pool(common_dir, pool):
        (warm.registration / LEAVING).unlink(missing_ok=True)
        for scratch in warm.registration.glob("ralph-wrap-????????"):
            shutil.rmtree(scratch)
        for name in ("gitdir", "locked", READY, LEAVING):
            for temporary in files.temporaries(warm.registration / name):
                temporary.unlink()
        back = os.fsencode(warm.path / ".git") + b"\n"
        if files.read(warm.registration / "gitdir") != back:  # made where the project is mounted elsewhere
            files.replace(warm.registration / "gitdir", back)
    whole = {warm.path for warm in in_pool(common_dir, pool)}
    named = {pool / path.name for path in common_dir.glob("worktrees/warm-*") if _is_of(path, pool)}
    there = {path for path in pool.glob("warm-*") if is_warm(path)}
    for path in sorted((named | there) - whole):
        take_apart(common_dir, path)
    return sorted(path for path in there - whole if os.path.lexists(path))


def _is_of(registration: Path, pool: Path) -> bool:
    """Tell whether a registration is of a pool, or of one that was killed while it was made."""
    try:
        back = files.read(registration / "gitdir")
    except OSError:
        return is_warm(registration) and (pool / registration.name).is_dir()
    return is_warm(registration) and back == os.fsencode(pool / registration.name / ".git") + b"\n"


def _bring_back(common_dir: Path, pool: Path, trash: Path) -> None:
    """Put back what was killed on its way out, or give it up if its registration is not whole any more."""
    for leaving in sorted(trash.glob(f"*{LEAVING_SUFFIX}")):
        try:
            pointer = Path(git.text(files.read(leaving / ".git")).removeprefix("gitdir: ").rstrip("\n"))
        except OSError:
            continue
        registration, path = common_dir / "worktrees" / pointer.name, pool / pointer.name
        if not is_warm(registration) or leaving.is_symlink() or os.path.lexists(path):
            continue
        if is_half_dropped(registration):
            shutil.rmtree(registration, ignore_errors=True)
            discard(leaving, leaving.with_suffix(""))
        else:
            leaving.rename(path)
