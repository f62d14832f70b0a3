"""A session that a test can kill, rob and copy, and what the contract says of it.

The owner is a child that only sleeps; what a session does for itself, the test does in its stead, with the
functions that a session does it with. Everything that is to be expected is computed from what was done to the
session, nothing is read back from where it is to be found.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.cancel import NEVER
from tests.support.cancelling import cancelled
from tests.support.listing import listing
from tests.support.trees import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ralph_wrap.session.workspace import SessionContext, Workspace
    from ralph_wrap.state.registry import SessionClaim
    from ralph_wrap.system.files import FileLock
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.model import LinkedWorktree
    from tests.support.repo import Repo

REWRITINGS: dict[str, dict[str, Any]] = {
    "written on another machine": {"boot_id": "another boot", "host": "another host"},
    "written before a reboot": {"boot_id": "another boot"},
    "written in another container": {"pid_namespace": "pid:[1]", "host": "another host"},
    "of a pid that was reused": {"pid": os.getpid(), "start_time": 0.5},
}
"""What somebody may make of a record that can be read all the same."""

SPOILINGS = ("garbage", "empty", "half", "newer", "another's", "a directory", "a link", "gone")
"""What else somebody may make of it."""

ENDS = ("killed", "killed, a zombie", "saved", "finished", "properly")
"""How an owner ends: at once, between save and removal, when only its record is still to leave, or well."""

INNER = "inner"
"""A repository in a worktree, which cannot be saved."""


def sleeper(**options: Any) -> subprocess.Popen[bytes]:
    """Start a process that does nothing."""
    return subprocess.Popen(("sleep", "600"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def end(process: subprocess.Popen[bytes] | None) -> None:
    """End a process; ``None`` is none."""
    if process is not None:
        process.kill()
        process.wait()


class Fate(NamedTuple):
    """What becomes of a session that somebody finishes.

    Attributes:
        action: as a sweep names it.
        saved: what is uncommitted gets a branch.
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
class Mortal:
    """A session, and all that is to be known of it.

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
        rewritten: what somebody has changed in its record.
        lock: ``own``, ``copied``, ``away``, or ``gone`` for good.
        whereabouts: what was done to its worktree: ``own``, ``away``, ``renamed`` or ``unregistered``.
        elsewhere: held by a process of its agent that is not seen from here.
        left: processes that its agent has left running.
        occupant: somebody's process that works in its worktree.
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
    def place(self) -> Path:
        """Where its worktree is by now."""
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
        for path in (*ours, self.claim.directory, self.place, self.registered):
            if path.is_dir() and not path.is_symlink():
                found |= {f"{path}/{name}": entry for name, entry in listing(path).items()}
            elif os.path.lexists(path):
                there = path.lstat()
                content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
                found[os.fspath(path)] = there.st_ino, there.st_mode, there.st_mtime_ns, content
        return found | {f"pid {process.pid}": process.poll() for process in self.left}

    def contents(self) -> dict[str, bytes]:
        """Return the files of its worktree."""
        found = on_disk(self.place).items()
        return {os.fsdecode(path): content for path, (_, content) in found if not path.startswith(b"inner/")}

    # What is to be expected

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
        """Return what becomes of its worktree, whoever finishes it."""
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

    # What its owner does

    @property
    def tree(self) -> LinkedWorktree | None:
        """Its worktree, as its owner knows it."""
        return self.workspace.tree if self.workspace else None

    def open(self) -> None:
        """Make the workspace."""
        self.workspace = self.context.open(None)
        self.worktree = self.branch = self.tree is not None
        if self.worktree:
            self.files = self.contents()
            self.head = dict(self.files)

    def begin(self) -> None:
        """Have the agent start."""
        self.write_record(state="running")
        self.log.event("agent.started")
        self.begun = True

    def write_record(self, **changes: Any) -> None:
        """Have the owner write its record, whatever somebody has made of it."""
        with self._unless_directory():
            self.claim.update(**changes)
            self.record, self.rewritten = "own", {}

    def _unless_directory(self) -> AbstractContextManager[object]:
        """Return what takes a record for lost that is a directory."""
        if self.record == "a directory":
            return contextlib.suppress(IsADirectoryError)
        return contextlib.nullcontext()

    def leave(self, *, hurry: bool = False) -> Fate:
        """Save and remove the worktree as its owner."""
        if self.tree is None:
            return Fate("finished")
        expected = self.leaving()
        if hurry and expected.removed:
            expected = expected._replace(removed=False, dropped=False)
        outcome = self.context.end.leave(
            self.tree,
            self.claim.registry.trash,
            (),
            cancel=cancelled(signal.SIGTERM, signal.SIGTERM) if hurry else NEVER,
        )
        assert (bool(outcome.saved and outcome.saved.branch), outcome.kept is None) == expected[1:3], outcome
        if self.claim.record.drop_empty or not self.begun:
            self.context.end.drop_branch(self.tree, outcome)
        return expected

    def end(self, how: str) -> Fate | None:
        """Have the owner end, one of ``ENDS``; return what became of its worktree, if it looked at that."""
        fate = None
        if not how.startswith("killed") and self.elsewhere is None:
            for process in self.left:
                end(process)
            fate = self.leave(hurry=how == "saved")._replace(released=False)
            if how == "properly":
                with self._unless_directory():  # of which nothing may be deleted
                    self.claim.release()
                    fate = fate._replace(released=True)
            else:
                self.write_record(state="ending" if how == "saved" else "finished")
        self.perish(zombie=how == "killed, a zombie")
        return fate

    def perish(self, *, zombie: bool = False) -> None:
        """Have the owner die at once, perhaps without anybody who waits for it."""
        self.owner.kill()
        os.waitid(os.P_PID, self.owner.pid, os.WEXITED | os.WNOWAIT)
        if not zombie:
            self.owner.wait()
        self.let_go()

    def let_go(self) -> None:
        """Give back what the kernel takes from a dead process."""
        self.claim.leave()
        self.log.close()
        if self.workspace and self.workspace.lock:
            self.workspace.lock.release()
        self.alive = False

    def close(self) -> None:
        """End every process and free every lock."""
        for process in (self.owner, self.occupant, *self.left):
            end(process)
        if self.elsewhere:
            self.elsewhere.release()
        self.let_go()

    # What anybody does

    def meddle_with_record(self, how: str) -> None:
        """Have it say something else, or nothing that can be read; or bring it back."""
        if how == "written anew":
            if self.alive:
                self.write_record()
        elif self.record != "own":
            self.restore()
        elif how in REWRITINGS:
            self.rewritten |= REWRITINGS[how]
            self.restore()
        elif how in SPOILINGS:
            self.spoil(how)

    def spoil(self, how: str) -> None:
        """Make something of the record that cannot be read."""
        content = self._content()
        away = self.attic / "record.json"
        away.write_bytes(content)
        self._clear(self.record_path)
        if how == "a directory":
            self.record_path.mkdir()
        elif how == "a link":
            self.record_path.symlink_to(away)
        elif how != "gone":
            self.record_path.write_bytes(
                {
                    "garbage": b"garbage",
                    "empty": b"",
                    "half": content[: len(content) // 2],
                    "newer": json.dumps(json.loads(content) | {"version": 2}).encode(),
                    "another's": json.dumps(json.loads(content) | {"id": "ffff"}).encode(),
                }[how]
            )
        self.record = how

    def restore(self) -> None:
        """Put a record that can be read in its place."""
        self._clear(self.record_path)
        self.record_path.write_bytes(self._content())
        self.record = "own"

    def _content(self) -> bytes:
        return json.dumps(json.loads(self.claim.record.to_json()) | self.rewritten).encode()

    @staticmethod
    def _clear(path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def move_lock(self, to: str) -> None:
        """Take the lock away, put a copy in its place, or bring it back."""
        away = self.attic / "lock"
        if self.lock in {"gone", to}:
            return
        if self.lock == "own" and to != "brought back":
            self.lock_path.rename(away)
        if to == "copied":
            shutil.copy2(away, self.lock_path)
        elif to == "away":
            self.lock_path.unlink(missing_ok=True)
        elif self.lock != "own":
            away.rename(self.lock_path)
        self.lock = "own" if to == "brought back" else to

    def move_worktree(self, to: str) -> None:
        """Move the worktree or its registration away, or bring back what is away."""
        before = self.place, self.registered
        self.whereabouts = to if self.whereabouts == "own" and to != "brought back" else "own"
        for old, new in zip(before, (self.place, self.registered), strict=True):
            old.rename(new)

    def come_or_go(self, who: str) -> None:
        """Have a process of its agent, seen from here or not, or one of a person be there, or no more."""
        if who == "a child":
            self.left.append(sleeper(env={**os.environ, "RALPH_SESSION_ID": self.session}))
        elif who == "elsewhere" and self.elsewhere is None:
            self.elsewhere = self.claim.lock_for_agents()
        elif who == "elsewhere" and self.elsewhere is not None:
            self.elsewhere.release()
            self.elsewhere = None
        elif self.worktree and self.occupant is None:
            self.occupant = sleeper(cwd=self.place)
        else:
            end(self.occupant)
            self.occupant = None

    def work(self, how: str, number: int, inner: Path) -> None:
        """Change what the worktree holds; a content is as long as any other."""
        if how == "nest" and not self.nested:
            shutil.copytree(inner, self.place / INNER)
            self.nested = True
        elif how == "delete" and "file.txt" in {*self.files} & {*self.head}:
            (self.place / "file.txt").unlink()
            del self.files["file.txt"]
        elif how in {"commit", "amend"} and self.whereabouts == "own":
            self._commit(f"commit {number}", amend=how == "amend" and self.moved)
        else:
            name = "new" if how == "write" else "file.txt"
            self.files[name] = b"%06d\n" % number
            (self.place / name).write_bytes(self.files[name])

    def _commit(self, message: str, *, amend: bool) -> None:
        inside = type(self.repo)(self.place)
        inside.git("add", "--all", "--", ".", f":!{INNER}")
        inside.git("commit", "--quiet", "--allow-empty", "--message", message, *["--amend"] * amend)
        self.tips.append(inside.head)
        self.head = dict(self.files)
        self.moved = True

    def paths(self) -> Iterator[Path]:
        """Yield what must be on disk by now, and nothing else of it."""
        if not self.ended and self.record != "gone":
            yield self.record_path
        if self.lock in {"own", "copied"}:
            yield self.lock_path
        if self.worktree:
            yield from (self.place, self.registered)
        if self.ended:
            yield self.claim.directory / "record.json"
