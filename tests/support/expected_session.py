"""What the contract says of a session that a test has killed, robbed or copied.

Every expectation is computed from what was done to the session. Nothing is read back from the files that a
test then checks.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.state.inventory import Verdict
from tests.support.directory_listing import listing
from tests.support.trees import on_disk

if TYPE_CHECKING:
    from ralph_wrap.session.context import SessionContext
    from ralph_wrap.session.workspace import Workspace
    from ralph_wrap.state.claim import SessionClaim
    from ralph_wrap.system.files import FileLock
    from ralph_wrap.system.log import Log
    from tests.support.repo import Repo

REWRITINGS: dict[str, dict[str, Any]] = {
    "written on another machine": {"boot_id": "another boot", "host": "another host"},
    "written before a reboot": {"boot_id": "another boot"},
    "written in another container": {"pid_namespace": "pid:[1]", "host": "another host"},
    "of a pid that was reused": {"pid": os.getpid(), "start_time": 0.5},
}
"""Changes to a record after which it can still be read."""

SPOILINGS = ("garbage", "empty", "half", "newer", "another's", "a directory", "a link", "gone")
"""Changes after which it cannot."""

ENDS = ("killed", "killed, a zombie", "saved", "finished", "properly")
"""How an owner ends: at once, between save and removal, when only its record is still to leave, or well."""

INNER = "inner"
"""A repository in a worktree, which cannot be saved."""


class Fate(NamedTuple):
    """What becomes of a session when a command finishes it.

    Attributes:
        action: as a sweep names it.
        saved: uncommitted work gets a branch.
        removed: so is the worktree.
        released: its record leaves.
        dropped: its branch is deleted.

    """

    action: str
    saved: bool = False
    removed: bool = False
    released: bool = True
    dropped: bool = False


@dataclass(eq=False)
class ExpectedSession:
    """A session, and all that a test must know of it.

    Attributes:
        repo: its project.
        attic: a directory of its own for what was taken away.
        owner: its process.
        claim: its record and lock.
        context: where and how it works.
        log: its event log.
        workspace: where it works; ``None`` if it was killed before there was one.
        worktree: there is one.
        begun: an agent has started in it.
        files: what the worktree holds, by path.
        head: the same of its last commit.
        tips: commits that must never be lost.
        moved: its branch is not where it began.
        wip: there is a branch with its saved work.
        branch: there is a branch.
        nested: there is a repository in its worktree.
        alive: its owner is.
        record: ``own``, or how it was spoiled.
        rewritten: the changed keys of its record.
        lock: ``own``, ``copied``, ``away``, or ``gone`` for good.
        whereabouts: what was done to its worktree: ``own``, ``away``, ``renamed`` or ``unregistered``.
        elsewhere: held by a process of its agent that is not seen from here.
        left: processes that its agent has left running.
        occupant: a process of the user that works in its worktree.
        ended: it is finished, and its record has left.

    """

    repo: Repo
    attic: Path
    owner: subprocess.Popen[bytes]
    claim: SessionClaim
    context: SessionContext
    log: Log
    workspace: Workspace | None = None
    worktree: bool = False
    begun: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    head: dict[str, bytes] = field(default_factory=dict)
    tips: list[str] = field(default_factory=list)
    moved: bool = False
    wip: bool = False
    branch: bool = False
    nested: bool = False
    alive: bool = True
    record: str = "own"
    rewritten: dict[str, Any] = field(default_factory=dict)
    lock: str = "own"
    whereabouts: str = "own"
    elsewhere: FileLock | None = None
    left: list[subprocess.Popen[bytes]] = field(default_factory=list)
    occupant: subprocess.Popen[bytes] | None = None
    ended: bool = False

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # what Hypothesis asks for
        printer.text(f"<{self.session}>")

    # Names and places

    @property
    def id(self) -> str:
        """The agent id."""
        return self.claim.record.id

    @property
    def session(self) -> str:
        """The session id."""
        return self.claim.record.session

    @property
    def branch_name(self) -> str:
        """What it works on, if it has a worktree."""
        return f"ralph/{self.id}"

    @property
    def wip_name(self) -> str:
        """Where its work is saved."""
        return f"ralph/{self.id}-wip"

    @property
    def record_path(self) -> Path:
        """Its record, until it has ended."""
        return self.claim.registry.agents / f"{self.id}.json"

    @property
    def lock_path(self) -> Path:
        """Its lock."""
        return self.record_path.with_suffix(".lock")

    @property
    def path(self) -> Path:
        """Its worktree."""
        return self.repo.path / ".ralph" / "worktrees" / self.session

    @property
    def present_path(self) -> Path:
        """The path of its worktree by now."""
        return self.attic / "worktree" if self.whereabouts == "away" else self.path

    @property
    def registration(self) -> Path:
        """Its worktree in the repository."""
        return self.repo.path / ".git" / "worktrees" / self.session

    @property
    def registered(self) -> Path:
        """Where that is by now."""
        if self.whereabouts == "unregistered":
            return self.attic / "registration"
        return (
            self.registration.with_name(f"renamed-{self.id}")
            if self.whereabouts == "renamed"
            else self.registration
        )

    def belongings(self) -> dict[str, object]:
        """Return everything that a sweep could change, by path."""
        found: dict[str, object] = {}
        ours = [] if self.ended else [self.record_path, self.lock_path]  # of another session by now, perhaps
        for path in (*ours, self.claim.directory, self.present_path, self.registered):
            if path.is_dir() and not path.is_symlink():
                found |= {f"{path}/{name}": entry for name, entry in listing(path).items()}
            elif os.path.lexists(path):
                there = path.lstat()
                content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
                found[os.fspath(path)] = there.st_ino, there.st_mode, there.st_mtime_ns, content
        return found | {f"pid {process.pid}": process.poll() for process in self.left}

    def contents(self) -> dict[str, bytes]:
        """Return the files of its worktree."""
        found = on_disk(self.present_path).items()
        return {os.fsdecode(path): content for path, (_, content) in found if not path.startswith(b"inner/")}

    # Expectations

    @property
    def locked(self) -> bool:
        """Its owner holds the lock that is seen."""
        return self.alive and self.lock == "own"

    @property
    def verdict(self) -> Verdict | None:
        """What an inventory says of it; ``None`` if it cannot know of it."""
        if self.ended or self.record == "gone":
            return None
        seen = self.alive and not {"boot_id", "pid_namespace", "start_time"} & {*self.rewritten}
        finished = self.claim.record.state == "finished"
        abroad = self.lock == "copied" or {"boot_id", "host"} <= {*self.rewritten}
        verdicts = (
            (self.record != "own" or self.lock in {"away", "gone"}, Verdict.UNKNOWN),
            (self.locked or (seen and not finished), Verdict.LIVE),
            (finished, Verdict.FINISHED),
            (abroad, Verdict.FOREIGN),
        )
        return next((verdict for fits, verdict in verdicts if fits), Verdict.ORPHAN)

    @property
    def dirty(self) -> bool:
        """Something is uncommitted that could be saved."""
        return self.files != self.head

    def leaving(self) -> Fate:
        """Return what becomes of its worktree, whichever command finishes it."""
        record = self.claim.record
        if record.keep_worktree:
            return Fate("finished")
        if self.whereabouts != "own" or self.occupant is not None:
            return Fate("kept")
        kept_dirty = record.on_dirty == "keep" and (self.dirty or self.nested)
        saved = self.dirty and not kept_dirty
        if kept_dirty or self.nested or record.background:
            return Fate("finished" if kept_dirty or not self.nested else "kept", saved)
        unused = not saved and not self.moved and (record.drop_empty or not self.begun)
        return Fate("finished", saved, removed=True, dropped=unused)

    def swept(self) -> Fate:
        """Return what becomes of it in a sweep that takes it for dead."""
        if self.elsewhere is not None:
            return Fate("kept", released=False)
        if not self.worktree:
            unused = self.branch and not self.moved and not self.wip
            return Fate("finished", dropped=unused and (self.claim.record.drop_empty or not self.begun))
        if self.whereabouts in {"renamed", "unregistered"}:
            return Fate("kept", released=False)
        return self.leaving()

    def meet(self, fate: Fate) -> None:
        """Take note of what has become of it."""
        self.wip |= fate.saved
        self.branch &= not fate.dropped
        self.worktree &= not fate.removed
        self.ended |= fate.released
        if fate.released:
            self.lock = "gone"
