"""Move a branch, and its checkouts with it, so that nothing is lost wherever it is cut short.

In this order:

1. a note is written (``.ralph/run/landing.json``): which branch, from where, to where;
2. in each checkout, clean as it is, the **files** go to the new commit, by a copy of its index, so that git's
   own index is neither locked nor half-written meanwhile;
3. that copy becomes its **index**: by a link to ``index.lock``, there for an instant only, and a rename;
4. the **branch** moves, if it still is where it was;
5. the note goes.

Why the branch last: until then HEAD is what it was, and what is on the disk looks like changes that are not
committed yet; whoever commits them by mistake commits what has landed. The other way round it would look as
if somebody wanted to take back what has just landed, and a commit would.

Whatever fails puts back what was moved before. Killed between 1 and 5, the next one reads the note, waits for
a git that was left behind at 2, and puts the checkout back as well, file by file: what is as it was to become
goes back to what it was, and so do files that are half-written (both are in commits). If one is neither, it
is somebody's, and nothing is touched. If the branch has moved in the meantime, whoever moved it has decided
what is checked out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap import git
from ralph_wrap.branches import HEADS
from ralph_wrap.commands.merge.target import Target, checkouts_of
from ralph_wrap.errors import ConflictError, GitError, RalphError
from ralph_wrap.git import merge as merging
from ralph_wrap.state import landings
from ralph_wrap.system import files
from ralph_wrap.worktree.ownership import is_locked_for
from ralph_wrap.worktree.temporary import REASON
from ralph_wrap.worktree.user_checkout import names, put_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.registry import Registry
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.temporary import Trial
    from ralph_wrap.worktree.user_checkout import Checkout

VERSION = 1
"""Of the note."""

_NOTE = landings.IN_PROGRESS
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCRATCH = re.compile(r"land-[0-9a-f]{8}")
_PATIENCE = 60.0  # seconds
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class Step(NamedTuple):
    """What moves: full name of the branch, object ids before and afterwards."""

    ref: str
    old: str
    new: str


def move(
    where: Git, home: Registry, trial: Trial, checkouts: Sequence[Checkout], step: Step, reason: str
) -> None:
    """Move a branch and its checkouts.

    Arguments:
        home: of the project, in which it is our turn.
        trial: in whose registration indexes can be prepared.
        checkouts: of the branch; clean.
        reason: for the reflog.

    Raises:
        ConflictError: somebody else has changed branch or checkout in this very moment.
        GitError: something cannot be written.
        OSError: the same. Everything is as it was before, or the message says what is not.

    """
    with contextlib.suppress(OSError):  # before anybody can see it; one that does not come about harms nobody
        landings.note(home.directory, *step)
    if not checkouts:
        git.move_ref(where, step.ref, step.old, step.new, reason)
        return
    note = home.directory / _NOTE
    _write_note(note, step, trial)
    begun: list[tuple[Checkout, Path]] = []
    try:
        for number, checkout in enumerate(checkouts):
            scratch = _scratch(trial.registration, number)
            shutil.rmtree(scratch, ignore_errors=True)  # of one that has landed before
            scratch.mkdir()
            begun.append((checkout, scratch))
            _take(checkout, scratch, step)
        git.move_ref(checkouts[0].here, step.ref, step.old, step.new, reason)
    except (RalphError, OSError) as error:
        now = git.refs(where, step.ref).get(step.ref)
        if now == step.new:  # git was killed once it had done it
            _forget(note)
            return
        left = [line for one, scratch in begun for line in _put_back(one, scratch, step, now, partly=True)]
        note.unlink()
        if left:
            raise RalphError(f"{error}; and {'; '.join(left)}", "git status, there") from error
        raise
    _forget(note)


def _forget(note: Path) -> None:
    """Remove the note of what has landed; one that stays tells the next one that there is nothing to undo."""
    with contextlib.suppress(OSError):
        note.unlink()


def _scratch(registration: Path, number: int) -> Path:
    return registration / f"checkout-{number}"


def _write_note(note: Path, step: Step, trial: Trial) -> None:
    document = {"version": VERSION, **step._asdict(), "scratch": trial.registration.name}
    files.replace(note, json.dumps(document).encode() + b"\n")


def _take(checkout: Checkout, scratch: Path, step: Step) -> None:
    """Take files and index of a clean checkout to another commit."""
    index, prepared = checkout.git_dir / "index", scratch / "index"
    before = files.state(index)
    shutil.copy2(index, prepared)  # with its time, by which git tells what may have changed since
    with files.locked_directory(scratch, _PATIENCE) as held:
        merging.move_files(checkout.here._replace(index_file=prepared, lock=held), step.old, step.new)
    with _locked(index, prepared) as lock:
        if files.state(index) != before and merging.is_staged(checkout.here, step.old):
            raise ConflictError(f"something was staged in {checkout.path} in this very moment", "commit it")
        lock.rename(index)


@contextlib.contextmanager
def _locked(index: Path, prepared: Path) -> Iterator[Path]:
    """Have what was prepared be the lock of an index, as git locks it; whoever renames it is done."""
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
            f"git works in {index.parent} at this moment", f"if none does: rm {lock}"
        ) from None
    try:
        yield lock
    except BaseException:  # only then it is still ours: once renamed, the next one is somebody else's
        lock.unlink(missing_ok=True)
        raise


def _put_back(checkout: Checkout, scratch: Path, step: Step, now: str | None, *, partly: bool) -> list[str]:
    """Have a checkout be as it was before, as far as it is not anything else by now; tell what is not."""
    _unlock(checkout, scratch / "index")
    back = now or step.old  # what somebody has committed meanwhile, perhaps some of what was to come, stays
    left = []
    if foreign := put_back(checkout, scratch / "look", back, step.new, partly=partly):
        left.append(f"{checkout.path} was changed, and is left as it is there: {names(foreign)}")
    if (partly or not left) and merging.is_staged(checkout.here, back):
        try:
            merging.move_index(checkout.here, step.new, back)
        except GitError as error:
            left.append(f"the index of {checkout.path} is left as it is: {error.message}")
    return left


def _unlock(checkout: Checkout, prepared: Path) -> None:
    """Remove a lock of ours that was never renamed."""
    lock = checkout.git_dir / "index.lock"
    with contextlib.suppress(FileNotFoundError):
        content = files.read(lock, 1 << 30)
        if lock.samefile(prepared) or (content and prepared.read_bytes().startswith(content)):
            lock.unlink()


def has_note(home: Registry) -> bool:
    """Tell whether somebody is moving something, or was killed at it."""
    return (home.directory / _NOTE).exists()


def recover(where: Git, repository: Repository, home: Registry, told: Log) -> None:
    """Put back what somebody has left half-way who was killed; our turn it is.

    Raises:
        RalphError: it cannot be put back.
        OSError: the same.

    """
    note = home.directory / _NOTE
    try:
        step, name = _read_note(note, where)
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        note.unlink()
        told.warning("landing.unknown", f"{note} could not be read, and is forgotten")
        return
    target = Target(step.ref.removeprefix(HEADS), step.ref)
    if git.refs(where, step.ref).get(step.ref) == step.old:
        try:
            left = _undo(where, repository, home, name, target, step)
        except ConflictError as error:
            left = [error.message]
        for line in left:
            told.warning(
                "landing.left", f"a merge into {target.name} was killed: {line}", "git status, there"
            )
        if not left:
            told.warning(
                "landing.undone", f"a merge into {target.name} was killed, and is undone: it had not landed"
            )
    note.unlink()


def _undo(
    where: Git, repository: Repository, home: Registry, name: str, target: Target, step: Step
) -> list[str]:
    registration = repository.common_dir / "worktrees" / name
    left = []
    # A new directory: what bears this name in its place may be a user's.
    with tempfile.TemporaryDirectory(prefix="undo-", dir=home.directory, ignore_cleanup_errors=True) as spare:
        known = is_locked_for(registration, REASON)
        for number, checkout in enumerate(checkouts_of(where, repository, target)):
            scratch = _scratch(registration if known else Path(spare), number)
            scratch.mkdir(exist_ok=True)
            with files.locked_directory(scratch, _PATIENCE):  # a git that was left behind is at it still
                left += _put_back(checkout, scratch, step, step.old, partly=False)
    return left


def _read_note(note: Path, where: Git) -> tuple[Step, str]:
    loaded: dict[str, Any] = json.loads(files.read(note))
    step = Step(*(str(loaded[name]) for name in Step._fields))
    name = str(loaded["scratch"])
    if loaded["version"] != VERSION or not step.ref.startswith(HEADS):
        raise ValueError(note)
    if not all(_OID.fullmatch(oid) for oid in (step.old, step.new)) or not _SCRATCH.fullmatch(name):
        raise ValueError(note)
    if {*git.existing_commits(where, (step.old, step.new))} != {step.old, step.new}:
        raise ValueError(note)
    return step, name
