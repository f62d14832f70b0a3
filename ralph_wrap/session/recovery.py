"""Finish a session whose owner is dead: save and remove its worktree, write its report.

An agent can write the file of a record. So each path and each name of a branch in it is checked first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ralph_wrap.errors import NotARepositoryError, RalphError, RefusedError
from ralph_wrap.git import count_commits, list_refs
from ralph_wrap.git.compare import CommitCounts
from ralph_wrap.session.clone_end import DeadClone
from ralph_wrap.session.exit_report import with_outcome
from ralph_wrap.session.owed_teardown import OWED, run_owed
from ralph_wrap.session.preflight import committer
from ralph_wrap.session.teardown import TeardownEnd, not_run, report_of
from ralph_wrap.session.worktree_end import WorktreeEnd, WorktreePolicy
from ralph_wrap.state import agent_shares, gate_memory, report, told
from ralph_wrap.state.how_ended import KILLED
from ralph_wrap.state.project import WORKTREES, Project, with_replica
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.state.remote_refs import REMOTES
from ralph_wrap.state.session_start import START
from ralph_wrap.system import files
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import OWN_COMMAND
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.recover import adopt, moved_or_replaced
from ralph_wrap.worktree.remove import WorktreeOutcome
from ralph_wrap.worktree.save.private_index import remove_private_index
from ralph_wrap.worktree.save.unused_branch import drop_branch_at

log = get_logger()


class SharedFacts:
    """What one command asks git once for all dead sessions: an agent can forge any number of records."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Environment variables that name a committer, if git has none."""
        return committer(self._project)

    @cached_property
    def refs(self) -> Mapping[str, str]:
        """The branches, and our other refs, before the first session is finished."""
        return list_refs(self._project.git, "refs/heads/", "refs/ralph/")

    @cached_property
    def counts(self) -> CommitCounts:
        """Numbers of commits on these branches."""
        return CommitCounts(self._project.git, self.refs)

    @cached_property
    def owners(self) -> frozenset[str]:
        """The agent ids of saved work, of snapshots, and of claims on other machines."""
        refs = [*self.refs, *list_refs(self._project.git, REMOTES)]
        names = (part for ref in refs for part in ref.split("/"))
        return frozenset(name.removesuffix("-wip") for name in names)


class SessionRecovery:
    """The worktree, branch and report of one session; the caller holds the session's lock.

    Arguments:
        home: the registry with the session.
        shared: what git says for all sessions.

    """

    def __init__(self, project: Project, home: Registry, record: SessionRecord, shared: SharedFacts) -> None:
        self._project = self._given = project
        self._shared = shared
        self._home = home
        self._record = record
        self._clone = DeadClone.of(project, home, record)
        self._commits: int | None = None
        self._teardown: TeardownEnd | None = None
        own = {**shared.identity, OWN_COMMAND: record.session}
        if self._clone is not None:
            self._project = project = with_replica(project, self._clone.replica)
        git = project.git
        project = project._replace(git=git._replace(env={**git.env, **own}))
        policy = WorktreePolicy.of_record(record)
        self._end = WorktreeEnd(project, record, policy)

    @property
    def directory(self) -> Path:
        """Directory of the session."""
        return self._home.sessions / self._record.session

    def worktree(self) -> LinkedWorktree | None:
        """Return the session's worktree, ``None`` if it does not exist (any more).

        Raises:
            RefusedError: the worktree exists, or may exist, but we cannot save it from here.
            OSError: a file of it cannot be read or moved.

        """
        record, repository = self._record, self._project.repository
        if repository is None and record.branch is not None:
            obstacle = self._project.obstacle or NotARepositoryError("there is no repository")
            hint = obstacle.hint or command("ls", "-la", self._project.main)
            raise RefusedError(f"its work cannot be read: {obstacle.message}", hint)
        path = self._project.root / WORKTREES / record.worktree_name
        if self._clone is not None:
            path = self._clone.path
            self._clone.rebuild()
        tree = None
        if repository is not None and record.branch is not None and record.base is not None:
            tree = adopt(repository, record, path=path, trash=self._home.trash)
        if tree is None and os.path.lexists(path):
            known = repository.common_dir / "worktrees" / path.name if repository else None
            raise moved_or_replaced(path, record, known)
        if tree is None and self._clone is not None:
            self._clone.discard()
        return tree

    @property
    def keeps_worktree(self) -> bool:
        """Whether the worktree stays until ``ralph-wrap rm``."""
        policy = self._end.policy
        return policy.keep or policy.background

    def tear_down(self, tree: LinkedWorktree | None, cancel: CancelToken) -> TeardownEnd | None:
        """Run the teardown that the session owes, before its worktree is saved; return what became of it.

        Arguments:
            tree: the worktree, if it exists.
            cancel: a signal leaves the teardown to the next command.

        """
        project, identity = self._given, self._shared.identity
        own = {**project.git.env, **identity, OWN_COMMAND: self._record.session}
        project = project._replace(environ={**project.environ, **identity}, git=project.git._replace(env=own))
        try:
            self._teardown = run_owed(project, self._home, self._record, tree, cancel)
        except OSError as error:  # nothing stops the save
            self._teardown = not_run(None, str(error), "")
        return self._teardown

    def bring_out(self, outcome: WorktreeOutcome | None) -> None:
        """Bring the work of a clone out of its replica; the replica goes with the clone.

        Raises:
            RalphError: the work cannot be brought out; the replica stays.
            OSError: the same.

        """
        if self._clone is None:
            return
        with contextlib.suppress(RalphError, OSError):
            self._commits = self._clone.end.commits()
        self._clone.end.bring_out()
        if outcome is None or not outcome.kept:
            self._clone.remove_replicas()

    def leave(
        self, tree: LinkedWorktree, survivors: tuple[int, ...] = (), *, for_good: bool = False
    ) -> WorktreeOutcome:
        """Save and remove the worktree, as the session would have done at its end; return the outcome.

        Arguments:
            survivors: processes of the session that cannot be killed.
            for_good: remove the worktree even if the session should have kept it.

        """
        end = self._end._replace(policy=WorktreePolicy(), is_rm=True) if for_good else self._end
        return end.leave(tree, self._home.trash, survivors, unstarted=self._record.state == "starting")

    def drop_unused_branch(self, tree: LinkedWorktree | None, outcome: WorktreeOutcome | None) -> None:
        """Delete the branch if the session left no work on it.

        Raises:
            GitError: the branch has moved at this moment, and stays.
            OSError: the repository cannot be locked.

        """
        record, repository = self._record, self._project.repository
        if record.resumes is not None:  # the branch has the commits of an earlier session
            return
        if tree is None and self._clone is None and record.id not in self._shared.owners:
            return
        # An earlier sweep, which was killed, may have saved work already.
        if list_refs(
            self._end.project.git,
            f"refs/heads/ralph/{record.id}-wip",
            f"refs/ralph/snapshots/{record.id}/",
        ):
            return
        if tree is not None and outcome is not None:
            self._end.drop_branch(tree, outcome)
        elif repository and record.branch == f"ralph/{record.id}" and record.base is not None:
            drop_branch_at(self._end.project.git, repository.common_dir, record.branch, record.base)

    def write_report(self, outcome: WorktreeOutcome | None) -> report.SessionReport | None:
        """Write the report of a killed session, or complete the report that it began, and return it.

        A report that cannot be read stays as it is, and a warning names it: it may say that the task is done.
        So may have the one that a finished session could not write, for a full disk: it gets none.

        Arguments:
            outcome: outcome of saving and removing the worktree; ``None`` if it did not exist any more.

        Returns:
            The report; ``None`` if nobody knows how the session ended.

        Raises:
            OSError: the report cannot be written.

        """
        record = self._record
        path = self.directory / "report.json"
        names = (START, OWED, gate_memory.GATE, "output.log")
        for written in (path, *(self.directory / name for name in names)):
            for leftover in files.temporaries(written):
                leftover.unlink()
        remove_private_index(self.directory)
        earlier = report.read(path)
        if isinstance(earlier, report.UnreadableReport):
            log.warning(
                "report.unreadable",
                f"how session {record.session} ended is not known: {earlier.sentence}",
                f"to go on with it: {command('ralph-wrap', 'resume', record.id)}",
            )
            return None
        if earlier is None and record.state == "finished":
            return None
        commits = self._commits
        if record.branch and record.base and self._clone is None:
            with contextlib.suppress(RalphError, OSError):
                commits = self._count(record.base, f"refs/heads/{record.branch}", outcome)
        gate = gate_memory.read(self.directory, self._project)
        own = earlier or report.SessionReport.of(
            record, ended_by="killed", exit_status=KILLED, commits=commits, iterations=record.iteration
        )._replace(
            verify=gate.after(record.iteration) if gate else None, agents=agent_shares.read(self.directory)
        )
        own = with_outcome(own, outcome) if outcome else own._replace(kept=None)
        own = own._replace(unread=tuple(message.text for message in told.waiting(self.directory)))
        if self._teardown is not None:
            own = own._replace(teardown=report_of(self._teardown))
        own.write(path)
        return own

    def _count(self, base: str, ref: str, outcome: WorktreeOutcome | None) -> int | None:
        """Return the number of commits on the branch; without a worktree, nothing has been saved on it."""
        if outcome is None:
            return self._shared.counts.since(base, ref)
        return count_commits(self._end.project.git, base, ref)
