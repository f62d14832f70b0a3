"""The end of a session, step by step: worktree, branch, report, record, pool."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

from ralph_wrap.config import OnLeak, Settings
from ralph_wrap.errors import GitError, RalphError, explained
from ralph_wrap.git import Git, count_commits, has_ref
from ralph_wrap.loop import Gate, LoopResult, OutputListener, Turns
from ralph_wrap.session import exit_report
from ralph_wrap.session.clone_end import CloneEnd
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.notify import (
    LEAKED,
    notification_of,
    notification_while,
    notify,
    summary_of,
)
from ralph_wrap.session.teardown import TeardownEnd, report_of
from ralph_wrap.session.thin_snapshots import thin
from ralph_wrap.session.workspace import Workspace, recorded
from ralph_wrap.state import told
from ralph_wrap.state.audit.guard import SessionGuard
from ralph_wrap.state.claim import SessionClaim
from ralph_wrap.state.project import Project
from ralph_wrap.state.report import SessionReport, TakenUp, ending, how_it_ended, summary
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import Commands, current, get_logger, lines_of, traceback_of
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.worktree.leaks.monitor import LeakMonitor
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, read_mark
from ralph_wrap.worktree.remove import WorktreeOutcome
from ralph_wrap.worktree.thinning import superseded_at_end

log = get_logger()

_READER_PATIENCE = 60.0  # seconds to wait at the end for the reader of our stdout


class SessionState:
    """What has happened in a session so far; its end reads it.

    Attributes:
        workspace: where the agent works; ``None`` before it was made.
        agent_started: an agent has been executed at least once.
        survivors: pids of the agent's processes that could not be killed.
        result: how the loop ended.
        failure: the exception that ended the session.
        outcome: what became of the worktree.
        relay: copies the agent's output.
        listener: reads the agent's output.
        gate: proves that the work is done; ``None`` without one.
        teardown: what became of the teardown; ``None`` without one.
        turns: the agents, and what each has done.
        report: the report, once it is written.
        commits: the number of commits on the branch of a clone, which may not be in the repository.
        stuck: the work of a clone is still in its replica; the next sweep brings it out.
        guard: looks at the repository.
        taken_up: what came back from a snapshot of another machine.
        leak_told: a person was told that something has changed outside the worktree.

    """

    def __init__(self) -> None:
        self.workspace: Workspace | None = None
        self.agent_started = False
        self.survivors: tuple[int, ...] = ()
        self.result: LoopResult | None = None
        self.failure: BaseException | None = None
        self.outcome: WorktreeOutcome | None = None
        self.relay: OutputRelay | None = None
        self.listener: OutputListener | None = None
        self.gate: Gate | None = None
        self.teardown: TeardownEnd | None = None
        self.turns: Turns | None = None
        self.report: SessionReport | None = None
        self.commits: int | None = None
        self.stuck = False
        self.guard: SessionGuard | None = None
        self.taken_up: TakenUp | None = None
        self.leak_told = False

    def cost(self) -> float | None:
        """Return the cost that the agent has reported, in US dollars; ``None`` if it reported none."""
        spent = self.listener.spent if self.listener else None
        return spent.cost if spent else None


class SessionEnd:
    """The steps at the end of a session. Each one works whatever has happened before it.

    Arguments:
        settings: the settings of the session.
        claim: the session's record, and its lock.
        state: what has happened.
        cancel: the signals so far.

    """

    def __init__(
        self,
        settings: Settings,
        project: Project,
        claim: SessionClaim,
        state: SessionState,
        cancel: CancelToken,
    ) -> None:
        self._settings = settings
        self._project = project
        self._claim = claim
        self._state = state
        self._cancel = cancel

    def start_last_look(self, monitor: LeakMonitor) -> None:
        """Start to look for changes outside by the last iteration; git works while the worktree is saved."""
        result = self._state.result
        if result is not None and result.iterations and self._settings.on_leak is OnLeak.REPORT:
            monitor.start_look()

    def finish_last_look(self, monitor: LeakMonitor) -> None:
        """Log these changes."""
        if self._state.result is not None:
            beside = " or teardown" if self._state.teardown else ""
            monitor.finish_look(f"during iteration {self._state.result.iterations}{beside}")

    def leave(self, context: SessionContext, tree: LinkedWorktree) -> None:
        """Save and remove the worktree."""
        try_update(self._claim, state="ending")
        # If no agent ran, the worktree has no work to keep for later.
        end = context.end
        policy = end.policy._replace(background=end.policy.background and self._state.agent_started)
        self._state.outcome = end._replace(policy=policy, record=self._claim.record).leave(
            tree, self._claim.registry.trash, self._state.survivors, cancel=self._cancel
        )
        saved = self._state.outcome.saved
        is_whole = saved is not None and not saved.damage and not self._state.outcome.kept
        is_whole = is_whole and not self._state.outcome.later and not self._state.outcome.lost
        if is_whole and not tree.clone:
            thin(tree, context.project.git, self._claim.record, superseded_at_end)

    def drop_unused_branch(self, context: SessionContext, tree: LinkedWorktree) -> None:
        """Delete the branch if it has no work, and the user wants that or no agent has run."""
        outcome = self._state.outcome
        if outcome is not None and (self._settings.drop_empty or not self._state.agent_started):
            context.end.drop_branch(tree, outcome)

    def bring_out(self, clone: CloneEnd) -> None:
        """Bring the work out of the replica of a clone, and remove the replica if the clone is gone.

        Raises:
            RalphError: the work cannot be brought out; the replica stays, and the next sweep tries again.
            OSError: the same.

        """
        outcome = self._state.outcome
        self._state.commits = clone.commits()
        self._state.stuck = True
        clone.bring_out()
        self._state.stuck = False
        if outcome is not None and not outcome.kept and not outcome.later:
            clone.remove_replica()

    def write_report(self, context: SessionContext | None) -> None:
        """Write the report, and log what made the session fail.

        Raises:
            OSError: it cannot be written.

        """
        failure = self._state.failure
        if isinstance(failure, RalphError):
            log.event("session.failed", reason=failure.message, hint=failure.hint)
        elif failure is not None:
            log.event("session.failed", traceback=traceback_of(failure))
        report = self._make_report(context)
        if context is not None:
            ahead = exit_report.commits_ahead(context.project, self._settings.main, report)
            report = report._replace(ahead=ahead).proven(
                context.record.task, self._claim.directory, context.project
            )
        self._state.report = report
        if self._claim.directory.is_symlink():
            raise OSError(errno.ELOOP, "it was replaced by a symlink", str(self._claim.directory))
        report.write(self._claim.directory / "report.json")

    def _make_report(self, context: SessionContext | None) -> SessionReport:
        state = self._state
        workspace = state.workspace
        tree = workspace.tree if workspace else None
        commits, has_branch = state.commits, False
        if tree is not None and context is not None and not tree.clone:
            with contextlib.suppress(GitError, OSError):
                commits = self._count_commits(context.project.git, tree)
                has_branch = commits is None and has_ref(context.project.git, f"refs/heads/{tree.branch}")
        result = (state.result.ended_by, state.result.status) if state.result else None
        # The signals are read last: one may arrive until now.
        ended_by, status = how_it_ended(
            result, self._cancel.first, state.failure, agent_started=state.agent_started
        )
        report = SessionReport.of(
            recorded(self._claim.record, workspace),
            ended_by=ended_by,
            exit_status=status,
            commits=commits,
            iterations=self._claim.record.iteration if state.agent_started else 0,
            spent=state.listener.spent if state.listener else None,
            has_branch=has_branch,
        )._replace(
            error=str(state.failure) if state.failure else None,
            kept="it could not be finished, see events.jsonl" if tree else None,
            fallback=workspace.fallback if workspace else None,
            leaks=workspace.leak_monitor.found if workspace and workspace.leak_monitor else None,
            tampering=state.guard.found if state.guard else None,
            taken_up=state.taken_up,
            question=(state.result.question or None) if state.result else None,
            verify=state.gate.report() if state.gate else None,
            unread=tuple(message.text for message in told.waiting(self._claim.directory)),
            teardown=report_of(state.teardown),
            agents=state.turns.report() if state.turns else None,
        )
        if state.result and state.result.logged_out:
            report = report._replace(error=state.result.logged_out)
        return exit_report.with_outcome(report, state.outcome) if state.outcome else report

    def _count_commits(self, git: Git, tree: LinkedWorktree) -> int | None:
        """Count the commits of the session's branch; ``None`` if it does not exist, or one is damaged."""
        branch = f"refs/heads/{tree.branch}"
        saved = self._state.outcome.saved if self._state.outcome else None
        head = saved.head if saved else None
        stays = self._state.agent_started and not self._settings.drop_empty
        if stays and head is not None and (head.branch, head.commit) == (branch, tree.base):
            return 0
        return count_commits(git, tree.base, branch)

    def release(self, context: SessionContext | None) -> None:
        """Free the agent id, or leave the session to the next sweep if its worktree still has to go."""
        outcome, report = self._state.outcome, self._state.report
        is_unfinished = context is not None and self._state.workspace is None and has_left_worktree(context)
        if self._state.stuck or is_unfinished or (outcome is not None and outcome.later):
            self._claim.leave()
        elif self._state.agent_started or (outcome is not None and outcome.kept):
            self._claim.release()
        elif report is not None and report.branch is not None:
            self._claim.release(iteration=0)
        else:  # the planned branch may be one of the user, in which the session never worked
            self._claim.release(iteration=0, branch=None)

    def print_end(self) -> None:
        """Wait for the readers of the output, and print the summary of the report."""
        if self._state.relay is not None:
            self._give_readers_time(self._state.relay)
        current().tell_repeated()
        if (report := self._state.report) is not None:
            text = summary(report, self._claim.directory / "output.log", current().location)
            log.block("session.released", ending(report), text, **report.to_dict())
        current().window_title("")
        if report is not None and not self._settings.quiet_terminal:
            current().notify(summary_of(report), self._project.environ)

    def notify(self) -> None:
        """Tell a person of the end; the work is saved, and the record released."""
        if (report := self._state.report) is None:
            return
        told = [notification_of(report)]
        monitor = self._state.workspace.leak_monitor if self._state.workspace else None
        if monitor and monitor.has_found and not self._state.leak_told and report.ended_by != "leak":
            told.insert(0, notification_while(self._claim.record, "leak", LEAKED))
        for one in told:
            notify(self._settings, self._project, one, lambda: self._cancel.out_of_time)

    def _give_readers_time(self, relay: OutputRelay) -> None:
        if lost := relay.flush(_READER_PATIENCE, cancel=self._cancel):
            log.warning("output.given_up", f"{lost} bytes of output were not read: see output.log")
        relay.close()

    def refill(self, context: SessionContext | None) -> None:
        """Fill the pool in the background; after a TERM, no new process starts."""
        if context is not None and self._state.workspace is not None and not self._cancel.terms:
            context.pool.refill()


def has_left_worktree(context: SessionContext) -> bool:
    """Return whether the worktree of a session is there: its start failed, and so did its removal."""
    if context.project.repository is None:
        return False
    common_dir = context.replica or context.project.repository.common_dir
    mark = read_mark(common_dir / "worktrees" / context.path.name)
    return mark == SessionMark(context.record.session, context.branch) and os.path.lexists(context.path)


def try_update(claim: SessionClaim, **changes: Any) -> None:
    """Write to the record of a session; a full disk must not end the loop."""
    try:
        claim.update(**changes)
    except OSError as error:
        log.event("record.not_written", reason=str(error))


def run_step(name: str, step: Callable[[], object]) -> None:
    """Run one step of the end; if it fails, the log names it, and the next steps run all the same."""
    try:
        step()
    except (OSError, RalphError) as error:
        expected = explained(error) if isinstance(error, OSError) else error
        hints = lines_of(expected.hint) if expected.hint else []
        log.error(
            "step.failed",
            f"could not {name}: {expected.message}",
            Commands.of(*hints, "the work is where it was"),
            step=name,
        )
        log.event("step.trace", step=name, traceback=traceback_of(error))  # for the event log alone
    except Exception as error:  # noqa: BLE001 -- the next steps must run, whatever this one met
        log.error(
            "step.failed",
            f"could not {name}: {error!r}",
            "please report this, with the traceback; the work is where it was",
            step=name,
            traceback=traceback_of(error),
        )
