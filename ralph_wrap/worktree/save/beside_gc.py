"""Save work beside a ``git gc``, which may delete objects of the saved work.

``git gc`` first finds all objects that refs, reflogs and indexes contain. Later it deletes the others, with
``--prune=now`` also new ones. So a gc that began before the save made its ref may delete objects of the saved
work, even after the save has verified them. A gc that begins later keeps them.

Until its end ``git gc`` holds the file ``gc.pid``. It writes to ``objects/pack``, or to ``objects/info`` if
it keeps all packs (``git-gc(1)``: ``--keep-largest-pack``). If one of them shows a gc, the save waits for its
end, unless git has started it by itself. Then it verifies that no object is missing. If one is, git stores
all files of the worktree again, and the save is repeated. Without a gc this costs three calls of ``stat(2)``.

``git prune`` alone holds no such file. Work can be lost if it looked at the refs before the save made its
own, and still deletes objects after the worktree is gone. ``git commit`` has the same gap.
"""

from __future__ import annotations

import contextlib
import os
import time

from ralph_wrap.errors import GitError
from ralph_wrap.git import existing_commits, first_missing, run_git, store_blob
from ralph_wrap.git.index import write_tree
from ralph_wrap.git.status import stage_all
from ralph_wrap.system import files, liveness, process_table
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.save.sync import GC_LOCK, WRITTEN_BY_GC, stamps_of_gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeVar

    from ralph_wrap.git import Git
    from ralph_wrap.system.cancel import CancelToken, Hurry
    from ralph_wrap.worktree.model import LinkedWorktree, ObjectStamps
    from ralph_wrap.worktree.save.result import SavedWork, SaveRequest

    _Saved = TypeVar("_Saved")

LONGEST_WAIT = 10.0
"""Seconds that a save waits for the end of a gc."""

_ATTEMPTS = 3
_PAUSE = 0.02  # seconds between two looks at gc.pid
_FORGOTTEN = 3600  # seconds after which the lock of another container counts as left by a killed gc
_CLOCKS = 2.0  # seconds between the clocks of files and of processes


class SaveBesideGc(NamedTuple):
    """What a save needs to be repeated after a ``git gc`` has deleted objects of it.

    Attributes:
        worktree: its files are the last copy of what a gc may delete.
        git: git in it.
        index_copy: a free path for a copy of its index, in a directory that is for such copies alone.
        stamps: those of :func:`~ralph_wrap.worktree.save.sync.stamps_of_gc` before the first object was
            written; ``None`` if a gc was running then, or if that is unknown.
        patience: seconds to wait for a gc.
        hurry: without time, nothing waits for a gc.

    """

    worktree: LinkedWorktree
    git: Git
    index_copy: Path
    stamps: ObjectStamps | None
    patience: float = LONGEST_WAIT
    hurry: Hurry = NEVER

    def run(
        self, attempt: Callable[[], _Saved], refs_of: Callable[[_Saved], Sequence[str]]
    ) -> tuple[_Saved, str | None, str | None]:
        """Save, and repeat the save if a gc has deleted objects of it.

        Arguments:
            attempt: saves the work, and makes refs for it.
            refs_of: returns the refs and commits that hold it.

        Returns:
            The saved work. The gc that still runs and may delete objects of it; ``None`` if none does. The
            object that is missing even now; ``None`` if none is.

        Raises:
            GitError: git failed.
            OSError: a file cannot be read or written.

        """
        begun = stamps_of_gc(self.worktree.common_dir)
        for number in range(1, _ATTEMPTS + 1):
            try:
                if number > 1:
                    self._store_again()
                saved = attempt()
            except GitError:
                if number == _ATTEMPTS or not self._has_run_since(begun):
                    raise
                self._wait()
                continue
            refs = refs_of(saved)
            if not refs or not self._has_run_since(self.stamps):
                break
            running = self._wait()
            missing = None if running else self._first_missing(refs)
            if not missing or number == _ATTEMPTS:
                return saved, running, missing
        return saved, None, None

    def _has_run_since(self, stamps: ObjectStamps | None) -> bool:
        """Return whether a gc may have run since these stamps were taken, or still runs."""
        return stamps is None or stamps != stamps_of_gc(self.worktree.common_dir)

    def _wait(self) -> str | None:
        return wait_for_gc(self.worktree.common_dir, self.git, self.patience, self.hurry)

    def _first_missing(self, refs: Sequence[str]) -> str | None:
        common_dir = self.worktree.common_dir
        # The directory of the worktree may be gone.
        git = self.git._replace(cwd=common_dir, git_dir=common_dir, work_tree=None)
        # A gc may have deleted the base, if the agent has left it and no branch contains it.
        return first_missing(git, refs, existing_commits(git, [self.worktree.base]))

    def _store_again(self) -> None:
        """Have git store all files of the worktree; it writes those objects that the repository lacks."""
        for copy in self.index_copy.parent.glob(f"{self.index_copy.name}*"):  # those of submodules, too
            copy.unlink()
        if not self.worktree.path.is_dir():
            return
        scratch = self.git._replace(index_file=self.index_copy)
        store_blob(self.git, b"")  # which ``git add --intent-to-add`` has stored
        # The entries get no times, so git reads each file. With the times of the index it would read none.
        entries = run_git(self.git, "ls-files", "--stage", "-z").stdout
        run_git(scratch, "update-index", "-z", "--index-info", stdin=entries)
        stage_all(scratch, exclude=())  # the save itself adds new files, and says what git cannot add
        with contextlib.suppress(GitError):  # a sparse partial clone lacks files that its remote has promised
            write_tree(scratch)
        self.index_copy.unlink(missing_ok=True)


def save_beside_gc(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    request: SaveRequest,
    saving: Callable[[LinkedWorktree, Git, Path, SaveRequest], SavedWork],
    cancel: CancelToken = NEVER,
) -> tuple[SavedWork, str | None]:
    """Save the work that would be lost with a worktree, so that no ``git gc`` deletes any of it.

    Arguments:
        worktree: the commits that its agent has made since its base are verified, too.
        git: git at the repository.
        index: a free path for a copy of the index.
        request: how to save it.
        saving: saves it.
        cancel: after a second signal, nothing waits for a gc.

    Returns:
        The saved work, and the gc that still runs and may delete objects of it; ``None`` if none does.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    earlier: SavedWork | None = None

    def attempt() -> SavedWork:
        nonlocal earlier
        saved = saving(worktree, git, index, request)
        if earlier is not None:  # what has a ref by now gets no other one
            snapshots = (*earlier.snapshots, *saved.snapshots)
            saved = saved._replace(branch=saved.branch or earlier.branch, snapshots=snapshots)
        earlier = saved
        return saved

    def refs_of(saved: SavedWork) -> list[str]:
        head = saved.head.commit if saved.head else None
        commits = [head] if head and head != worktree.base else []
        return [*commits, *([saved.ref] if saved.ref else []), *saved.snapshots]

    stamps = tuple(stamp for stamp in worktree.objects or () if stamp[0] in WRITTEN_BY_GC) or None
    patience = LONGEST_WAIT if request.waits_for_gc else 0.0
    again = SaveBesideGc(worktree, worktree.git(git), index, stamps, patience, cancel)
    saved, running, missing = again.run(attempt, refs_of)
    lacking = (f"objects of the saved work are missing: {missing}",) if missing else ()
    return saved._replace(problems=(*saved.problems, *lacking)), running


def wait_for_gc(common_dir: Path, git: Git, patience: float, hurry: Hurry) -> str | None:
    """Wait until the ``git gc`` ends that is running now, and return it if it still runs after the wait.

    Nothing waits for one that keeps new objects. One that begins meanwhile keeps all that has a ref by now.

    Arguments:
        common_dir: the repository.
        git: git in it, or in one of its worktrees.
        patience: the longest wait in seconds.
        hurry: without time, the wait ends.

    """
    first, deadline = running_gc(common_dir), time.monotonic() + patience
    if first is not None and first.host == liveness.host() and keeps_new_objects(git, first.pid):
        return None
    while first is not None and running_gc(common_dir) == first:
        if hurry.hurried or time.monotonic() >= deadline:
            return f"git gc is running (process {first.pid} on {first.host})"
        time.sleep(_PAUSE)
    return None


class RunningGc(NamedTuple):
    """A ``git gc``: its pid, its host or container, and when it took its lock, in seconds since 1970."""

    pid: int
    host: str
    began: float


def running_gc(common_dir: Path) -> RunningGc | None:
    """Return the ``git gc`` that holds the lock of a repository; ``None`` if none does.

    A killed gc leaves its lock. So a lock counts while its process lives. That of another host or container
    counts for an hour. Git waits twelve hours, and takes each process that got the pid meanwhile for the gc
    (``lock_repo_for_gc`` in ``builtin/gc.c``). It can do without a gc, but sessions should end.
    """
    try:
        words = files.read(common_dir / GC_LOCK).split()
        began = (common_dir / GC_LOCK).stat().st_mtime
    except OSError:  # git locks by a file alone
        return None
    if len(words) < 2 or not words[0].isdigit():  # noqa: PLR2004 -- pid and host
        return None
    found = RunningGc(int(words[0]), os.fsdecode(words[1]), began)
    if found.host == liveness.host():
        return found if _lives(found) else None
    return found if time.time() - began <= _FORGOTTEN else None


def _lives(found: RunningGc) -> bool:
    """Return whether the process lives, and is no later one with the same pid."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def began_before(pid: int) -> bool:
        since = process_table.start_time(pid)
        return since is not None and booted + since <= found.began + _CLOCKS

    # A sandbox of the agent may have a pid namespace of its own, and the lock has the pid there.
    return began_before(found.pid) or any(
        b"gc" in _words(pid) and began_before(pid) for pid in liveness.nested(found.pid)
    )


def _words(pid: int) -> list[bytes]:
    return process_table.command_line(pid).split(b"\0")


def keeps_new_objects(git: Git, pid: int) -> bool:
    """Return whether a gc is one that git starts by itself, and deletes no object that is new.

    It keeps objects for two weeks, unless ``gc.pruneExpire`` or an option says less (``git-gc(1)``). Git
    takes the option also in a shorter form.
    """
    words, environ = _words(pid), process_table.environment(pid)
    given = b"\0".join((*words, *environ)).lower()
    if b"--auto" not in words or any(word.startswith(b"--p") for word in words) or b"pruneexpire" in given:
        return False
    if not any(environ):  # another user's: it may say anything
        return False
    # The present configuration: the copy that our git uses was made when the session began.
    git = git._replace(safe=None)
    return run_git(git, "config", "--get", "gc.pruneExpire", accept=(0, 1)).status == 1
