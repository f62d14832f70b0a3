"""The options of an agent, a part of the table of options."""

from __future__ import annotations

from pathlib import Path

from ralph_wrap.config import agent_tables
from ralph_wrap.config.parsers import AGENTS, FILE, FLAG, TEXT, WORDS
from ralph_wrap.config.settings import AgentChoice, AgentInvocation, AgentTable
from ralph_wrap.config.table import KEY, Table, option

_FILE_ONLY = (KEY,)


class AgentSettings(Table, group="agent"):
    """Which agent works, and how the session calls it.

    Attributes:
        project: the directory that the session is for.
        command: the agent's command; ``command[0]`` as in ``execvp(3)``.
        invocation: how the session calls the agent.
        message: what the user says before the prompt, in the first iteration only.
        conversation: the agent's own session that the first iteration continues; empty for a new one.
        others: the agents of *fallback*, as the session calls them.

    """

    project: Path
    command: tuple[str, ...]
    agent: str = option(
        default="",
        kind=TEXT,
        help=f"{', '.join(sorted(agent_tables.NAMES))}, or an agent of the configuration.",
        short="-a",
        metavar="NAME",
    )
    model: str = option(
        default="",
        kind=TEXT,
        help="The model that the agent uses; passed on by the agent's own option.",
        metavar="NAME",
    )
    agent_arg: tuple[str, ...] = option(
        default=(),
        kind=WORDS,
        help="Append this word to the agent's command; can be repeated.",
    )
    fallback: tuple[str, ...] = option(
        default=(),
        kind=WORDS,
        help="The agent that goes on while the usage limit of the first one holds; can be repeated.",
        metavar="NAME",
    )
    prompt: str | None = option(
        default=None,
        kind=TEXT,
        help="The prompt, which the agent gets in each iteration.",
        short="-p",
    )
    prompt_file: Path | None = option(
        default=None,
        kind=FILE,
        help="A file with the prompt, read again in each iteration.",
        short="-f",
        unset="PROMPT.md if it exists",
    )
    name: str = option(
        default="",
        kind=TEXT,
        help="The title of the session.",
        unset="the first line of the prompt",
    )
    preamble: bool = option(
        default=False, kind=FLAG, help="Explain the workspace to the agent, before the prompt."
    )
    raw: bool = option(
        default=False,
        kind=FLAG,
        help="Print the agent's machine-readable stream unchanged.",
        is_switch=True,
    )
    keep_conversation: bool = option(
        default=False,
        kind=FLAG,
        help="Continue the agent's own session of the previous iteration.",
        sources=_FILE_ONLY,
    )
    agents: tuple[tuple[str, AgentTable], ...] = option(
        default=(),
        kind=AGENTS,
        help="Agents that the configuration adds or changes, by name.",
        sources=_FILE_ONLY,
    )
    invocation: AgentInvocation = AgentInvocation()
    message: str = ""
    conversation: str = ""
    others: tuple[AgentChoice, ...] = ()
