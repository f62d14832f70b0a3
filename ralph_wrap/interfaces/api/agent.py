"""Run an agent once, in the worktree of the context."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.agents import look_up, with_agent
from ralph_wrap.agents.output import AgentFailure, FinalAnswer, OutputReader, UsageLimitReached
from ralph_wrap.config import Settings
from ralph_wrap.errors import AgentError, AgentNotFoundError, NotFoundError, UsageError
from ralph_wrap.git import environment_without_repository
from ralph_wrap.interfaces.api.worktree import current_worktree
from ralph_wrap.loop.prompt import content, hand_over
from ralph_wrap.system import files, process
from ralph_wrap.system.temporary import temporary_directory

_DEFAULT = "claude"
_TICK = 1.0  # seconds between two looks; the end of the agent comes at once


class AgentResult(NamedTuple):
    """How an agent ended.

    Attributes:
        status: its exit status as in a shell: 128+n for signal n.
        output: its standard output; for an agent that is known by name, its final answer.

    """

    status: int
    output: str


def run_agent(
    prompt: str, agent: str | Sequence[str] | None = None, cwd: str | os.PathLike[str] | None = None
) -> AgentResult:
    """Run an agent once and wait for it; its stderr is our stderr.

    A known agent gets the prompt in its own way, another command on its standard input.

    Arguments:
        prompt: the task for the agent.
        agent: the name of a known agent, or the words of a command; by default ``claude``.
        cwd: its working directory; by default the current worktree, else the current directory.

    Raises:
        UsageError: no agent has this name.
        NotFoundError: the directory does not exist.
        AgentError: the agent's command cannot run.

    """
    tree = current_worktree()
    directory = Path.cwd() / (cwd or (tree.path if tree else ""))
    name = _DEFAULT if agent is None else agent
    settings = Settings(project=directory, command=(), prompt=prompt)
    if isinstance(name, str):
        settings = with_agent(settings._replace(agent=name))
    else:
        settings = settings._replace(command=tuple(name))
    if not settings.command:
        raise UsageError("the agent's command is empty", f"pass agent={_DEFAULT!r} or the words of a command")
    if not directory.is_dir():
        raise NotFoundError(f"{directory} is not a directory", "pass another cwd")
    look_up(settings.command, os.environ)
    with contextlib.ExitStack() as stack:
        where = temporary_directory(outside=(directory.resolve(),))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
        stdin, command = hand_over(settings, content(settings), scratch)
        assert stdin is not None
        stack.callback(os.close, stdin)
        printed = files.anonymous_file()
        stack.callback(os.close, printed)
        environ = {**environment_without_repository(os.environ), **dict(settings.invocation.env)}
        status = _run(command, directory, environ, process.StandardStreams(stdin, printed, None), printed)
        output = os.pread(printed, os.fstat(printed).st_size, 0)
    return _understood(settings.invocation.output, status, output)


def _understood(form: str, status: int, output: bytes) -> AgentResult:
    """Return how an agent ended, as its output reports it if it has a machine-readable format."""
    if form != "text":
        reader = OutputReader(form)
        for event in reversed([*reader.feed(output), *reader.finish()]):
            if isinstance(event, FinalAnswer):
                return AgentResult(status, event.text)
            if isinstance(event, AgentFailure | UsageLimitReached):
                return AgentResult(status or 1, event.message)
    return AgentResult(status, output.decode(errors="replace"))


def _run(
    command: tuple[str, ...],
    directory: Path,
    environ: Mapping[str, str],
    streams: process.StandardStreams,
    inherited: int,
) -> int:
    try:
        group = process.ProcessGroup(process.ProcessSpec(command, directory, environ, streams, inherited))
    except FileNotFoundError:
        raise AgentNotFoundError(f"agent command {command[0]} was not found in {directory}") from None
    except OSError as error:
        raise AgentError(f"agent command {command[0]} cannot be run: {error.strerror}") from None
    try:
        while (status := group.poll()) is None:
            group.wait(_TICK)
    except BaseException:  # Ctrl-C for example, which does not reach the agent's process group
        group.end()
        raise
    return status
