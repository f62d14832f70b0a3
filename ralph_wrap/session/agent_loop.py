"""The loop of a session: what it runs with, and the end of the processes that its agent leaves."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

from ralph_wrap.config import OnLeak
from ralph_wrap.loop import Driver, IterationContext, LoopResult, OutputListener
from ralph_wrap.loop.project_command import shown
from ralph_wrap.session.agent_environment import agent_environment, port_of
from ralph_wrap.session.checkpoint import Checkpoint
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.ending import SessionState, run_step, try_update
from ralph_wrap.session.notify import LEAKED, notification_while, notify
from ralph_wrap.session.owed_teardown import OWED, OwedTeardown
from ralph_wrap.session.own_files import OwnFiles
from ralph_wrap.session.sandbox.start import Sandbox
from ralph_wrap.session.teardown import LATER, SessionShare, Teardown, TeardownEnd
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state import gate_memory, told
from ralph_wrap.state.claim import SessionClaim
from ralph_wrap.state.gate_memory import RememberedGate
from ralph_wrap.state.project import registries
from ralph_wrap.state.session_files import waiting_for_room
from ralph_wrap.state.stop_request import SessionHurry, StopRequests
from ralph_wrap.system.files import FileLock
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.process import ProcessGroup, ProcessSpec
from ralph_wrap.system.process_tree import ProcessTree
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command
from ralph_wrap.worktree.save import fingerprints

log = get_logger()

_LOG_EVENTS = {"log again": "output_log.written_again", "shorter log": "output_log.shortened"}


class AgentLoop:
    """Runs the loop of one session in its workspace.

    Arguments:
        context: of the session.
        workspace: where the agent works.
        claim: the session's record, and its lock.
        process_tree: the agent's processes.
        checkpoint: keeps the work of each iteration.
        signals: entered; they end the loop.
        state: notes what has happened.
        own_files: of the session, which a user may delete.

    """

    def __init__(
        self,
        context: SessionContext,
        workspace: Workspace,
        claim: SessionClaim,
        process_tree: ProcessTree,
        checkpoint: Checkpoint,
        signals: SignalHandlers,
        state: SessionState,
        own_files: OwnFiles,
    ) -> None:
        self._context = context
        self._workspace = workspace
        self._claim = claim
        self._process_tree = process_tree
        self._checkpoint = checkpoint
        self._signals = signals
        self._state = state
        self._files = own_files
        self._owes_teardown = False

    def run(self, stack: contextlib.ExitStack) -> LoopResult:
        """Run the loop to its end.

        Arguments:
            stack: of the session; it ends the agent's processes before anything else.

        Raises:
            AgentError: the agent cannot be executed.
            SetupError: the setup command failed.

        """
        settings = self._context.settings
        listener = self._state.listener = OutputListener(settings, settings.until, settings.blocked)
        lock = self._claim.lock_for_agents(_git_directory(self._workspace))
        stack.callback(lock.release, unlink=True)
        start = self._start(stack)
        relay = self._state.relay = OutputRelay(
            self._claim.directory / "output.log",
            (1, 2),
            listener.hear,
            self._log_trouble,
            settings.max_output,
        )
        self._files.steps.append(relay.write_log_again)
        stack.callback(
            run_step,
            "end the agent's processes",
            lambda: self._end_processes(settings.grace, signalled=False),
        )
        requests = StopRequests(
            self._claim.directory,
            restore=self._files.restore,
            signalled=lambda: self._signals.last_iteration,
        )
        self._take_messages_over()
        context = self._iteration_context(requests, lock, start)
        if settings.teardown and self._workspace.tree is None:
            log.event(
                "teardown.skipped", f"teardown is not run in the project itself: {shown(settings.teardown)}"
            )
        elif settings.teardown:
            self._files.steps.append(self._write_teardown)
            context = context._replace(start=self._owing(start))
            stack.callback(run_step, "run teardown", lambda: self._tear_down(context, relay))
        driver = Driver(settings, context, relay, listener, self._signals)
        self._state.gate, self._state.turns = driver.gate, driver.turns
        self._state.result = driver.run()
        return self._state.result

    def _start(self, stack: contextlib.ExitStack) -> Callable[[ProcessSpec], ProcessGroup]:
        """Return what starts a command of the agent: in a sandbox, if the user wants one."""
        backend = self._context.sandbox
        if backend is None:
            return ProcessGroup
        sandbox = Sandbox(self._context, self._workspace, backend, self._process_tree)
        return stack.enter_context(sandbox).start

    def _owing(self, start: Callable[[ProcessSpec], ProcessGroup]) -> Callable[[ProcessSpec], ProcessGroup]:
        """Return a function that starts a command, and before the first one records the teardown."""

        def owing(spec: ProcessSpec) -> ProcessGroup:
            if not self._owes_teardown:
                self._owes_teardown = True
                self._write_teardown()
            return start(spec)

        return owing

    def _write_teardown(self) -> None:
        if not self._owes_teardown:
            return
        owed = OwedTeardown.of_session(self._context, self._workspace, self._claim.record.port)
        try:
            owed.write(self._claim.directory, self._context.project)
        except OSError as error:
            log.event("teardown.not_written", reason=str(error))

    def _tear_down(self, context: IterationContext, relay: OutputRelay) -> None:
        """End the agent's processes, but none that setup has left running, and run the teardown."""
        settings = self._context.settings
        if not self._owes_teardown:
            return
        if settings.keep_worktree or (settings.background and self._state.agent_started):
            self._state.teardown = TeardownEnd(LATER, settings.teardown, reason="the worktree stays")
            log.event("teardown.later", f"teardown runs at the end of the worktree: {self._removal}")
            return
        self._process_tree.signal(signal.SIGTERM, except_group=0)
        self._end_processes(settings.grace, signalled=True)
        teardown = Teardown(
            settings.teardown,
            self._context._replace(record=self._claim.record),
            self._workspace,
            context.environ,
            self._claim.directory / "output.log",
            context.inherited,
        )
        share = SessionShare(settings.teardown_timeout, self._signals.cancel, self._claim.directory)
        ended = self._state.teardown = teardown.run(relay, share, self._process_tree)
        if ended.result != LATER:
            self._owes_teardown = False
            (self._claim.directory / OWED).unlink(missing_ok=True)

    @property
    def _removal(self) -> str:
        return command("ralph-wrap", "rm", self._claim.record.id)

    def _iteration_context(
        self, requests: StopRequests, lock: FileLock, start: Callable[[ProcessSpec], ProcessGroup]
    ) -> IterationContext:
        workspace, project = self._workspace, self._context.project
        return IterationContext(
            directory=self._claim.directory,
            inherited=lock.descriptor,
            cwd=workspace.directory(project.prefix),
            wanted=workspace.path / project.prefix,
            isolated=workspace.tree is not None,
            environ=agent_environment(
                self._context, workspace, self._claim.record.port or port_of(self._context)
            ),
            requests=requests,
            inbox=told.Inbox(self._claim.directory),
            look=self._look,
            pristine=_pristine(workspace),
            begin=self._begin,
            spawned=self._note_agent,
            end_leftovers=lambda grace: self._end_processes(grace, signalled=True),
            process_tree=self._process_tree,
            hand_over=self._checkpoint.after,
            begin_to_look_outside=workspace.begin_to_look_outside,
            look_outside=self._look_outside,
            mend=lambda: workspace.tree is None or self._context.end.mend(workspace.tree),
            start=start,
            beat=lambda must_end: self._checkpoint.beat(self._claim.record.iteration, must_end),
            without_room=self._checkpoint.without_room,
            interrupted_when=self._checkpoint.interruption.when,
            waiting_for_room=lambda: waiting_for_room(self._claim.directory),
            notify=self._notify,
            remember_gate=self._remember_gate,
            earlier_gate=self._earlier_gate(),
        )

    def _take_messages_over(self) -> None:
        """Have the first prompt begin with what the earlier session was told, and has not read."""
        resumes = self._context.settings.resumes
        if not resumes:
            return
        homes = [home.sessions for home in registries(self._context.project)]
        count = told.take_over(self._claim.directory, homes, self._claim.record.session, resumes)
        if count:
            log.event(
                "message.taken_over",
                f"the first prompt begins with what session {resumes} was told and has not read",
                count=count,
            )

    def _look(self) -> str:
        """Return a text that differs between states of the workspace; empty if the state is unknown."""
        if self._workspace.tree is not None:
            return self._checkpoint.look()
        # The project is the user's: no object of ours comes into its repository.
        return fingerprints.fingerprint(self._workspace.git(self._context.project), self._workspace.path)

    def _look_outside(self, when: str) -> bool:
        """Look outside; a person is told of the first change, unless it ends the session."""
        found = self._workspace.look_outside(when)
        if found and not self._state.leak_told and self._context.settings.on_leak is OnLeak.REPORT:
            self._state.leak_told = True
            self._notify("leak", LEAKED)
        return found

    def _notify(self, event: str, words: str) -> None:
        told = notification_while(self._claim.record, event, words)
        notify(self._context.settings, self._context.project, told, lambda: self._signals.cancel.requested)

    def _remember_gate(self, gate: RememberedGate) -> None:
        try:
            gate_memory.write(gate, self._claim.directory, self._context.project)
        except OSError as error:  # a full disk must not end the loop
            log.event("gate.not_written", reason=str(error))

    def _earlier_gate(self) -> RememberedGate | None:
        if not (earlier := self._context.settings.resumes):
            return None
        return gate_memory.read(self._claim.registry.sessions / earlier, self._context.project)

    def _begin(self, number: int, instead: str) -> None:
        self._files.restore()
        try_update(self._claim, iteration=number, agent_now=instead, agents_unseen=False)

    def _note_agent(self) -> None:
        self._state.agent_started = True

    def _end_processes(self, grace: float, *, signalled: bool) -> None:
        hurry = SessionHurry(self._signals.cancel, self._claim.directory)
        ended = self._process_tree.end(grace, hurry, signalled=signalled)
        if ended.signalled:
            log.event("processes.ended", count=ended.signalled)
        self._state.survivors = ended.survivors
        if ended.survivors:
            pids = ", ".join(map(str, ended.survivors))
            log.warning("processes.survived", f"processes that cannot be ended: {pids}")

    def _log_trouble(self, stream: str) -> None:
        if stream == "log":
            log.warning(
                "output_log.failed",
                "output.log cannot be written now, and lacks this part of the output",
                f"to see whether the disk is full: {command('df', '-h', self._claim.directory)}",
            )
        elif stream == "long log":
            log.warning(
                "output_log.not_shortened",
                "output.log is longer than max_output, and cannot be made shorter now",
                f"to see whether the disk is full: {command('df', '-h', self._claim.directory)}",
            )
        elif stream in _LOG_EVENTS:
            log.event(_LOG_EVENTS[stream])
        else:
            log.event("reader.left", stream=stream)


def _git_directory(workspace: Workspace) -> Path | None:
    """Return the git directory of the agent alone, if it has one: it stays when ``.ralph/run`` is deleted."""
    tree = workspace.tree
    if tree is None:
        return None
    return tree.path / ".git" if tree.clone else tree.registration


def _pristine(workspace: Workspace) -> str:
    """Return the fingerprint of a new worktree; empty if it is unknown, as with saved work in it."""
    if workspace.base is None or workspace.restored is not None:
        return ""
    return fingerprints.pristine(workspace.base)
