"""The command lines of known agents, one small module each."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ralph_wrap.agents import (
    agy,
    aider,
    amp,
    claude,
    codex,
    copilot,
    crush,
    cursor_agent,
    droid,
    gemini,
    kimi,
    opencode,
    qwen,
)
from ralph_wrap.agents.definition import Agent, AgentHome
from ralph_wrap.config import AgentSettings, agent_tables
from ralph_wrap.config.settings import AgentChoice, AgentInvocation, AgentTable
from ralph_wrap.errors import AgentError, AgentNotFoundError, UsageError
from ralph_wrap.system import container
from ralph_wrap.system.log import Commands

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key of TOML that needs no quotes

_Settings = TypeVar("_Settings", bound=AgentSettings)

_MODULES = (
    *(claude, codex, opencode, copilot, gemini, qwen, kimi, droid),
    *(agy, aider, amp, crush, cursor_agent),
)
_AGENTS: dict[str, Agent] = {module.AGENT.name: module.AGENT for module in _MODULES}

NAMES = agent_tables.NAMES
"""The names that ``--agent`` accepts; the configuration may add more."""

OFFERED = NAMES[:3]
"""The agents that a message offers to install, if none is."""

QUICKSTART = "ralph-wrap quickstart"
"""The command that writes a prompt and chooses an agent; errors about a missing one offer it."""


def known(name: str) -> Agent:
    """Return the agent with one of :data:`NAMES`."""
    return _AGENTS[name]


def of_command(command: Sequence[str], name: str) -> Agent | None:
    """Return the known agent that a command runs, by its program or by the name of the agent."""
    program = Path(command[0]).name
    found = next((word for word in (program, name) if word in NAMES), None)
    return known(found) if found else None


def with_agent(settings: _Settings, typed: str = "ralph-wrap run") -> _Settings:
    """Return the settings with the command of the named agent, its prompt style and its output format.

    Arguments:
        typed: the command that the user has typed, for hints.

    Raises:
        UsageError: neither an agent nor a command is given, or both are; an agent is unknown; or it has no
            prompt.

    """
    if settings.command and settings.agent:
        hint = Commands.of(f"{typed} --agent {settings.agent}", f"{typed} -- COMMAND")
        raise UsageError(f"both --agent {settings.agent} and a command are given", hint)
    if settings.command:
        _refuse_agent_options(settings, typed)
        return settings
    has_prompt = settings.prompt is not None or settings.prompt_file is not None
    if not settings.agent:
        commands = (f"{typed} --agent claude", f"{typed} -- COMMAND")
        offer = () if has_prompt else (QUICKSTART,)
        raise UsageError("no agent is given", Commands.of(*offer, *commands))
    table = _table_of(settings, settings.agent, Commands.of(f"for another command: {typed} -- COMMAND"))
    if not has_prompt:
        agent = f"--agent {settings.agent}"
        raise UsageError(
            f"no prompt for {settings.agent}, and the project has no PROMPT.md",
            Commands.of(f"{QUICKSTART} {agent}", f"{typed} {agent} --prompt TEXT"),
        )
    return _with_others(_with_table(settings, table))


def _table_of(settings: AgentSettings, name: str, way: str = "") -> AgentTable:
    """Return the table of an agent; an empty one if the configuration has none.

    Arguments:
        way: what else to do if it is unknown.

    Raises:
        UsageError: it is unknown.

    """
    table = dict(settings.agents).get(name)
    if table is None and name not in NAMES:
        names = sorted({*NAMES, *dict(settings.agents)})
        ways = Commands.of(f"known agents: {', '.join(names)}", *filter(None, [way]))
        raise UsageError(f"unknown agent {name!r}", ways)
    return table or AgentTable()


def _with_others(settings: _Settings) -> _Settings:
    """Return the settings with the agents of ``fallback``.

    None of them gets the model, the arguments or the conversation of the first agent.

    Raises:
        UsageError: one of them is unknown.

    """
    names = [name for name in dict.fromkeys(settings.fallback) if name != settings.agent]
    others = []
    for name in names:
        alone = settings._replace(agent=name, model="", agent_arg=(), conversation="")
        one = _with_table(alone, _table_of(settings, name))
        others.append(AgentChoice(name, one.command, one.invocation))
    return settings._replace(others=tuple(others))


def _with_table(settings: _Settings, table: AgentTable) -> _Settings:
    """Return the settings for a named agent; its built-in definition fills the gaps of its table."""
    agent = known(settings.agent) if settings.agent in NAMES else Agent(settings.agent, (), "")
    command = table.command or agent.command
    if not command:
        raise UsageError(
            f"agent {settings.agent} has no command",
            f"write {_in_table(settings.agent, ['/path/to/program'])}",
        )
    given = dict(table.env or ())
    if agent.contained_root and os.geteuid() == 0 and container.mark(Path("/")):
        given = {**agent.contained_root, **given}
    prompt = table.prompt or (agent.prompt if table.command is None else _taken_by(command))
    # Another program does not know these options. The same program with more options does.
    is_same = bool(agent.command) and Path(command[0]).name == agent.command[0]
    command = (*command, *_model_options(settings, agent, command, is_same=is_same), *settings.agent_arg)
    invocation = AgentInvocation(
        prompt,
        table.output or agent.output,
        tuple(given.items()),
        agent.budget if is_same else (),
        agent.metering if is_same and "stream-json" in command else (),  # they need that format
        agent.resume if is_same else (),
    )
    return settings._replace(command=command, invocation=invocation)


def _refuse_agent_options(settings: AgentSettings, typed: str) -> None:
    """Check that no option of a named agent comes with a command that was typed.

    Raises:
        UsageError: a model or an argument is given, too.

    """
    given = {"--model": settings.model, "--agent-arg": settings.agent_arg, "--fallback": settings.fallback}
    if options := [word for word, value in given.items() if value]:
        words = (*settings.command, *settings.agent_arg)
        advice = (
            "add the model by the command's own option" if settings.model else "write it into the command"
        )
        advice += f": {typed} -- {shlex.join(words)}"
        if settings.fallback:  # no word of a command can say that
            advice = f"name the agent: {typed} --agent NAME --fallback {shlex.quote(settings.fallback[0])}"
        raise UsageError(
            f"{' and '.join(options)}: only for an agent that --agent names, but a command is given",
            advice,
        )


def _model_options(
    settings: AgentSettings, agent: Agent, command: Sequence[str], *, is_same: bool
) -> tuple[str, ...]:
    """Return the words that choose the model.

    Raises:
        UsageError: nobody knows what they are for this command.

    """
    if not settings.model:
        return ()
    if not (is_same and agent.model):
        words = [*command, "--model", settings.model]
        raise UsageError(
            f"--model cannot be passed on: ralph-wrap does not know the option of {shlex.quote(command[0])}",
            f"if it is --model, too, write {_in_table(settings.agent, words)}",
        )
    return tuple(word.replace("{model}", settings.model) for word in agent.model)


def _in_table(agent: str, words: Sequence[str]) -> str:
    """Return where the command of an agent stands, and how it is written there."""
    table = agent if _BARE.fullmatch(agent) else json.dumps(agent)
    return f"below [agents.{table}] in .ralph/config.toml: command = {json.dumps(words)}"


def _taken_by(command: Sequence[str]) -> str:
    """Return how a command takes the prompt: its placeholder decides."""
    words = " ".join(command)
    return "file" if "{prompt_file}" in words else "argument" if "{prompt}" in words else "stdin"


def installed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the path of each known agent that is installed, by name."""
    path = environ.get("PATH", os.defpath)
    paths = {name: shutil.which(known(name).command[0], path=path) for name in NAMES}
    return {name: found for name, found in paths.items() if found}


def look_up(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Check that a command can be run, before a worktree or a branch is created for it.

    A relative path with a slash is not checked. It belongs to the workspace, which does not exist yet.

    Raises:
        AgentNotFoundError: the command does not exist.
        AgentError: the command exists and cannot be run.

    """
    program = command[0]
    if "/" in program and not program.startswith("/"):
        return
    path = environ.get("PATH", os.defpath)
    if shutil.which(program, path=path):
        return
    found = shutil.which(program, os.F_OK, path)
    if found or Path(program).is_dir():
        hint = f"chmod +x {shlex.quote(found)}" if found and Path(found).is_file() else "name a file"
        raise AgentError(f"agent command {program} cannot be run: not an executable file", hint)
    hint = "name a file that exists"
    if "/" not in program:
        hint = f"install it, or type its path in place of {program}: /path/to/{program}"
    if program in NAMES:
        hint = Commands.of(
            f"to install it: {known(program).install}", "if it is installed: add its directory to PATH"
        )
    raise AgentNotFoundError(f"agent command {program} was not found", hint)


__all__ = [
    "NAMES",
    "OFFERED",
    "Agent",
    "AgentHome",
    "installed",
    "known",
    "look_up",
    "of_command",
    "with_agent",
]
