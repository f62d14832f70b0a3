"""Run an agent once, in the worktree of the context."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import files, git, process
from ralph_wrap.agents import look_up, with_agent
from ralph_wrap.config import Settings
from ralph_wrap.context.branch import current_worktree
from ralph_wrap.errors import AgentError, AgentNotFoundError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT = "claude"
_GRACE = 5.0  # seconds from TERM to KILL
_TICK = 0.05  # seconds between looks, where nobody says that a process has ended


class AgentResult(NamedTuple):
    """How an agent ended.

    Attributes:
        status: as a shell counts it: 128+n for signal n.
        output: what it wrote to standard output.

    """

    status: int
    output: str


def run_agent(
    prompt: str, agent: str | Sequence[str] | None = None, cwd: str | os.PathLike[str] | None = None
) -> AgentResult:
    """Run an agent once, with the prompt on its standard input, and wait for it; its errors go to our stderr.

    Arguments:
        prompt: what it is told.
        agent: name of a known agent, or the words of a command; normally ``claude``.
        cwd: where it works; normally the current worktree, or without one the current directory.

    Raises:
        UsageError: there is no such agent.
        NotFoundError: there is no such directory.
        AgentError: it cannot be executed.

    """
    tree = current_worktree()
    directory = Path.cwd() / (cwd or (tree.path if tree else ""))
    name = _DEFAULT if agent is None else agent
    command = _command(name, prompt, directory) if isinstance(name, str) else tuple(name)
    if not command:
        raise UsageError("the agent's command is empty", f"agent={_DEFAULT!r}, or the words of a command")
    if not directory.is_dir():
        raise NotFoundError(f"{directory} is no directory", "name another cwd")
    look_up(command, os.environ)
    with contextlib.ExitStack() as stack:
        descriptors = process.anonymous_file(), process.anonymous_file()
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        given, printed = descriptors
        files.write_all(given, prompt.encode("utf-8", "surrogateescape"))
        os.lseek(given, 0, os.SEEK_SET)
        status = _run(command, directory, process.Streams(given, printed, None), printed)
        output = os.pread(printed, os.fstat(printed).st_size, 0)
    return AgentResult(status, output.decode(errors="replace"))


def _command(name: str, prompt: str, directory: Path) -> tuple[str, ...]:
    return with_agent(Settings(project=directory, command=(), agent=name, prompt=prompt)).command


def _run(command: tuple[str, ...], directory: Path, streams: process.Streams, inherited: int) -> int:
    try:
        group = process.Group(
            command, cwd=directory, env=git.environment(os.environ), streams=streams, inherited=inherited
        )
    except FileNotFoundError:
        raise AgentNotFoundError(f"agent command {command[0]} was not found in {directory}") from None
    except OSError as error:
        raise AgentError(f"agent command {command[0]} cannot be run: {error.strerror}") from None
    try:
        while (status := group.poll()) is None:
            _wait(group)
    except BaseException:  # Ctrl-C above all, which does not reach its process group
        _end(group)
        raise
    return status


def _wait(group: process.Group) -> None:
    if group.pidfd < 0:
        time.sleep(_TICK)
        return
    poll = select.poll()
    poll.register(group.pidfd, select.POLLIN)
    poll.poll(1000)


def _end(group: process.Group) -> None:
    deadline = time.monotonic() + _GRACE
    group.signal(signal.SIGTERM)
    while group.poll() is None:
        if time.monotonic() > deadline:
            group.signal(signal.SIGKILL)
        time.sleep(_TICK)
