"""What an agent tells while it works, in whatever format it tells it."""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """Words of the agent.

    Attributes:
        text: some of them.
        goes_on: they follow the ones before without anything between.

    """

    text: str
    goes_on: bool = False


class Called(NamedTuple):
    """The agent uses a tool.

    Attributes:
        tool: its name.
        argument: the one that tells most, as it was given; empty if none does.

    """

    tool: str
    argument: str


class Known(NamedTuple):
    """The name by which the agent can take up its own session again."""

    session: str


class Spent(NamedTuple):
    """What was spent in this iteration so far; each one replaces the one before.

    Attributes:
        tokens: read and written, what came from a cache included.
        cost: in US dollars; ``None`` if the agent does not tell.
        turns: answers of the model; 0 if the agent does not tell.
        overall: the tokens are those of the agent's own session, with earlier iterations that it takes up.

    """

    tokens: int
    cost: float | None = None
    turns: int = 0
    overall: bool = False


class Trouble(NamedTuple):
    """Something went wrong, and the agent goes on."""

    message: str


class Limited(NamedTuple):
    """The account may not be used for now.

    Attributes:
        message: what the agent says of it.
        until: when it may be used again, in seconds since the epoch; ``None`` if that is not told.

    """

    message: str
    until: float | None = None


class Failed(NamedTuple):
    """The agent has given up.

    Attributes:
        message: what it says of it.
        passing: it is the network, or a service that is overloaded: the same may work later.
        capped: it has spent what it was permitted to.

    """

    message: str
    passing: bool = False
    capped: bool = False


class Answered(NamedTuple):
    """The final answer."""

    text: str


class Stray(NamedTuple):
    """A line that is not of the format, without its end."""

    line: bytes


class Skipped(NamedTuple):
    """A line that is too long to be looked at, and its size in bytes."""

    size: int


Event = Said | Called | Known | Spent | Trouble | Limited | Failed | Answered | Stray | Skipped
