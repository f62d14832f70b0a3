"""Bring the work of a clone out: as a bundle, and into the repository if this process may write there.

The order at the end, so that one complete copy of the work exists at each moment:

1. ``worktree.remove.finish`` saves the work in the mirror, verifies it, and removes the clone.
2. The bundle is written, and synced to the disk.
3. If the repository can be written, it takes the bundle in, as ``branches.intake`` does for a user later.
   Else git unpacks the bundle in a directory apart, and checks every object.
4. Only then the mirror goes.

A session that is killed between two steps has left the mirror, the bundle, or both. A sweep goes on from
there.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from ralph_wrap.branches.intake import BASES, SUFFIX, forget, take_one
from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import count_commits, list_refs
from ralph_wrap.git.bundle import unpack, write_bundle
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state.project import mirrored, repository_of
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.save.commits import make_snapshots, unreachable
from ralph_wrap.worktree.save.scratch import scratch_in

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.state.project import Project
    from ralph_wrap.state.record import SessionRecord
    from ralph_wrap.state.registry import Registry
    from ralph_wrap.system.log import Log


class CloneEnd(NamedTuple):
    """Brings the work of one clone out of its mirror.

    Attributes:
        project: the project, with git in its repository.
        home: the registry of the session.
        record: of the session.
        log: where each step is logged.

    """

    project: Project
    home: Registry
    record: SessionRecord
    log: Log

    @property
    def mirror(self) -> Path:
        """The mirror of the clone."""
        return self.home.mirrors / self.record.session

    @property
    def bundle(self) -> Path:
        """The bundle of the session."""
        return self.home.bundles / f"{self.record.session}{SUFFIX}"

    @property
    def is_writable(self) -> bool:
        """Whether this process may write to the repository; in a container it is often read-only."""
        common_dir = repository_of(self.project).common_dir
        return all(
            os.access(path, os.W_OK) for path in (common_dir, common_dir / "objects", common_dir / "refs")
        )

    def commits(self) -> int | None:
        """Return the number of commits on the branch of the clone."""
        git = mirrored(self.project, self.mirror).git
        base = list_refs(git, BASES + self.record.id)
        return (
            count_commits(git, base[BASES + self.record.id], f"refs/heads/{self.record.branch}")
            if base
            else None
        )

    def write(self) -> bool:
        """Write the bundle, and return whether there is anything in it.

        Raises:
            GitError: git cannot write it.
            OSError: a file cannot be written; the earlier bundle stays.

        """
        if not (self.mirror / "worktrees").is_dir():  # we were killed while we made it: there is no clone
            return False
        git, agent_id = mirrored(self.project, self.mirror).git, self.record.id
        base = list_refs(git, BASES + agent_id)[BASES + agent_id]
        refs = self._refs()
        if not refs:  # its branch had no work, and was dropped
            self.bundle.unlink(missing_ok=True)
            return False
        self.home.bundles.mkdir(exist_ok=True)
        with scratch_in(self.mirror) as scratch:
            write_bundle(git, self.bundle, base, refs, scratch)
        self.log.event("work.bundled", path=os.fspath(self.bundle), refs=sorted(refs))
        return True

    def _refs(self) -> dict[str, str]:
        """Return the refs that go out; commits of other branches of the clone get snapshots first."""
        git, agent_id = mirrored(self.project, self.mirror).git, self.record.id
        branch, snapshots = f"refs/heads/ralph/{agent_id}", f"refs/ralph/snapshots/{agent_id}/"
        own = (branch, f"{branch}-wip", snapshots)
        others = {ref: oid for ref, oid in list_refs(git, "refs/heads/").items() if ref not in own}
        for ref, oid in others.items():
            if unreachable(git, [oid], without=ref):
                make_snapshots(git, agent_id, [oid])
        return list_refs(git, *own)

    def bring_out(self) -> None:
        """Write the bundle, and take it in if possible; a problem is logged, and the bundle stays.

        Raises:
            RalphError: the bundle is not complete; the mirror must stay.
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
            taken = take_one(self.project, self.bundle)
        except (RalphError, OSError) as error:
            self._verify()
            hint = error.hint if isinstance(error, RalphError) else ""
            self.log.warning("work.not_taken_in", f"the work is in a bundle: {error}", hint or "")
            return
        if taken is not None and taken.problem is not None:
            self.log.warning("work.beside", taken.problem.message, taken.problem.hint or "")
        self.bundle.unlink()

    def _verify(self) -> None:
        """Unpack the bundle in a directory apart, and check all its objects.

        Raises:
            GitError: it is not complete.
            OSError: a file cannot be written.

        """
        with scratch_in(self.mirror) as scratch:
            try:
                unpack(
                    self.project.git, repository_of(self.project).common_dir / "objects", self.bundle, scratch
                )
            except ValueError as error:
                raise GitError("bundle", 0, f"error: {error}") from None

    def remove_mirror(self) -> None:
        """Remove the mirror; its work is in the repository, or in a verified bundle.

        Raises:
            OSError: it cannot be moved away.

        """
        gone = self.mirror.with_name(f"{self.mirror.name}.gone")
        if self.mirror.exists():
            self.mirror.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def keep_base(self) -> None:
        """Keep what the clone borrows from ``git gc``, if the repository can be written."""
        if not self.is_writable:
            return
        ref = BASES + self.record.id
        git = mirrored(self.project, self.mirror).git
        base = list_refs(git, ref)[ref]
        before = list_refs(self.project.git, ref).get(ref)
        if before != base:
            change_refs(
                self.project.git,
                [RefChange(ref, before, base)],
                "ralph-wrap: a clone borrows it",
                int(time.time()),
            )
