"""Start the sessions of a batch, each as a ``run`` or a ``resume`` in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import config
from ralph_wrap.agents import with_agent
from ralph_wrap.commands.batch.plan import OpenTask
from ralph_wrap.commands.batch.runner import BatchLimits, StartedProcess
from ralph_wrap.commands.batch.state import BatchState
from ralph_wrap.commands.resume import resumable
from ralph_wrap.config import Isolation, Settings, prompt_file
from ralph_wrap.config.authority import PROMPT, in_force
from ralph_wrap.config.task_file import PLACE, Task, with_task
from ralph_wrap.errors import FIRST_COMMIT, IsolationError, NotFoundError, UsageError
from ralph_wrap.interfaces.cli.approval_prompt import require
from ralph_wrap.interfaces.cli.resume import continued_settings
from ralph_wrap.interfaces.cli.start import be_in_background, start, sweep_first
from ralph_wrap.session.notify import Notification, notify
from ralph_wrap.session.preflight import look_first
from ralph_wrap.state.project import find_project, repository_of
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import ENDING
from ralph_wrap.system.process_tree import end_with_parent
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import shortened

log = get_logger()

_TEMPLATE = """{{task}}

Commit your work. When all of this is done, answer with this line alone:
{until}
"""
_LONGEST_NAME = 200  # characters
_TITLE = 48  # columns
_TYPED_AS = "ralph-wrap batch FILE"


class _Invocation(NamedTuple):
    """How a session is started: arguments of :func:`start`."""

    directory: Path
    options: Mapping[str, str | None]
    command: tuple[str, ...]
    change: Callable[[Settings], Settings]


class BatchLauncher:
    """Starts the sessions of a batch.

    Arguments:
        directory: the project that the user names.
        environ: of the owner of the project.
        options: of ``run``, as they were typed.
        command: the agent's command, as it was typed.
        signals: entered handlers.

    Attributes:
        project: of the batch.

    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str],
        options: Mapping[str, str | None],
        command: tuple[str, ...],
        signals: SignalHandlers,
    ) -> None:
        self.project = find_project(directory, environ)
        repository_of(self.project)
        settings = config.load(directory, self.project.main, Path.cwd(), options, environ, command)
        self._template = _template(settings)
        if PLACE not in self._template and _is_default(settings):
            log.event(
                "prompt.left",
                f"{PROMPT} has no {PLACE}, so the batch does not use it: each session gets its task alone",
                hint=f"to use it: write {PLACE} where it should name the task",
            )
            self._template = _TEMPLATE.format(until=settings.until)
            options = {**options, "prompt": self._template}
            settings = config.load(directory, self.project.main, Path.cwd(), options, environ, command)
        self._unnamed = settings._replace(prompt=self._template, prompt_file=None)
        self._settings = with_agent(self._unnamed, _TYPED_AS)
        self._directory = directory
        self._options = {**options, "prompt_file": None}
        self._command = command
        self._signals = signals

    def check(self, tasks: Sequence[Task], limits: BatchLimits) -> None:
        """Check once what each session would find: the same error for each task helps no user.

        Raises:
            RalphError: no session of this batch could start.

        """
        with_task(self._template, tasks[0])
        for model in {task.model for task in tasks if task.model}:  # each agent can be told one, or none can
            with_agent(self._unnamed._replace(model=model), _TYPED_AS)
        if self._settings.branch is not None:
            raise UsageError("branch: each session of a batch has a branch of its own", "remove branch")
        isolation = self._settings.isolation
        if isolation is Isolation.OFF and limits.jobs > 1:
            raise UsageError("--isolation off: sessions would change the same files at once", "-j 1")
        if isolation is Isolation.PREFER:  # no session may fall back to the project itself
            self._options["isolation"] = Isolation.REQUIRE.value
        require(self.project, self._settings, in_force(self._settings), self._signals)
        if look_first(self._settings, self.project).base is None:
            raise IsolationError("the repository has no commit yet", FIRST_COMMIT)
        sweep_first(self.project, self._settings, self._signals)

    def start(self, wanted: OpenTask, token: str, state: BatchState) -> StartedProcess:
        """Start the process of a session.

        Arguments:
            wanted: its task.
            token: of the task.
            state: of the batch.

        Raises:
            RalphError: the session of the task cannot go on.

        """
        invocation = (self._going_on(wanted) if wanted.session else None) or self._anew(wanted)

        def change(settings: Settings) -> Settings:
            return invocation.change(settings)._replace(task=token, notify="")  # the batch tells of its end

        def run(signals: SignalHandlers) -> int:
            directory, options, command, _ = invocation
            return start(signals, directory, options, command, detached=True, change=change)

        return _fork(run, state)

    def notify(self, told: Notification) -> None:
        """Tell a person that the batch has ended."""
        notify(self._settings, self.project, told, lambda: self._signals.cancel.out_of_time)

    def _anew(self, wanted: OpenTask) -> _Invocation:
        return _Invocation(self._directory, self._typed(wanted), self._command, lambda settings: settings)

    def _going_on(self, wanted: OpenTask) -> _Invocation | None:
        """Return how the session of a task goes on; ``None`` if nothing of it is left."""
        main, remote = self._settings.main, self._options.get("remote")
        try:
            session = resumable(self.project, wanted.session, main, again=True, remote=remote)
        except NotFoundError as error:
            title = shortened(wanted.task.title, _TITLE)
            log.warning("task.begins_anew", f"{title}: {error.message}; the task begins anew")
            return None
        # An agent can write what the session has recorded: only what the user types now decides what runs.
        options = self._typed(wanted)
        if options["base"] != "fresh" or not session.has_branch:
            options["base"] = session.base
        return _Invocation(
            self._directory, options, self._command, partial(continued_settings, session=session)
        )

    def _typed(self, wanted: OpenTask) -> dict[str, str | None]:
        prompt = with_task(self._template, wanted.task)
        own = {"model": wanted.task.model} if wanted.task.model else {}
        return {**self._options, "prompt": prompt, "name": wanted.task.title[:_LONGEST_NAME], **own}


def _is_default(settings: Settings) -> bool:
    """Return whether the prompt is the file of the project that nobody has named."""
    return os.fspath(PROMPT) in settings.stated and not settings.replaced & {"prompt", "prompt_file"}


def _template(settings: Settings) -> str:
    """Return the prompt in which ``{task}`` stands for the task."""
    if settings.prompt is not None:
        return settings.prompt
    if settings.prompt_file is not None:
        return prompt_file.read(settings.prompt_file).decode("utf-8", "surrogateescape")
    return _TEMPLATE.format(until=settings.until)


def _fork(run: Callable[[SignalHandlers], int], state: BatchState) -> StartedProcess:
    """Run a session in a child process, which gets SIGTERM if we are killed.

    It is in a kernel session of its own: Ctrl-C reaches it through us alone.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until the child has handlers of its own

    def run_in_child(signals: SignalHandlers) -> int:
        state.lock.release()
        end_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return run(signals)

    try:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            be_in_background(None, writing, run_in_child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
    os.set_blocking(reading, False)
    return StartedProcess(pid, reading)
