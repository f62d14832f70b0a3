"""Find again what a dead session has left of its worktree: whole, half-made or half-removed.

What can be found, by how far its owner had come (``create`` and ``removal`` tell the steps):

- a registration without a way back (``gitdir``), or a directory without a ``.git`` file: killed in the middle
  of ``git worktree add``. Only before any agent ran is that taken apart;
- both, naming each other: a worktree, however much of it is checked out;
- the directory in the trash, still registered: it had been saved, but the last look at it is missing. It goes
  back to its place, and everything is done anew;
- the directory in the trash, not registered any more, or no more than half: the last look was taken. It is
  deleted;
- a warm worktree whose registration names the session's place: killed while it was taken out of the pool;
- a registration that names the same place under another path: made where the project is mounted elsewhere.
  Its owner is dead, so it is given our path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

from ralph_wrap import files, git
from ralph_wrap.worktree.create import LinkedWorktree
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.lookup import directory_of
from ralph_wrap.worktree.mark import marked
from ralph_wrap.worktree.removal import IN_TRASH, LEAVING, discard, is_half_dropped, leaving_places

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Repository
    from ralph_wrap.registry import Record

_TAIL = 4  # parts of a path: .ralph/worktrees/<session>/.git


def adopt(repository: Repository, record: Record, *, path: Path, trash: Path) -> LinkedWorktree | None:
    """Return the worktree of a dead session, ``None`` if there is none (any more).

    Arguments:
        repository: the project's.
        record: of the session; its lock is ours.
        path: where the worktree is.
        trash: where it goes on its way out.

    Raises:
        OSError: something cannot be read or moved; nothing is lost.

    """
    assert record.branch is not None
    assert record.base is not None
    with repository_lock(repository.common_dir):
        registration = _find(repository.common_dir, path)
        if registration is not None and registration.name != path.name:
            registration = _complete(registration, path, trash.parent, record)
        named = registration or repository.common_dir / "worktrees" / path.name
        if _leaving(path, trash / record.session) and is_half_dropped(named) and not named.is_symlink():
            shutil.rmtree(named, ignore_errors=True)
            registration = None
        if registration is None and record.state != "starting":
            with contextlib.suppress(OSError):
                named.rmdir()  # empty: whoever deleted it file by file was killed before the last step
            _require_none(repository.common_dir / "worktrees" / path.name)
        for leaving in _leaving(path, trash / record.session):
            if registration:
                leaving.rename(path)
            else:
                discard(leaving, trash / record.session)
        if registration and record.state == "starting" and _is_hollow(path):
            shutil.rmtree(registration)
            registration = None
        if registration is None:
            if record.state == "starting":
                take_apart(repository.common_dir, path)
            return None
    return LinkedWorktree(
        path=path,
        registration=registration,
        common_dir=repository.common_dir,
        branch=record.branch,
        base=record.base,
        # A branch of any other name may be somebody's own.
        branch_created=record.branch == f"ralph/{record.id}",
        config=git.file_system_config(file_mode=record.file_mode, symlinks=record.symlinks),
    )


def _complete(registration: Path, path: Path, run: Path, record: Record) -> Path:
    """Go on with a warm worktree that a session had begun to take."""
    from ralph_wrap.worktree.warm import complete, is_warm  # noqa: PLC0415 -- for those who have a pool

    if not is_warm(registration):
        return registration
    return complete(
        registration, run / "pool", path, str(record.branch), f"ralph-wrap session {record.session}"
    )


def bring_back(common_dir: Path, worktrees: Path, trash: Path) -> None:
    """Put a worktree that bears a mark back in its place if whoever removed it was killed in the middle.

    Arguments:
        common_dir: of the repository.
        worktrees: where ours are.
        trash: where they go on their way out.

    Raises:
        OSError: it cannot be told, or not be done; nothing is lost.

    """
    if not any((registration / LEAVING).is_file() for registration in marked(common_dir)):
        return
    with repository_lock(common_dir):
        for registration in marked(common_dir):
            try:
                name = git.text(files.read(registration / LEAVING))
            except OSError:
                continue
            path = directory_of(registration, worktrees)
            found = _leaving(path, trash / name) if IN_TRASH.fullmatch(name) else []
            for leaving in found:
                pointer = git.text(files.read(leaving / ".git")).removeprefix("gitdir: ").rstrip("\n")
                if (path / pointer).resolve() == registration:
                    leaving.rename(path)
                    # Not otherwise: whoever wrote it may live, and be about to begin.
                    (registration / LEAVING).unlink()


def _leaving(path: Path, aside: Path) -> list[Path]:
    """Return where a worktree is that is on its way out."""
    if os.path.lexists(path):
        return []
    places = leaving_places(path, aside)
    return [place for place in places if place.is_dir() and not place.is_symlink()][:1]


def _find(common_dir: Path, path: Path) -> Path | None:
    """Return the registration that names a directory, also by the path it has on another mount."""
    tail = os.fsencode("/" + "/".join((path / ".git").parts[-_TAIL:]) + "\n")
    for back in sorted(common_dir.glob("worktrees/*/gitdir")):
        try:
            content = files.read(back)
        except OSError:
            continue
        ours = os.fsencode(path / ".git") + b"\n"
        if content == ours:
            return back.parent
        if content.endswith(tail):
            files.replace(back, ours)
            return back.parent
    return None


def _require_none(registration: Path) -> None:
    """Make sure that there is no registration at all: one that cannot be read must not pass for none."""
    if os.path.lexists(registration):
        raise OSError(errno.EINVAL, "it does not say whose registration it is", str(registration))


def _is_hollow(path: Path) -> bool:
    """Tell whether a directory is not there or holds nothing but a ``.git`` file, written or half-written."""
    if path.is_symlink() or not path.is_dir():
        return not os.path.lexists(path)
    return {*path.iterdir()} <= {path / ".git", *files.temporaries(path / ".git")}


def take_apart(common_dir: Path, path: Path) -> None:
    """Remove what ``git worktree add`` had begun with when it was killed, before it could hold anything.

    Under the repository's lock, so that nobody is at it.

    Arguments:
        common_dir: of the repository.
        path: the worktree's directory.

    Raises:
        OSError: something of it cannot be removed.

    """
    begun = common_dir / "worktrees" / path.name
    if begun.is_dir() and not begun.is_symlink() and not (begun / "index").exists():
        shutil.rmtree(begun)
    if path.is_dir() and _is_hollow(path):
        for entry in path.iterdir():
            entry.unlink()
        path.rmdir()
