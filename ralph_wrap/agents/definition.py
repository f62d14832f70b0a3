"""What is to be known of an agent's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Agent(NamedTuple):
    """An agent that is known by name.

    Attributes:
        name: as in ``--agent NAME``.
        command: for unattended work: it asks nobody for permission. ``{prompt}`` and ``{prompt_file}`` in it
            stand for the prompt, and for a file that holds it.
        install: the command line that installs it.
        prompt: how it takes the prompt: ``stdin``, or ``argument`` or ``file``, where the command says.
        output: the format of what it prints: ``text``, or one that ``ralph_wrap.agents.output`` knows.
        contained_root: environment variables for root in a container.
        budget: more words for the command that cap what it may spend, ``{left}`` being US dollars.
        resume: more words for the command that take up an earlier session of its own, ``{session}``.

    """

    name: str
    command: tuple[str, ...]
    install: str
    prompt: str = "stdin"
    output: str = "text"
    contained_root: Mapping[str, str] = {}
    budget: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
