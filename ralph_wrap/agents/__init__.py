"""The agent command lines that are known by name, one small module each."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.agents.claude import CLAUDE
from ralph_wrap.errors import AgentError, AgentNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.config import Settings

KNOWN = {agent.name: agent for agent in (CLAUDE,)}
"""By the names that ``--agent`` takes."""


def with_agent(settings: Settings) -> Settings:
    """Return the settings with the command of the agent that was named.

    Raises:
        UsageError: neither an agent nor a command is given, or both; or the agent is not known, or there is
            no prompt for it.

    """
    if settings.command and settings.agent:
        raise UsageError(f"both --agent {settings.agent} and a command are given", "give one of them")
    if settings.command:
        return settings
    if not settings.agent:
        raise UsageError("no agent is given", "--agent NAME, or a command behind --")
    if settings.agent not in KNOWN:
        raise UsageError(
            f"unknown agent {settings.agent!r}",
            f"known: {', '.join(sorted(KNOWN))}; a command goes behind --",
        )
    if settings.prompt is None and settings.prompt_file is None:
        raise UsageError(
            f"no prompt for {settings.agent}", "--prompt, --prompt-file, or PROMPT.md in the project"
        )
    return settings._replace(command=KNOWN[settings.agent].command)


def look_up(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Make sure that a command can be run, before anything is made for it.

    A relative path with a slash is not looked at: it is looked up in the workspace, which is not there yet.

    Raises:
        AgentNotFoundError: it is not there.
        AgentError: it is there and cannot be run.

    """
    program = command[0]
    if "/" in program and not program.startswith("/"):
        return
    path = environ.get("PATH", os.defpath)
    if shutil.which(program, path=path):
        return
    there = shutil.which(program, os.F_OK, path)
    if there or Path(program).is_dir():
        hint = f"chmod +x {shlex.quote(there)}" if there and Path(there).is_file() else "name a file"
        raise AgentError(f"agent command {program} cannot be run: not an executable file", hint)
    hint = "name a file that is there"
    if "/" not in program:
        hint = f"install it, or name its path: ralph-wrap run -- /path/to/{program}"
    if program in KNOWN:
        hint = f"{KNOWN[program].install}, or name its path: ralph-wrap run -- /path/to/{shlex.join(command)}"
    raise AgentNotFoundError(f"agent command {program} was not found", hint)


__all__ = ["KNOWN", "look_up", "with_agent"]
