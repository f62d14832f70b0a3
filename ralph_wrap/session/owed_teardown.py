"""The teardown that a session owes: ``teardown.json`` in its directory.

A session writes it before its first command runs, and deletes it when its teardown has run. So the sweep
after a kill finds it, and so does ``ralph-wrap rm`` with a worktree that stayed. A kill in the middle of a
teardown has it run again.

An agent may write this file and the configuration. What runs is what the session was started with, as the
user had approved it: the session signs it (see ``state.session_start``). It runs only if the signature is
right, and only where the session would have run it: on the host or in a container, as then, and in the same
sandbox. Otherwise a warning says that it was not run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Self

from ralph_wrap.config import Isolation, Settings
from ralph_wrap.config.settings import AgentInvocation
from ralph_wrap.session.agent_environment import agent_environment
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.sandbox.backend import BubblewrapTrial, SandboxBackend
from ralph_wrap.session.sandbox.launcher import landlock_abi
from ralph_wrap.session.teardown import LATER, SweepShare, Teardown, TeardownEnd, by_hand, not_run
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state.project import Project
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.session_start import is_signed, signature
from ralph_wrap.system import files, liveness
from ralph_wrap.system.cancel import CancelToken, FirstSignal
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.process_tree import ProcessTree
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import LinkedWorktree

OWED = "teardown.json"
"""The name of the file in the directory of a session."""

_KIND = "teardown"  # of what is signed here
_FORMAT = DocumentFormat(version=1, indent=1)
_GRACE = 2.0  # seconds between TERM and KILL for what the teardown of a dead session leaves running


class OwedTeardown(NamedTuple):
    """What the command that runs the teardown of an ended session has to know.

    Attributes:
        text: what ``sh -c`` runs.
        timeout: in seconds; 0 or ``None`` is no limit.
        prefix: the agent's directory in the worktree.
        branch: of the session.
        port: the first of its ports.
        hooks: git hooks run in the worktree.
        isolation: how its workspace was made.
        max_output: bytes of its log; 0 is no limit.
        is_of_host: it ran outside of containers.
        is_confined: it had a sandbox; what follows is empty otherwise.
        bwrap: what made the sandbox; see :class:`SandboxBackend`.
        abi: see there.
        writable: see there.
        network: see there.
        home: the user's home, in which the sandbox hides what is secret.
        agent: name of its agent.
        command: of its agent, whose directories the sandbox knows.
        env: further variables of its agent, which may name these directories.

    """

    text: str
    timeout: float | None
    prefix: str
    branch: str
    port: int
    hooks: bool
    isolation: str
    max_output: int
    is_of_host: bool
    is_confined: bool = False
    bwrap: str = ""
    abi: int = 0
    writable: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    home: str = ""
    agent: str = ""
    command: tuple[str, ...] = ("sh",)
    env: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_session(cls, context: SessionContext, workspace: Workspace, port: int) -> Self:
        """Return what a session has to record."""
        settings = context.settings
        owed = cls(
            text=settings.teardown,
            timeout=settings.teardown_timeout,
            prefix=os.fspath(context.project.prefix),
            branch=workspace.branch or "",
            port=port,
            hooks=settings.hooks,
            isolation=settings.isolation.value,
            max_output=settings.max_output,
            is_of_host=_is_of_host(),
        )
        if context.sandbox is None:
            return owed
        bwrap, abi, writable, network = context.sandbox
        return owed._replace(
            is_confined=True,
            bwrap=bwrap,
            abi=abi,
            writable=tuple(map(os.fspath, writable)),
            network=network,
            home=_home(context.project),
            agent=settings.agent,
            command=settings.command,
            env=settings.invocation.env,
        )

    @property
    def backend(self) -> SandboxBackend | None:
        """What made its sandbox; ``None`` without one."""
        if not self.is_confined:
            return None
        return SandboxBackend(self.bwrap, self.abi, tuple(map(Path, self.writable)), self.network)

    def write(self, directory: Path, project: Project) -> None:
        """Write it for a later command.

        Arguments:
            directory: of the session.

        Raises:
            OSError: the file cannot be written.

        """
        signed = {"signature": signature(_KIND, self, directory, project)}
        files.replace(directory / OWED, _FORMAT.encode(self._asdict() | signed), mode=0o600)


def read_owed(directory: Path, project: Project) -> OwedTeardown | None:
    """Return the teardown that a session owes; ``None`` if nothing proves what its file says.

    Arguments:
        directory: of the session.

    Raises:
        FileNotFoundError: it owes none.

    """

    def checked(loaded: dict[str, Any]) -> OwedTeardown | None:
        owed = convert_fields(loaded, OwedTeardown)
        return owed if is_signed(_KIND, owed, directory, project, loaded["signature"]) else None

    try:
        return _FORMAT.read(directory / OWED, checked)
    except FileNotFoundError:
        raise
    except (OSError, ValueError):
        return None


def run_owed(
    project: Project, home: Registry, record: SessionRecord, tree: LinkedWorktree | None, cancel: CancelToken
) -> TeardownEnd | None:
    """Run the teardown that an ended session owes, before its worktree is saved and removed.

    Arguments:
        project: its environment names a committer.
        home: the registry of the session.
        tree: its worktree; ``None`` if it does not exist any more.
        cancel: a signal leaves it to the next command.

    Returns:
        What became of it; ``None`` if none is owed.

    Raises:
        OSError: the file of its output cannot be used.

    """
    directory = home.sessions / record.session
    path = directory / OWED
    try:
        owed = read_owed(directory, project)
    except FileNotFoundError:
        return None
    if owed is None:
        reason = f"nothing proves that {path} is as the session has written it"
        return not_run(None, reason, f"to read it: {command('cat', path)}")
    ended = _run(owed, project, home, record, tree, cancel)
    if ended.result != LATER:
        path.unlink(missing_ok=True)
    return ended


def _run(
    owed: OwedTeardown,
    project: Project,
    home: Registry,
    record: SessionRecord,
    tree: LinkedWorktree | None,
    cancel: CancelToken,
) -> TeardownEnd:
    project = project._replace(prefix=Path(owed.prefix))
    directory = home.sessions / record.session
    context = _context(owed, project, home, record, cancel)
    path = tree.path if tree else context.path
    workspace = Workspace(path, tree=tree and tree._replace(branch=owed.branch))
    environ = agent_environment(context, workspace, owed.port)
    if obstacle := _obstacle(owed, project):
        return not_run(owed.text, obstacle, by_hand(owed.text, project.main, environ))
    processes = ProcessTree(whole_process=False, session=record.session, dead=True)
    log = directory / "output.log"
    relay = OutputRelay(log, (1, 2), lambda _piece: None, lambda _stream: None, owed.max_output)
    lock = os.open(os.devnull, os.O_RDONLY)  # in the place of the agents' lock, which a sweep does not hold
    try:
        teardown = Teardown(owed.text, context, workspace, environ, log, lock)
        return teardown.run(relay, SweepShare(owed.timeout, cancel), processes)
    finally:
        processes.end(_GRACE, FirstSignal(cancel), signalled=False)
        relay.drain()
        relay.flush(1.0, cancel)
        relay.close()
        os.close(lock)


def _context(
    owed: OwedTeardown, project: Project, home: Registry, record: SessionRecord, cancel: CancelToken
) -> SessionContext:
    """Return what the steps of the session shared, as far as its teardown needs it."""
    settings = Settings(
        project=project.main,
        command=owed.command,
        agent=owed.agent,
        invocation=AgentInvocation(env=owed.env),
        isolation=Isolation(owed.isolation),
        hooks=owed.hooks,
        branch=owed.branch,
    )
    return SessionContext(
        settings=settings,
        project=project,
        base=record.base,
        record=record,
        cancel=cancel,
        sandbox=owed.backend,
        home=home,
    )


def _obstacle(owed: OwedTeardown, project: Project) -> str:
    """Return why a teardown cannot run here as the session would have run it; empty if it can."""
    if owed.is_of_host != _is_of_host():
        return "the session ran on the host" if owed.is_of_host else "the session ran in a container"
    if not owed.is_confined:
        return ""
    if owed.home != _home(project):
        return f"its sandbox was made for the home {owed.home}"
    if not owed.bwrap:
        return "" if landlock_abi() >= owed.abi else "this kernel cannot make its sandbox"
    with BubblewrapTrial(project.environ) as trial:
        found, problem = trial.result()
    if problem is not None:
        return f"its sandbox cannot be made: {problem.message}"
    return "" if found == owed.bwrap else f"its sandbox was made by {owed.bwrap}"


def _is_of_host() -> bool:
    return liveness.is_of_host(liveness.pid_namespace())


def _home(project: Project) -> str:
    return os.path.realpath(project.environ.get("HOME") or "/")
