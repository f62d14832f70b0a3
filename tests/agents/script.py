"""What the scripted model is to do, turn by turn."""

from __future__ import annotations

from typing import Any, NamedTuple

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 100
"""Of each turn."""


class Say(NamedTuple):
    """An answer in words, which ends the agent's work.

    Attributes:
        text: the words.
        thought: what the model thinks before, where the protocol can tell.
        pieces: in how many it is streamed.
        pause: seconds between them.

    """

    text: str
    thought: str = ""
    pieces: int = 1
    pause: float = 0.0


class Shell(NamedTuple):
    """A command for the agent's shell, with some words before it.

    Attributes:
        output_tokens: of the turn, in the protocol of Claude Code.

    """

    command: str
    text: str = ""
    output_tokens: int = OUTPUT_TOKENS


class Write(NamedTuple):
    """A file to be written by the agent's own tool."""

    path: str
    content: str


class Limited(NamedTuple):
    """The account's usage limit is reached until a time, in seconds since the epoch, or none."""

    until: int | None = None


class Failing(NamedTuple):
    """The service answers with an error: 529 or 503 is an overload."""

    status: int = 529


class Refusing(NamedTuple):
    """The service answers with this document, as its vendor has described it."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = {}  # noqa: RUF012 -- nobody changes it


class Hanging(NamedTuple):
    """No answer ever comes."""


class Dropping(NamedTuple):
    """The connection ends in the middle of an answer."""


Turn = Say | Shell | Write | Limited | Failing | Refusing | Hanging | Dropping
