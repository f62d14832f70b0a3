"""Bring the work of a clone out: as a bundle, and into the repository if this process may write there.

The order at the end, so that one complete copy of the work exists at each moment:

1. ``worktree.remove.finish`` saves the work in the replica, verifies it, and removes the clone.
2. The bundle is written, and synced to the disk.
3. If the repository can be written, it takes the bundle in, as ``branches.intake`` does for a user later.
   Else git unpacks the bundle in a directory apart, and checks every object.
4. Only then the replica goes.

A session that is killed between two steps has left the replica, the bundle, or both. A sweep goes on from
there.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.branches.intake import BASES, SUFFIX, forget, import_bundle, may_name_branches
from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import count_commits, list_refs
from ralph_wrap.git.bundle import unpack, write_bundle
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state.project import CLONES, RUN, Project, is_writable, repository_of, with_replica
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.log import get_logger
from ralph_wrap.worktree.create.clone import NEW_SUFFIX, rebuild_replica
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, is_clone_of, session_lock
from ralph_wrap.worktree.remove import leaving_places
from ralph_wrap.worktree.save.commits import make_snapshots, unreachable
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.trash import discard_clone

log = get_logger()

_REBUILT = ".rebuilt"
"""The suffix of a replica that a sweep has made."""


class CloneEnd(NamedTuple):
    """Brings the work of one clone out of its replica.

    Attributes:
        project: the project, with git in its repository.
        home: the registry of the session.
        record: of the session.
        replica: the replica of the clone.
        branch: short name of the branch that comes out of it.

    """

    project: Project
    home: Registry
    record: SessionRecord
    replica: Path
    branch: str

    @property
    def bundle(self) -> Path:
        """The bundle of the session."""
        return self.home.bundles / f"{self.record.session}{SUFFIX}"

    @property
    def is_writable(self) -> bool:
        """Whether this process may write to the repository; in a container it is often read-only."""
        return is_writable(repository_of(self.project))

    def commits(self) -> int | None:
        """Return the number of commits on the branch of the clone."""
        git = with_replica(self.project, self.replica).git
        base = list_refs(git, BASES + self.record.id)
        return count_commits(git, base[BASES + self.record.id], f"refs/heads/{self.branch}") if base else None

    def write(self) -> bool:
        """Write the bundle, and return whether there is anything in it.

        Raises:
            GitError: git cannot write it.
            OSError: a file cannot be written; the earlier bundle stays.

        """
        if not (self.replica / "worktrees").is_dir():  # we were killed while we made it: there is no clone
            return False
        git, agent_id = with_replica(self.project, self.replica).git, self.record.id
        base = list_refs(git, BASES + agent_id)[BASES + agent_id]
        refs = self._refs()
        if not refs:  # its branch had no work, and was dropped
            self.bundle.unlink(missing_ok=True)
            return False
        self.home.bundles.mkdir(exist_ok=True)
        with scratch_in(self.replica) as scratch:
            write_bundle(git, self.bundle, base, refs, scratch)
        log.event("work.bundled", path=os.fspath(self.bundle), refs=sorted(refs))
        return True

    def go_on(self, *, take_in: bool) -> None:
        """Write the bundle in the middle of a session.

        Arguments:
            take_in: take it in at once, if possible: then a push comes from the repository.

        Raises:
            RalphError: git cannot write it, or the repository does not take it in.
            OSError: a file cannot be written; the earlier bundle stays.

        """
        if self.write() and take_in and self.is_writable:
            taken = import_bundle(self.project, self.bundle)
            if taken is not None and taken.problem is not None:
                raise taken.problem

    def _refs(self) -> dict[str, str]:
        """Return the refs that go out; commits of other branches of the clone get snapshots first."""
        git, agent_id = with_replica(self.project, self.replica).git, self.record.id
        own = (
            f"refs/heads/{self.branch}",
            f"refs/heads/ralph/{agent_id}-wip",
            f"refs/ralph/snapshots/{agent_id}/",
        )
        others = {ref: oid for ref, oid in list_refs(git, "refs/heads/").items() if ref not in own}
        for ref, oid in others.items():
            if unreachable(git, [oid], without=(ref,)):
                make_snapshots(git, agent_id, [oid])
        return list_refs(git, *own)

    def bring_out(self) -> None:
        """Write the bundle, and take it in if possible; a problem is logged, and the bundle stays.

        Raises:
            RalphError: the bundle is not complete; the replica must stay.
            OSError: a file cannot be written; the same.

        """
        if not self.write():
            if self.is_writable:
                forget(self.project, self.record.id)
            return
        if not self.is_writable:
            self._verify()
            return
        try:
            taken = import_bundle(self.project, self.bundle, to_delete=True)
        except (RalphError, OSError) as error:
            self._verify()
            hint = error.hint if isinstance(error, RalphError) else ""
            log.warning("work.not_taken_in", f"the work is in a bundle: {error}", hint or "")
            return
        if taken is not None and taken.problem is not None:
            log.warning("work.beside", taken.problem.message, taken.problem.hint or "")
        self.bundle.unlink()

    def _verify(self) -> None:
        """Unpack the bundle in a directory apart, and check all its objects.

        Raises:
            GitError: it is not complete.
            OSError: a file cannot be written.

        """
        with scratch_in(self.replica) as scratch:
            try:
                unpack(
                    self.project.git, repository_of(self.project).common_dir / "objects", self.bundle, scratch
                )
            except ValueError as error:
                raise GitError("bundle", 0, f"error: {error}") from None

    def remove_replica(self) -> None:
        """Remove the replica; its work is in the repository, or in a verified bundle.

        Raises:
            OSError: it cannot be moved away.

        """
        # A new name: a deletion that was killed may have left another one, and the next start removes both.
        gone = self.replica.with_name(f"{self.replica.name}-{os.urandom(4).hex()}.gone")
        if self.replica.exists():
            self.replica.rename(gone)
            files.remove_tree(gone)

    def keep_base(self) -> None:
        """Keep what the clone borrows from ``git gc``, if the repository can be written."""
        if not self.is_writable:
            return
        ref = BASES + self.record.id
        git = with_replica(self.project, self.replica).git
        base = list_refs(git, ref)[ref]
        before = list_refs(self.project.git, ref).get(ref)
        if before != base:
            change_refs(
                self.project.git,
                [RefChange(ref, before, base)],
                "ralph-wrap: a clone borrows it",
                int(time.time()),
            )


class DeadClone(NamedTuple):
    """The clone of a dead session, and the replica that a sweep makes for it.

    Attributes:
        end: brings the work out of the new replica.
        home: the registry of the session.
        path: where the clone is, if it still exists.
        old: the replica that the session made. In a container its agent can write there.

    """

    end: CloneEnd
    home: Registry
    path: Path
    old: Path

    @classmethod
    def of(cls, project: Project, home: Registry, record: SessionRecord) -> DeadClone | None:
        """Return the clone of a session, ``None`` if the session had a worktree."""
        old = home.replicas / record.session
        name = f"{record.session}{_REBUILT}"
        places = (old, home.replicas / name, Registry(project.root / RUN).replicas / name)
        found = any(path.is_dir() and not path.is_symlink() for path in places)
        if not found or project.repository is None or record.base is None:
            return None
        safe = _safe_home(project, home)
        new = safe.replicas / name
        named = record.branch if record.branch and may_name_branches(project, home) else f"ralph/{record.id}"
        end = CloneEnd(project, safe, record, new, named)
        return cls(end, home, project.root / CLONES / record.worktree_name, old)

    @property
    def replica(self) -> Path:
        """The new replica."""
        return self.end.replica

    @property
    def _mark(self) -> SessionMark:
        return SessionMark(self.end.record.session, str(self.end.record.branch))

    @property
    def _leaving(self) -> tuple[Path, Path]:
        return leaving_places(self.path, self.home.trash / self.end.record.session)

    def rebuild(self) -> None:
        """Make the new replica, unless an earlier sweep has made it; bring the clone back to its path.

        Raises:
            RalphError: git refuses what the old replica holds.
            OSError: a file is not a plain file, or cannot be read.

        """
        unmade = self.path.with_name(self.path.name + NEW_SUFFIX)
        if unmade.is_dir() and not unmade.is_symlink():  # no agent has worked in it
            shutil.rmtree(unmade)
        latest = self.replica if self.replica.is_dir() else self.old
        if (latest / "worktrees" / self.path.name).is_dir() and not os.path.lexists(self.path):
            for leaving in self._leaving:
                if is_clone_of(leaving / ".git", self._mark):  # its removal was not complete
                    leaving.rename(self.path)
        if self.replica.is_dir():
            return
        project, record = self.end.project, self.end.record
        self.replica.parent.mkdir(exist_ok=True)
        tree = LinkedWorktree(
            path=self.path,
            registration=self.replica / "worktrees" / self.path.name,
            common_dir=self.replica,
            branch=self._mark.branch,
            base=str(record.base),
            branch_created=False,
            config=(),
            owner=WorktreeOwner(session_lock(record.session), self._mark),
            clone=True,
        )
        rebuild_replica(project.git, repository_of(project), tree, self.old, record.id)

    def discard(self) -> None:
        """Delete what a killed removal has left of the clone: its replica has all work."""
        aside = self.home.trash / self.end.record.session
        for leftover in (aside, *self._leaving):
            if leftover.is_dir():
                discard_clone(leftover, aside, self._mark)

    def remove_replicas(self) -> None:
        """Remove both replicas; their work is in the repository, or in a verified bundle.

        Raises:
            OSError: one cannot be moved away.

        """
        self.end._replace(replica=self.old).remove_replica()
        self.end.remove_replica()


def _safe_home(project: Project, home: Registry) -> Registry:
    """Return the registry of the project, if we can write there: then no agent in a container can."""
    safe = Registry(project.root / RUN)
    try:
        safe.prepare()
    except OSError:  # we are in the container ourselves
        return home
    return safe
