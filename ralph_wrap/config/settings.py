"""The values of settings that are neither text nor numbers."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class Isolation(Enum):
    """Whether a session gets a worktree."""

    PREFER = "prefer"
    REQUIRE = "require"
    OFF = "off"


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
    """What becomes of a worktree's submodules."""

    OFF = "off"
    INIT = "init"


class AgentInvocation(NamedTuple):
    """How an agent is dealt with.

    Attributes:
        prompt: how it takes the prompt: ``stdin``, or ``argument`` or ``file``, where its command has
            ``{prompt}`` or ``{prompt_file}``.
        output: the format of what it prints; ``text`` is none.
        env: environment variables that it gets besides.
        budget: more words for its command that cap what it may spend, ``{left}`` being US dollars.
        resume: more words for its command that take up an earlier session of its own, ``{session}``.

    """

    prompt: str = "stdin"
    output: str = "text"
    env: tuple[tuple[str, str], ...] = ()
    budget: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()


class AgentTable(NamedTuple):
    """What ``[agents.NAME]`` in the configuration file says; ``None`` is what it does not say.

    Attributes:
        command: the agent's command.
        prompt: see :class:`AgentInvocation`.
        output: the same.
        env: the same.

    """

    command: tuple[str, ...] | None = None
    prompt: str | None = None
    output: str | None = None
    env: tuple[tuple[str, str], ...] | None = None

    def stated(self) -> dict[str, Any]:
        """Return what it says, as JSON has it; all is approved: a variable can be as good as a command."""
        said = {key: value for key, value in self._asdict().items() if value is not None}
        return said | ({"env": dict(self.env)} if self.env is not None else {})
