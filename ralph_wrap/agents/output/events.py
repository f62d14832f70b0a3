"""The events in the output of an agent, the same for all formats."""

from __future__ import annotations

from typing import NamedTuple


class AgentMessage(NamedTuple):
    """Text of the agent.

    Attributes:
        text: a part of it.
        goes_on: the text continues the text before it, without a newline between them.

    """

    text: str
    goes_on: bool = False


class ToolCall(NamedTuple):
    """The agent uses a tool.

    Attributes:
        tool: its name.
        argument: the most informative argument, unchanged; empty if there is none.

    """

    tool: str
    argument: str


class AgentSessionId(NamedTuple):
    """The name of the agent's own session; with it, the agent can continue this session later."""

    session: str


class Usage(NamedTuple):
    """The usage of this iteration so far; each event replaces the one before.

    Attributes:
        tokens: input and output tokens, cached ones included.
        cost: in US dollars; ``None`` if the agent does not report it.
        turns: number of answers of the model; 0 if the agent does not report it.
        overall: the tokens count the agent's own session, with the earlier iterations that it continues.

    """

    tokens: int
    cost: float | None = None
    turns: int = 0
    overall: bool = False


class AgentWarning(NamedTuple):
    """An error after which the agent continues."""

    message: str


class UsageLimitReached(NamedTuple):
    """The account has reached a usage limit.

    Attributes:
        message: the message of the agent.
        until: end of the limit, in seconds since the epoch; ``None`` if the agent does not report it.

    """

    message: str
    until: float | None = None


class AgentFailure(NamedTuple):
    """The agent failed.

    Attributes:
        message: the message of the agent.
        passing: the cause is temporary: the network, or an overloaded service. A retry may succeed.
        capped: the agent reached its cost limit.
        logged_out: the agent has no login, or its service does not accept it.

    """

    message: str
    passing: bool = False
    capped: bool = False
    logged_out: bool = False


class FinalAnswer(NamedTuple):
    """The final answer."""

    text: str


class UnparsedLine(NamedTuple):
    """A line that is not of the format, without its newline."""

    line: bytes


class SkippedLine(NamedTuple):
    """A line that is too long to read, with its size in bytes."""

    size: int


Event = (
    AgentMessage
    | ToolCall
    | AgentSessionId
    | Usage
    | AgentWarning
    | UsageLimitReached
    | AgentFailure
    | FinalAnswer
    | UnparsedLine
    | SkippedLine
)
