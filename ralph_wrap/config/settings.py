"""The values of settings that are neither text nor numbers."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class Isolation(Enum):
    """Whether a session gets a worktree, or a clone."""

    PREFER = "prefer"
    REQUIRE = "require"
    CLONE = "clone"
    OFF = "off"


class SandboxMode(Enum):
    """What confines the agent."""

    OFF = "off"
    AUTO = "auto"
    BWRAP = "bwrap"
    LANDLOCK = "landlock"


class OnDirty(Enum):
    """What happens to uncommitted work at the end."""

    WIP = "wip"
    KEEP = "keep"


class OnLeak(Enum):
    """What happens when something outside the workspace has changed during an iteration."""

    REPORT = "report"
    STOP = "stop"


class IgnoreLocation(Enum):
    """Where the rule that hides the worktrees goes."""

    GITIGNORE = "gitignore"
    EXCLUDE = "exclude"
    OFF = "off"


class OnOrphans(Enum):
    """What a start does for dead sessions."""

    SWEEP = "sweep"
    REPORT = "report"


class SubmoduleMode(Enum):
    """What a session does with the submodules of its worktree."""

    OFF = "off"
    INIT = "init"


class LogFormat(Enum):
    """How ralph-wrap prints its messages on stderr."""

    TEXT = "text"
    JSON = "json"


class AgentInvocation(NamedTuple):
    """How a session calls an agent.

    Attributes:
        prompt: how the agent takes the prompt: ``stdin``; ``argument``, by ``{prompt}`` in its command; or
            ``file``, by ``{prompt_file}``.
        output: the format of the agent's output; ``text`` has no format.
        env: additional environment variables.
        budget: additional words of the command that limit its cost; ``{left}`` is an amount in US dollars.
        metering: additional words of the command; with them the agent reports its tokens after each turn.
        resume: additional words of the command that continue the agent's own session ``{session}``.

    """

    prompt: str = "stdin"
    output: str = "text"
    env: tuple[tuple[str, str], ...] = ()
    budget: tuple[str, ...] = ()
    metering: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()


class AgentChoice(NamedTuple):
    """An agent that goes on while a usage limit of the session's own agent holds.

    Attributes:
        agent: as in ``--agent``.
        command: the words to execute.
        invocation: how the session calls it.

    """

    agent: str
    command: tuple[str, ...]
    invocation: AgentInvocation


class AgentTable(NamedTuple):
    """The table ``[agents.NAME]`` of the configuration file; a key that it lacks is ``None``.

    Attributes:
        command: the agent's command.
        prompt: see :class:`AgentInvocation`.
        output: see :class:`AgentInvocation`.
        env: see :class:`AgentInvocation`.

    """

    command: tuple[str, ...] | None = None
    prompt: str | None = None
    output: str | None = None
    env: tuple[tuple[str, str], ...] | None = None

    def stated(self) -> dict[str, Any]:
        """Return its keys for JSON. The user approves all of them: a variable can do as much as a command."""
        said = {key: value for key, value in self._asdict().items() if value is not None}
        return said | ({"env": dict(self.env)} if self.env is not None else {})
