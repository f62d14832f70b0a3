"""What is to be known of an agent's command line."""

from __future__ import annotations

from typing import NamedTuple


class Agent(NamedTuple):
    """An agent that is known by name.

    Attributes:
        name: as in ``--agent NAME``.
        command: for unattended work, the prompt on its standard input.
        install: the command line that installs it.

    """

    name: str
    command: tuple[str, ...]
    install: str
