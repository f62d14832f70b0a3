"""The life of a session: register, isolate or fall back, loop, save, remove, release.

One stack behind one idempotent :meth:`Session.close` releases every resource. It runs at each kind of end:
the end of the ``with`` block, an exception, a signal, the interpreter's exit. Its order is the reverse of the
acquisition:

1. end the processes that the agent left running, so that no process writes any more;
2. save and remove the worktree (``worktree.remove.finish`` decides);
3. delete a branch without commits and saved work, push any other one;
4. write the report, move the record, free the id;
5. print how the session ended.

If a step fails, the session logs its name, and the next steps run all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shlex
import threading
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from ralph_wrap.config import Settings
from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import count_commits
from ralph_wrap.session.checkpoint import Checkpoint
from ralph_wrap.session.exit_report import with_outcome
from ralph_wrap.session.preflight import look_first, planned, taken_ids
from ralph_wrap.session.workspace import SessionContext, Workspace, recorded
from ralph_wrap.state import stop_request
from ralph_wrap.state.project import find_project, register_session
from ralph_wrap.state.report import SessionReport, banner, ending, how_it_ended, summary
from ralph_wrap.system import files, liveness, privileges, process_tree
from ralph_wrap.system.log import Log, on_stderr, traceback_of
from ralph_wrap.system.signals import SignalHandlers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from ralph_wrap.loop import IterationContext, LoopResult, OutputListener
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.output_relay import OutputRelay
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.remove import WorktreeOutcome

_READER_PATIENCE = 60.0  # seconds to wait at the end for the reader of our stdout


class Session:
    """One loop of an agent, isolated in its own worktree; it loses no work, at any kind of end.

    ::

        with Session(Settings(project=Path("."), command=("./agent.sh",))) as session:
            session.workspace.path
            session.run()
        session.report

    Arguments:
        settings: the settings of the session.
        environ: the environment; normally ``os.environ``.
        project: the project, if it is known already.
        log: logs what happens; normally on our stderr.
        signals: signal handlers that were entered. Without them the session handles INT, TERM, HUP and QUIT
            itself, if it is entered in the main thread.
        whole_process: this process serves only the session. It adopts orphans of the agent, and ends all its
            children with the session. Otherwise the session ends only the processes that have its
            ``RALPH_SESSION_ID`` in their environment.

    Attributes:
        report: the report; it exists after the end of the ``with`` block.

    Raises:
        UsageError: a setting is wrong; the session created nothing.
        RalphError: the session cannot start; only its report is left.

    """

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str] | None = None,
        project: Project | None = None,
        log: Log | None = None,
        signals: SignalHandlers | None = None,
        whole_process: bool = False,
    ) -> None:
        self._settings = settings
        self._name = settings.agent or shlex.join(settings.command)
        self._environ = dict(os.environ if environ is None else environ)
        self._project = project
        self._log = log or on_stderr(self._environ)
        self._signals = signals or SignalHandlers()
        self._own_signals = signals is None
        self._whole_process = whole_process
        self._stack = contextlib.ExitStack()
        self._closed = False
        self._agent_started = False
        self._survivors: tuple[int, ...] = ()
        self._workspace: Workspace | None = None
        self._result: LoopResult | None = None
        self._failure: BaseException | None = None
        self._outcome: WorktreeOutcome | None = None
        self._relay: OutputRelay | None = None
        self._listener: OutputListener | None = None
        self.report: SessionReport | None = None

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            self._open()
        except BaseException as error:
            self._failure = error
            self.close()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        self._failure = error
        self.close()

    @property
    def workspace(self) -> Workspace:
        """The directory, worktree and branch in which the agent works.

        Raises:
            RuntimeError: the session was not entered.

        """
        if self._workspace is None:
            raise RuntimeError("enter the session first: it has no workspace before")
        return self._workspace

    def run(self) -> LoopResult:
        """Run the loop to its end.

        Raises:
            AgentError: the agent cannot be executed.
            SetupError: the setup command failed.

        """
        from ralph_wrap.loop import Driver, OutputListener  # noqa: PLC0415 -- see load_the_rest
        from ralph_wrap.system.output_relay import OutputRelay  # noqa: PLC0415

        listener = self._listener = OutputListener(self._settings)
        output_log = self._claim.directory / "output.log"
        lock = self._claim.lock_for_agents()
        self._stack.callback(lock.release, unlink=True)
        self._relay = OutputRelay(output_log, (1, 2), listener.hear, self._tell_trouble)
        self._stack.callback(
            self._step,
            "end the agent's processes",
            lambda: self._end_leftovers(self._settings.grace, asked=False),
        )
        driver = Driver(
            self._settings, self._iteration_context(lock), self._relay, listener, self._signals, self._log
        )
        self._result = driver.run()
        return self._result

    def close(self) -> None:
        """Release every resource; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._stack.close()
            atexit.unregister(self.close)

    def _open(self) -> None:
        if self._own_signals and threading.current_thread() is threading.main_thread():
            self._stack.enter_context(self._signals)
        project = self._project or find_project(self._settings.project, self._environ)
        preflight = look_first(self._settings, project)
        self._environ = privileges.ensure_home(self._environ)
        project = self._project = project._replace(environ=self._environ)
        self._claim, obstacle = register_session(
            project,
            lambda registry: registry.claim(
                liveness.myself(),
                lambda name="": taken_ids(project, name),
                datetime.now(UTC),
                lambda record: planned(record, self._settings, project, preflight, self._name),
            ),
        )
        self._stack.callback(self._step, "refill the pool", self._refill)
        self._stack.callback(self._step, "tell how it ended", self._tell_end)
        self._stack.callback(self._step, "release the record", self._release)
        self._stack.callback(self._step, "write the report", self._write_report)
        record = self._claim.record
        self._log.attach(
            self._claim.directory / "events.jsonl", agent_id=record.id, session_id=record.session
        )
        self._log.event("session.registered", pid=record.pid, project=os.fspath(project.root))
        self._process_tree = process_tree.ProcessTree(
            whole_process=self._whole_process, session=record.session
        )
        self._context = SessionContext(
            settings=self._settings,
            project=preflight.for_session(project, record.session),
            base=preflight.base,
            record=record,
            log=self._log,
            cancel=self._signals.cancel,
            meanwhile=lambda: load_the_rest(self._log),
            layout=preflight.layout,
            hidden=preflight.hidden,
        )
        self._workspace = workspace = self._context.open(obstacle)
        if workspace.lock is not None:
            self._stack.callback(workspace.lock.release)
        self._checkpoint = Checkpoint(self._context, workspace.tree, self._process_tree)
        self._stack.callback(self._step, "push the branch", self._push)
        if (tree := workspace.tree) is not None:
            self._stack.callback(self._step, "drop an unused branch", lambda: self._drop_unused_branch(tree))
            self._stack.callback(self._step, "remove the worktree", lambda: self._leave(tree))
        load_the_rest(self._log)  # a session in the plain root has not called it yet
        if self._whole_process:
            process_tree.become_subreaper()
        self._hand_over()
        self._introduce()

    def _hand_over(self) -> None:
        """Record that the agent may write to the workspace from now on; this comes before its start."""
        now = recorded(self._claim.record, self.workspace)
        if self.workspace.tree is None:
            self._note(state="running", branch=None, base=None, workspace=now.workspace)
            return
        try:
            self._claim.update(state="running", branch=now.branch, base=now.base, workspace=now.workspace)
        except OSError as error:
            # Without this entry, a sweep after SIGKILL treats the agent's work as an unfinished checkout.
            raise RalphError(
                f"the session's record cannot be written: {error.strerror}", "is the disk full?"
            ) from error

    def _introduce(self) -> None:
        record = recorded(self._claim.record, self.workspace)
        output = os.fspath(self._claim.directory / "output.log")
        self._log.block(
            "session.started",
            f"session {record.session} works in {record.workspace}",
            banner(record, output),
            branch=record.branch,
            workspace=record.workspace,
            output=output,
        )

    def _iteration_context(self, lock: files.FileLock) -> IterationContext:
        from ralph_wrap.loop import IterationContext  # noqa: PLC0415 -- see load_the_rest
        from ralph_wrap.worktree import fingerprints  # noqa: PLC0415

        workspace = self.workspace
        place = self._context.project
        git = workspace.git(self._context.project.git) if place.repository is not None else None
        return IterationContext(
            directory=self._claim.directory,
            inherited=lock.descriptor,
            cwd=workspace.directory(place.prefix),
            isolated=workspace.tree is not None,
            environ=self._context.agent_environment(workspace),
            fingerprint=lambda: fingerprints.fingerprint(git, workspace.path),
            pristine=fingerprints.pristine(workspace.base) if workspace.base else "",
            begin=lambda number: self._note(iteration=number),
            spawned=self._note_agent,
            end_leftovers=lambda grace: self._end_leftovers(grace, asked=True),
            process_tree=self._process_tree,
            hand_over=self._checkpoint.after,
            look_outside=workspace.look_outside,
        )

    def _note(self, **changes: Any) -> None:
        """Write to the record; a full disk must not end the loop."""
        try:
            self._claim.update(**changes)
        except OSError as error:
            self._log.event("record.not_written", reason=str(error))

    def _note_agent(self) -> None:
        self._agent_started = True

    def _end_leftovers(self, grace: float, *, asked: bool) -> None:
        def urgent() -> bool:
            return self._signals.cancel.count > 1 or stop_request.is_urgent(self._claim.directory)

        ended = self._process_tree.end(grace, urgent, asked=asked)
        if ended.signalled:
            self._log.event("processes.ended", count=ended.signalled)
        self._survivors = ended.survivors
        if ended.survivors:
            pids = ", ".join(map(str, ended.survivors))
            self._log.warning("processes.survived", f"processes that cannot be ended: {pids}")

    def _leave(self, tree: LinkedWorktree) -> None:
        self._note(state="ending")
        # If no agent ran, the worktree has no work to keep for later.
        end = self._context.end
        policy = end.policy._replace(background=end.policy.background and self._agent_started)
        self._outcome = end._replace(policy=policy).leave(
            tree, self._claim.registry.trash, self._survivors, cancel=self._signals.cancel
        )

    def _release(self) -> None:
        if self._outcome is not None and self._outcome.later:
            self._claim.leave()
        else:
            self._claim.release()

    def _refill(self) -> None:
        if self._workspace is not None and not self._signals.cancel.terms:  # after TERM, start no new process
            self._context.refill()

    def _push(self) -> None:
        self._checkpoint.finish(self._signals.cancel)

    def _drop_unused_branch(self, tree: LinkedWorktree) -> None:
        if self._outcome is not None and (self._settings.drop_empty or not self._agent_started):
            self._context.end.drop_branch(tree, self._outcome)

    def _write_report(self) -> None:
        if isinstance(self._failure, RalphError):
            self._log.event("session.failed", reason=self._failure.message, hint=self._failure.hint)
        elif self._failure is not None:
            self._log.event("session.failed", traceback=traceback_of(self._failure))
        self.report = self._make_report()
        if self._claim.directory.is_symlink():
            raise OSError(errno.ELOOP, "it was replaced by a symlink", str(self._claim.directory))
        files.replace(self._claim.directory / "report.json", self.report.to_json())

    def _tell_end(self) -> None:
        if self._relay is not None:
            self._give_readers_time(self._relay)
        if self.report is not None and self._project is not None:
            text = summary(
                self.report, self._project.root, self._claim.directory / "output.log", self._settings.typed
            )
            self._log.block("session.released", ending(self.report), text, **self.report.to_dict())
        self._log.close()

    def _make_report(self) -> SessionReport:
        workspace = self._workspace
        tree = workspace.tree if workspace else None
        commits = None
        if tree is not None:
            with contextlib.suppress(GitError, OSError):
                commits = count_commits(self._context.project.git, tree.base, f"refs/heads/{tree.branch}")
        cancel = self._signals.cancel  # read last: a signal may arrive until now
        result = (self._result.ended_by, self._result.status) if self._result else None
        ended_by, status = how_it_ended(
            result, cancel.first, self._failure, agent_started=self._agent_started
        )
        report = SessionReport.of(
            recorded(self._claim.record, workspace),
            ended_by=ended_by,
            exit_status=status,
            commits=commits,
            iterations=self._claim.record.iteration if self._agent_started else 0,
            spent=self._listener.spent if self._listener else None,
        )._replace(
            error=str(self._failure) if self._failure else None,
            kept="it could not be finished, see events.jsonl" if tree else None,
            fallback=workspace.fallback if workspace else None,
            leaks=workspace.leak_monitor.found if workspace and workspace.leak_monitor else None,
        )
        return with_outcome(report, self._outcome) if self._outcome else report

    def _give_readers_time(self, relay: OutputRelay) -> None:
        if lost := relay.flush(_READER_PATIENCE, cancel=self._signals.cancel):
            self._log.warning("output.given_up", f"{lost} bytes of output were not read: see output.log")
        relay.close()

    def _tell_trouble(self, what: str) -> None:
        if what == "log":
            self._log.warning(
                "output_log.failed", "output.log cannot be written any more", "is the disk full?"
            )
        else:
            self._log.event("reader.left", stream=what)

    def _step(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 -- the next steps must run, whatever this one met
            self._log.error(
                "step.failed",
                f"could not {name}: {error}",
                "the work is where it was; see events.jsonl",
                traceback=traceback_of(error),
            )


def load_the_rest(log: Log) -> None:
    """Load what can wait for a worktree, but no later: while an agent works we may be installed anew."""
    from ralph_wrap.worktree.loading import load_all  # noqa: PLC0415 -- it, too

    for name in (
        "ctypes",
        "ralph_wrap.loop",
        "ralph_wrap.session.worktree_end",
        "ralph_wrap.system.output_relay",
    ):
        import_module(name)
    load_all()
    log.load()
