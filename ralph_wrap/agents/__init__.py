"""The command lines of known agents, one small module each."""

from __future__ import annotations

import os
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ralph_wrap.agents.definition import Agent
from ralph_wrap.config.settings import AgentInvocation, AgentTable
from ralph_wrap.errors import AgentError, AgentNotFoundError, UsageError
from ralph_wrap.system import container, deferred
from ralph_wrap.system.log import Commands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.config import AgentSettings

_Settings = TypeVar("_Settings", bound="AgentSettings")

NAMES = ("aider", "claude", "codex", "gemini", "opencode")
"""The names that ``--agent`` accepts; the configuration may add more."""


def known(name: str) -> Agent:
    """Return the agent with one of :data:`NAMES`; its module is loaded only now."""
    agent: Agent = import_module(f"{__name__}.{name}").AGENT
    return agent


def with_agent(settings: _Settings) -> _Settings:
    """Return the settings with the command of the named agent, its prompt style and its output format.

    Raises:
        UsageError: neither an agent nor a command is given, or both are; the agent is unknown; or it has no
            prompt.

    """
    if settings.command and settings.agent:
        hint = Commands.of(f"ralph-wrap run --agent {settings.agent}", "ralph-wrap run -- COMMAND")
        raise UsageError(f"both --agent {settings.agent} and a command are given", hint)
    if settings.command:
        return settings
    if not settings.agent:
        raise UsageError(
            "no agent is given", Commands.of("ralph-wrap run --agent claude", "ralph-wrap run -- COMMAND")
        )
    table = dict(settings.agents).get(settings.agent)
    if table is None and settings.agent not in NAMES:
        names = sorted({*NAMES, *dict(settings.agents)})
        raise UsageError(
            f"unknown agent {settings.agent!r}",
            Commands.of(
                f"known agents: {', '.join(names)}", "for another command: ralph-wrap run -- COMMAND"
            ),
        )
    if settings.prompt is None and settings.prompt_file is None:
        raise UsageError(
            f"no prompt for {settings.agent}", "--prompt, --prompt-file, or PROMPT.md in the project"
        )
    return _with_table(settings, table or AgentTable())


def _with_table(settings: _Settings, table: AgentTable) -> _Settings:
    """Return the settings for a named agent; its built-in definition fills the gaps of its table."""
    agent = known(settings.agent) if settings.agent in NAMES else Agent(settings.agent, (), "")
    command = table.command or agent.command
    if not command:
        raise UsageError(
            f"agent {settings.agent} has no command", f'[agents.{settings.agent}] command = ["…"]'
        )
    given = dict(table.env or ())
    if agent.contained_root and os.geteuid() == 0 and container.mark(Path("/")):
        given = {**agent.contained_root, **given}
    prompt = table.prompt or (agent.prompt if table.command is None else _taken_by(command))
    # Another program does not know these options. The same program with more options does.
    is_same = bool(agent.command) and Path(command[0]).name == agent.command[0]
    invocation = AgentInvocation(
        prompt,
        table.output or agent.output,
        tuple(given.items()),
        agent.budget if is_same else (),
        agent.metering if is_same and "stream-json" in command else (),  # they need that format
        agent.resume if is_same else (),
    )
    return settings._replace(command=command, invocation=invocation)


def _taken_by(command: Sequence[str]) -> str:
    """Return how a command takes the prompt: its placeholder decides."""
    words = " ".join(command)
    return "file" if "{prompt_file}" in words else "argument" if "{prompt}" in words else "stdin"


def is_relative(program: str) -> bool:
    """Return whether a program is a path that begins in the agent's working directory (``execvp(3)``)."""
    return "/" in program and not program.startswith("/")


def look_up(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Check that a command can be run, before a worktree or a branch is created for it.

    A relative path with a slash is not checked. It belongs to the workspace, which does not exist yet.

    Raises:
        AgentNotFoundError: the command does not exist.
        AgentError: the command exists and cannot be run.

    """
    program = command[0]
    if is_relative(program):
        return
    path = environ.get("PATH", os.defpath)
    if deferred.shutil.which(program, path=path):
        return
    found = deferred.shutil.which(program, os.F_OK, path)
    if found or Path(program).is_dir():
        hint = f"chmod +x {shlex.quote(found)}" if found and Path(found).is_file() else "name a file"
        raise AgentError(f"agent command {program} cannot be run: not an executable file", hint)
    hint = "name a file that exists"
    if "/" not in program:
        hint = f"install it, or name its path: ralph-wrap run -- /path/to/{program}"
    if program in NAMES:
        hint = f"{known(program).install}, or add its directory to PATH"
    raise AgentNotFoundError(f"agent command {program} was not found", hint)


__all__ = ["NAMES", "Agent", "is_relative", "known", "look_up", "with_agent"]
