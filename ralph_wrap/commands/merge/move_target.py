"""Move a branch with its checkouts, so that a kill at any point loses nothing.

In this order:

1. Write a note (``.ralph/run/landing.json``) with the branch, and the old and the new commit.
2. In each clean checkout, change the **files** to the new commit, with a copy of its index. So git's own
   index is neither locked nor half-written meanwhile.
3. Make this copy the **index**: by a link to ``index.lock``, which exists for an instant only, and a rename.
4. Move the **branch**, if it is still at the old commit.
5. Delete the note.

Why the branch last: until then HEAD is unchanged, and the new files look like uncommitted changes. A user who
commits them by mistake commits the landing. With the branch first, the old files would look like a change
that reverts the landing, and a commit would revert it.

After an error, we put back each earlier step. After a kill between 1 and 5, the next landing reads the note.
It waits for a git of step 2 that may still run. Then it puts the checkout back, file by file. A file with the
new content gets its old content, and so does a half-written file (both contents are in commits). A file with
any other content has a user's changes, and then nothing is touched. If the branch has moved meanwhile, the
process that moved it has decided what is checked out.

An agent can write such a note, too, and have changes of the user taken for those of a landing. So the note
has a signature of the user (``state.session_start``). Without it, nothing is put back. The note gets another
name, because another user may need it, or the same user on another mount.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.branches import HEADS
from ralph_wrap.commands.merge.target import LandingTarget, checkouts_of
from ralph_wrap.errors import ConflictError, GitError, RalphError
from ralph_wrap.git import Git, Repository, existing_commits, list_refs, move_ref
from ralph_wrap.git import merge as merging
from ralph_wrap.git.oid import is_oid
from ralph_wrap.state import landings
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.session_start import is_signed, signature
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.log import get_logger
from ralph_wrap.worktree.model import TEMPORARY
from ralph_wrap.worktree.ownership import is_locked_for
from ralph_wrap.worktree.temporary import REASON, TemporaryWorktree
from ralph_wrap.worktree.user_checkout import UserCheckout, names, restore_files

log = get_logger()

_KIND = "landing"  # of what is signed here
_NOTE = landings.IN_PROGRESS
_FORMAT = DocumentFormat(version=1)
_PATIENCE = 60.0  # seconds
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class TargetMove(NamedTuple):
    """A move: full name of the branch, old and new object id."""

    ref: str
    old: str
    new: str


def move(
    project: Project,
    home: Registry,
    trial: TemporaryWorktree,
    checkouts: Sequence[UserCheckout],
    step: TargetMove,
    reason: str,
) -> None:
    """Move a branch and its checkouts.

    Arguments:
        home: the project's registry; we hold the landing's lock in it.
        trial: the temporary worktree, whose registration holds the prepared indexes.
        checkouts: the clean checkouts of the branch.
        reason: the message for the reflog.

    Raises:
        ConflictError: another process has changed the branch or a checkout at this moment.
        GitError: git cannot write. Everything is as before, or the message names what is not.
        OSError: a file cannot be written. Everything is as before, or the message names what is not.

    """
    if not checkouts:
        move_ref(project.git, step.ref, step.old, step.new, reason)
        return
    note = home.directory / _NOTE
    _write_note(note, step, trial, project)
    begun: list[tuple[UserCheckout, Path]] = []
    try:
        for number, checkout in enumerate(checkouts):
            scratch = _scratch(trial.registration, number)
            shutil.rmtree(scratch, ignore_errors=True)  # of an earlier landing
            scratch.mkdir()
            begun.append((checkout, scratch))
            _take(checkout, scratch, step)
        move_ref(checkouts[0].git, step.ref, step.old, step.new, reason)
    except (RalphError, OSError) as error:
        current = list_refs(project.git, step.ref).get(step.ref)
        if current == step.new:  # git was killed after it had moved the branch
            _forget(note)
            return
        problems = [
            problem
            for checkout, scratch in begun
            for problem in _put_back(checkout, scratch, step, current, partly=True)
        ]
        note.unlink()
        if problems:
            raise RalphError(f"{error}; and {'; '.join(problems)}", "git status, there") from error
        raise
    _forget(note)


def _forget(note: Path) -> None:
    """Delete the note of a completed landing; if it stays, the next landing finds nothing to undo."""
    with contextlib.suppress(OSError):
        note.unlink()


def _scratch(registration: Path, number: int) -> Path:
    return registration / f"checkout-{number}"


def _write_note(note: Path, step: TargetMove, trial: TemporaryWorktree, project: Project) -> None:
    name = trial.registration.name
    signed = signature(_KIND, (*step, name), note.parent, project)
    files.replace(note, _FORMAT.encode({**step._asdict(), "scratch": name, "signature": signed}))


def _take(checkout: UserCheckout, scratch: Path, step: TargetMove) -> None:
    """Change files and index of a clean checkout to another commit."""
    index, prepared = checkout.git_dir / "index", scratch / "index"
    before = files.state(index)
    shutil.copy2(index, prepared)  # with its time stamp, by which git finds files that may have changed since
    with files.locked_directory(scratch, _PATIENCE) as descriptor:
        merging.move_files(checkout.git._replace(index_file=prepared, lock=descriptor), step.old, step.new)
    with _locked(index, prepared) as lock:
        if files.state(index) != before and merging.is_staged(checkout.git, step.old):
            raise ConflictError(f"a change was staged in {checkout.path} at this moment", "commit it")
        lock.rename(index)


@contextlib.contextmanager
def _locked(index: Path, prepared: Path) -> Iterator[Path]:
    """Make the prepared index the lock file of an index, as git does; the caller may rename it."""
    lock = index.with_name("index.lock")
    try:
        try:
            lock.hardlink_to(prepared)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with lock.open("xb") as file:
                file.write(prepared.read_bytes())
    except FileExistsError:
        raise ConflictError(
            f"git works in {index.parent} at this moment: {lock} exists",
            lock_holder.file_hint(lock),
        ) from None
    try:
        yield lock
    except BaseException:  # only now it is surely ours: after the rename another git may have made the next
        lock.unlink(missing_ok=True)
        raise


def _put_back(
    checkout: UserCheckout, scratch: Path, step: TargetMove, current: str | None, *, partly: bool
) -> list[str]:
    """Put a checkout back to its old state; return a line for each part that another process has changed."""
    _unlock(checkout, scratch / "index")
    back = current or step.old  # a commit of a user meanwhile stays, even if it has some of our changes
    problems = []
    if foreign := restore_files(checkout, scratch / "look", back, step.new, partly=partly):
        problems.append(f"{checkout.path} was changed meanwhile, and these files stay: {names(foreign)}")
    if (partly or not problems) and merging.is_staged(checkout.git, back):
        try:
            merging.move_index(checkout.git, step.new, back)
        except GitError as error:
            problems.append(f"the index of {checkout.path} stays as it is: {error.message}")
    return problems


def _unlock(checkout: UserCheckout, prepared: Path) -> None:
    """Remove a lock file of ours that was never renamed."""
    lock = checkout.git_dir / "index.lock"
    with contextlib.suppress(FileNotFoundError):
        content = files.read(lock, 1 << 30)
        if lock.samefile(prepared) or (content and prepared.read_bytes().startswith(content)):
            lock.unlink()


def has_note(home: Registry) -> bool:
    """Return whether a landing is running, or was killed."""
    return (home.directory / _NOTE).exists()


def recover(project: Project, home: Registry) -> None:
    """Undo a killed landing of this user; the caller holds the landing's lock.

    Raises:
        RalphError: it cannot be undone.
        OSError: it cannot be undone.

    """
    note, git = home.directory / _NOTE, project.git
    try:
        step, name, signed = _FORMAT.read(note, lambda loaded: _checked(loaded, git))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        log.warning("landing.unknown", f"{note} cannot be read, and is now {_set_aside(note)}")
        return
    target = LandingTarget(step.ref.removeprefix(HEADS), step.ref)
    if not is_signed(_KIND, (*step, name), note.parent, project, signed):
        log.warning(
            "landing.not_ours",
            f"{note} says that a merge into {target.name} was killed, but not one of yours on this machine;"
            f" nothing is put back, and the note is now {_set_aside(note)}",
            "to see what is changed: git status",
        )
        return
    if list_refs(git, step.ref).get(step.ref) == step.old:
        try:
            problems = _undo(git, repository_of(project), home, name, target, step)
        except ConflictError as error:
            problems = [error.message]
        for problem in problems:
            log.warning(
                "landing.left",
                f"a merge into {target.name} was killed: {problem}",
                "in this checkout: git status",
            )
        if not problems:
            log.warning(
                "landing.undone", f"a merge into {target.name} was killed before it landed, and is undone"
            )
    note.unlink()


def _set_aside(note: Path) -> str:
    """Give a note another name, and return that name."""
    names = (f"{note.stem}-{number}{note.suffix}" for number in itertools.count(1))
    aside = next(name for name in names if not os.path.lexists(note.with_name(name)))
    note.rename(note.with_name(aside))
    return aside


def _undo(
    git: Git, repository: Repository, home: Registry, name: str, target: LandingTarget, step: TargetMove
) -> list[str]:
    registration = repository.common_dir / "worktrees" / name
    problems = []
    # A new directory, because an existing one of this name may belong to a user.
    with tempfile.TemporaryDirectory(prefix="undo-", dir=home.directory, ignore_cleanup_errors=True) as spare:
        is_own = is_locked_for(registration, REASON)
        for number, checkout in enumerate(checkouts_of(git, repository, target)):
            scratch = _scratch(registration if is_own else Path(spare), number)
            scratch.mkdir(exist_ok=True)
            with files.locked_directory(scratch, _PATIENCE):  # waits for a git of the killed landing
                problems += _put_back(checkout, scratch, step, step.old, partly=False)
    return problems


def _checked(loaded: Mapping[str, Any], git: Git) -> tuple[TargetMove, str, object]:
    step, name = convert_fields(loaded, TargetMove), loaded["scratch"]
    if not step.ref.startswith(HEADS) or not TEMPORARY.fits(name):
        raise ValueError("a name of the wrong form")
    if not all(is_oid(oid) for oid in (step.old, step.new)):
        raise ValueError("a commit of the wrong form")
    if {*existing_commits(git, (step.old, step.new))} != {step.old, step.new}:
        raise ValueError("a commit that does not exist")
    return step, name, loaded.get("signature")
