"""A session that a test can kill, rob and copy.

The owner is a child that only sleeps. The test does the work of the session in its stead, with the same
functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.session.open_workspace import open_workspace
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.log import get_logger
from tests.support.cancelling import cancelled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ralph_wrap.worktree.model import LinkedWorktree
from tests.support.expected_session import INNER, REWRITINGS, SPOILINGS, ExpectedSession, Fate


def sleeper(**options: Any) -> subprocess.Popen[bytes]:
    """Start a process that does nothing."""
    return subprocess.Popen(("sleep", "600"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def end(process: subprocess.Popen[bytes] | None) -> None:
    """End a process; ``None`` is none."""
    if process is not None:
        process.kill()
        process.wait()


class KillableSession(ExpectedSession):
    """A session, and what its owner and anybody else do to it."""

    # What its owner does

    @property
    def tree(self) -> LinkedWorktree | None:
        """Its worktree, as its owner knows it."""
        return self.workspace.tree if self.workspace else None

    def open(self) -> None:
        """Make the workspace."""
        with self.log.in_use():
            self.workspace = open_workspace(self.context, None)
        self.worktree = self.branch = self.tree is not None
        if self.worktree:
            self.files = self.contents()
            self.head = dict(self.files)

    def begin(self) -> None:
        """Have the agent start."""
        self.write_record(state="running")
        with self.log.in_use():
            get_logger().event("agent.started")
        self.begun = True

    def write_record(self, **changes: Any) -> None:
        """Have the owner write its record again, over a damaged one too."""
        with self._unless_refused():
            self.claim.update(**changes)
            self.record, self.rewritten = "own", {}

    def _unless_refused(self) -> AbstractContextManager[object]:
        """Return what takes a record for lost that is a directory, or that has lost its lock."""
        if self.lock != "own":
            return pytest.raises(OSError, match="deleted or replaced")
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
                with self._unless_refused():  # of which nothing may be deleted
                    self.claim.release()
                    fate = fate._replace(released=True)
            else:
                self.write_record(state="ending" if how == "saved" else "finished")
        self.perish(zombie=how == "killed, a zombie")
        return fate

    def perish(self, *, zombie: bool = False) -> None:
        """Have the owner die at once, perhaps without a parent that waits for it."""
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
        before = self.present_path, self.registered
        self.whereabouts = to if self.whereabouts == "own" and to != "brought back" else "own"
        for old, new in zip(before, (self.present_path, self.registered), strict=True):
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
            self.occupant = sleeper(cwd=self.present_path)
        else:
            end(self.occupant)
            self.occupant = None

    def work(self, how: str, number: int, inner: Path) -> None:
        """Change what the worktree holds; a content is as long as any other."""
        if how == "nest" and not self.nested:
            shutil.copytree(inner, self.present_path / INNER)
            self.nested = True
        elif how == "delete" and "file.txt" in {*self.files} & {*self.head}:
            (self.present_path / "file.txt").unlink()
            del self.files["file.txt"]
        elif how in {"commit", "amend"} and self.whereabouts == "own":
            self._commit(f"commit {number}", amend=how == "amend" and self.moved)
        else:
            name = "new" if how == "write" else "file.txt"
            self.files[name] = b"%06d\n" % number
            (self.present_path / name).write_bytes(self.files[name])

    def _commit(self, message: str, *, amend: bool) -> None:
        inside = type(self.repo)(self.present_path)
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
            yield from (self.present_path, self.registered)
        if self.ended:
            yield self.claim.directory / "record.json"
