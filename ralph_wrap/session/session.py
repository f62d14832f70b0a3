"""The life of a session: register, isolate or fall back, loop, save, remove, release.

One stack behind one idempotent :meth:`Session.close` releases every resource. It runs at each kind of end:
the end of the ``with`` block, an exception, a signal, the interpreter's exit. Its order is the reverse of the
acquisition:

1. end the processes that the agent left running, run the project's ``teardown`` command, and end what setup
   left running, so that no process writes any more;
2. look at the repository: what would plain git run now that it did not run before (``state.audit``)? Beside
   the next steps, git looks for changes outside the worktree;
3. save and remove the worktree (``worktree.remove.finish`` decides);
4. delete a branch without commits and saved work, push any other one;
5. write the report, move the record, free the id;
6. run the project's ``notify`` command;
7. print how the session ended: a warning after that would be overlooked;
8. refill the pool of warm worktrees.

If a step fails, the session logs its name, and the next steps run all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from ralph_wrap.config import Settings
from ralph_wrap.errors import IsolationError, RalphError
from ralph_wrap.loop import LoopResult
from ralph_wrap.session import agent_loop
from ralph_wrap.session.agent_environment import port_of
from ralph_wrap.session.agent_loop import AgentLoop
from ralph_wrap.session.checkpoint import Checkpoint
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.ending import SessionEnd, SessionState, has_left_worktree, run_step, try_update
from ralph_wrap.session.open_workspace import add_ignore_rule, open_workspace
from ralph_wrap.session.own_files import OwnFiles
from ralph_wrap.session.preflight import Preflight, look_first, planned, taken_in
from ralph_wrap.session.remote import claiming
from ralph_wrap.session.remote.mirror import Mirror
from ralph_wrap.session.workspace import Workspace, recorded
from ralph_wrap.state import session_start
from ralph_wrap.state.audit.guard import SessionGuard
from ralph_wrap.state.claim import SessionClaim, claim_again, claim_id
from ralph_wrap.state.project import Project, find_project, register_session
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.report import SessionReport, banner
from ralph_wrap.state.session_start import SessionStart
from ralph_wrap.system import liveness, privileges, process_tree
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import location
from ralph_wrap.worktree.ownership import write_anchor
from ralph_wrap.worktree.save.private_index import remove_private_index

log = get_logger()


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
        signals: signal handlers that were entered. Without them the session handles INT, TERM, HUP and QUIT
            itself, if it is entered in the main thread.
        whole_process: this process serves only the session. It adopts orphans of the agent, and ends all its
            children with the session. Otherwise the session ends only the processes that have its
            ``RALPH_SESSION_ID`` in their environment.
        agrees: asks a person before the session works without a worktree: shows lines and a question, and
            returns whether the answer is yes.

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
        signals: SignalHandlers | None = None,
        whole_process: bool = False,
        agrees: Callable[[Sequence[str], str], bool] | None = None,
    ) -> None:
        self._settings = settings
        self._name = settings.agent or shlex.join(settings.command)
        self._environ = dict(os.environ if environ is None else environ)
        self._project = project
        self._log = current(self._environ)
        self._log.location = location(settings.project)
        self._signals = signals or SignalHandlers()
        self._own_signals = signals is None
        self._whole_process = whole_process
        self._agrees = agrees
        self._stack = contextlib.ExitStack()  # the steps of the end
        self._closed = False
        self._state = SessionState()
        self._context: SessionContext | None = None
        self._loop: AgentLoop | None = None

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            with self._log.in_use():
                self._open()
        except BaseException as error:
            self._state.failure = error
            self.close()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        self._state.failure = error
        self.close()

    @property
    def workspace(self) -> Workspace:
        """The directory, worktree and branch in which the agent works.

        Raises:
            RuntimeError: the session was not entered.

        """
        if self._state.workspace is None:
            raise RuntimeError("enter the session first: it has no workspace before")
        return self._state.workspace

    @property
    def report(self) -> SessionReport | None:
        """The report; it exists after the end of the ``with`` block."""
        return self._state.report

    def run(self) -> LoopResult:
        """Run the loop to its end.

        Raises:
            AgentError: the agent cannot be executed.
            SetupError: the setup command failed.
            RuntimeError: the session was not entered.

        """
        if self._loop is None:
            raise RuntimeError("enter the session first: it has no workspace before")
        with self._log.in_use():
            return self._loop.run(self._stack)

    def close(self) -> None:
        """Release every resource; a second call does nothing."""
        if not self._closed:
            self._closed = True
            with self._log.in_use():
                self._stack.close()
            atexit.unregister(self.close)

    def _open(self) -> None:
        if self._own_signals and threading.current_thread() is threading.main_thread():
            self._stack.enter_context(self._signals)
        project = self._project or find_project(self._settings.project, self._environ)
        preflight = look_first(self._settings, project)
        project = project._replace(environ=self._ensure_places(project))
        claim, obstacle = _register(self._settings, project, preflight, self._name)
        if self._whole_process:
            self._stack.callback(liveness.bear_name(claim.record.id))
        end = SessionEnd(self._settings, project, claim, self._state, self._signals.cancel)
        self._at_end("refill the pool", lambda: end.refill(self._context))
        self._at_end("close the log", lambda: current().close())
        self._at_end("print how it ended", end.print_end)
        self._at_end("notify", end.notify)
        self._at_end("release the record", lambda: end.release(self._context))
        self._at_end("write the report", lambda: end.write_report(self._context))
        own_files = OwnFiles(project, claim)
        self._at_end("find the session's files", own_files.restore)
        record = claim.record
        self._log.attach(claim.directory / "events.jsonl", agent_id=record.id, session_id=record.session)
        log.event("session.registered", pid=record.pid, project=os.fspath(project.root))
        processes = process_tree.ProcessTree(whole_process=self._whole_process, session=record.session)
        context = self._context = SessionContext(
            settings=self._settings,
            project=preflight.for_session(project, record.session),
            base=preflight.base,
            record=record,
            cancel=self._signals.cancel,
            layout=preflight.layout,
            hidden=preflight.hidden,
            sandbox=preflight.sandbox,
            home=claim.registry,
            agrees=self._agrees,
        )
        mirror = self._claim_on_remote(context, claim)
        workspace = self._state.workspace = open_workspace(context, obstacle)
        if workspace.lock is not None:
            self._stack.callback(workspace.lock.release)
        self._start_work(context, workspace, claim, processes, end, mirror, own_files)

    def _ensure_places(self, project: Project) -> Mapping[str, str]:
        """Check that what is not the project's has a place outside of it; return the environment with a home.

        Raises:
            RalphError: there is none. Without a worktree there would be none either, so nothing falls back.

        """

        def say(message: str, hint: str) -> None:
            log.warning("home.temporary", message, hint)

        environ = privileges.ensure_home(self._environ, (project.root, project.checkout), say)
        if project.git.safe is not None:
            project.git.safe.require_home()
        return environ

    def _claim_on_remote(self, context: SessionContext, claim: SessionClaim) -> Mirror | None:
        """Claim the session on its remote, and give the claim back at the end."""
        if self._settings.remote is None:
            return None
        start = _how_it_started(self._settings, context.project)
        return claiming.begin(context, claim, start, self._state, self._at_end)

    def _start_work(
        self,
        context: SessionContext,
        workspace: Workspace,
        claim: SessionClaim,
        processes: process_tree.ProcessTree,
        end: SessionEnd,
        mirror: Mirror | None,
        own_files: OwnFiles,
    ) -> None:
        """Make the session ready for its agent."""
        if mirror is not None and workspace.tree is None:
            mirror.withdraw()  # nothing of the session goes to the remote
        checkpoint = Checkpoint(context, workspace.tree, processes, own_files, mirror)
        self._at_end("remove the session's index", lambda: remove_private_index(claim.directory))
        clone = context.clone_end
        steps = [("push the branch", lambda: checkpoint.finish(self._signals.cancel))]
        if clone is not None:
            steps.append(("bring the work out of the clone", lambda: end.bring_out(clone)))
            if not clone.is_writable:  # the push comes from the replica, which goes then
                steps.reverse()
        for name, step in steps:
            self._at_end(name, step)
        if (leaks := workspace.leak_monitor) is not None:
            self._at_end("look outside", lambda: end.finish_last_look(leaks))
        if (tree := workspace.tree) is not None:
            self._at_end("drop an unused branch", lambda: end.drop_unused_branch(context, tree))
            self._at_end("remove the worktree", lambda: end.leave(context, tree))
            self._at_end("look into the submodules", checkpoint.look_into_submodules)
        guard = self._begin_guard(context.project, claim.record)  # not called yet in the plain root
        self._at_end("look at the repository", guard.finish)
        if leaks is not None:
            self._at_end("begin to look outside", lambda: end.start_last_look(leaks))
        if self._whole_process:
            process_tree.become_subreaper()
        self._at_end("find the session's files", own_files.restore)
        own_files.steps += [
            lambda: _write_start(self._settings, context.project, claim),
            lambda: add_ignore_rule(context),
        ]
        own_files.restore()
        _write_start(self._settings, context.project, claim)
        _hand_over(context, claim, workspace)
        _introduce(claim, workspace)
        self._loop = agent_loop.AgentLoop(
            context, workspace, claim, processes, checkpoint, self._signals, self._state, own_files
        )

    def _begin_guard(self, project: Project, record: SessionRecord) -> SessionGuard:
        """Look at the repository before an agent works; only once."""
        if self._state.guard is None:
            guard = self._state.guard = SessionGuard(project, record.session)
            guard.begin()
        return self._state.guard

    def _at_end(self, name: str, step: Callable[[], object]) -> None:
        """Add a step of the end; it runs before all that were added earlier."""
        self._stack.callback(run_step, name, step)


def _register(
    settings: Settings, project: Project, preflight: Preflight, agent: str
) -> tuple[SessionClaim, IsolationError | None]:
    def complete(record: SessionRecord) -> SessionRecord:
        return planned(record, settings, project, preflight, agent)

    def claim(registry: Registry) -> SessionClaim:
        now, owner = time.time(), liveness.myself()
        if wanted := settings.resumes.rpartition("-")[2] or settings.agent_id:
            return claim_again(registry, wanted, owner, now, complete)
        return claim_id(registry, owner, taken_in(project, settings.remote), now, complete)

    return register_session(project, claim)


def _how_it_started(settings: Settings, project: Project) -> SessionStart | None:
    """Return how the session was started, for ``ralph-wrap resume``; ``None`` if a program started it."""
    if settings.given is None:
        return None
    options = dict(settings.given)
    if settings.agent:
        options["agent"] = settings.agent
    if settings.prompt_file is not None and "prompt_file" in options:
        options["prompt_file"] = session_start.relative(settings.prompt_file.absolute(), project)
    return session_start.SessionStart(
        options,
        () if settings.agent else settings.command,
        session_start.relative(project.checkout / project.prefix, project),
    )


def _write_start(settings: Settings, project: Project, claim: SessionClaim) -> None:
    """Write how the session was started; without this file, ``ralph-wrap resume`` asks for the agent."""
    start = _how_it_started(settings, project)
    if start is None:
        return
    try:
        session_start.write(start, claim.directory, project)
    except OSError as error:
        log.event("start.not_written", reason=str(error))


def _hand_over(context: SessionContext, claim: SessionClaim, workspace: Workspace) -> None:
    """Record that the agent may write to the workspace from now on; this comes before its start.

    A session in the plain root has no branch in its record, unless a worktree of it is left. ``rm`` and
    ``sweep`` find that worktree by branch and base.

    Raises:
        RalphError: the record cannot be written.

    """
    now, port = recorded(claim.record, workspace), port_of(context)
    if workspace.tree is None:
        names = {} if has_left_worktree(context) else {"branch": None, "base": None, "branch_created": False}
        try_update(claim, state="running", workspace=now.workspace, port=port, **names)
        return
    try:
        claim.update(
            state="running",
            branch=now.branch,
            base=now.base,
            workspace=now.workspace,
            branch_created=now.branch_created,
            worktree_inode=now.worktree_inode,
            worktree_born=now.worktree_born,
            restored=workspace.restored,
            port=port,
        )
        write_anchor(workspace.tree.registration, workspace.tree.path)
    except OSError as error:
        # Without this entry, a sweep after SIGKILL treats the agent's work as an unfinished checkout.
        raise RalphError(
            f"the session's record cannot be written: {error.strerror}", "is the disk full?"
        ) from error


def _introduce(claim: SessionClaim, workspace: Workspace) -> None:
    record = recorded(claim.record, workspace)
    output = os.fspath(claim.directory / "output.log")
    log.block(
        "session.started",
        f"session {record.session} works in {record.workspace}",
        banner(record, output),
        title=record.title,
        branch=record.branch,
        workspace=record.workspace,
        output=output,
    )
    current().window_title(record.title or record.agent)
