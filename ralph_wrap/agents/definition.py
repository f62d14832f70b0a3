"""The definition of an agent's command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class AgentHome(NamedTuple):
    """A directory below the user's home in which an agent keeps its configuration and its state.

    In a sandbox, the agent reads all of it. What other runs of the agent execute stays as it is: settings,
    hooks, plugins. A new entry is the agent's own, and goes with the sandbox.

    Attributes:
        path: relative to the home.
        variable: the environment variable that names another directory instead.
        kept: the entries that the agent in the sandbox changes: credentials, conversations. A directory ends
            with a slash; the session creates it, as the agent would.
        fresh: the directories that it finds empty, and that go with the sandbox.

    """

    path: str
    variable: str = ""
    kept: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()


class Agent(NamedTuple):
    """A known agent.

    Attributes:
        name: as in ``--agent NAME``.
        command: the command line for unattended work; the agent does not ask for permission. ``{prompt}``
            stands for the prompt, ``{prompt_file}`` for a file with the prompt.
        install: the command line that installs it.
        prompt: how it takes the prompt: ``stdin``, ``argument`` or ``file``; the placeholder in *command*
            shows the position.
        output: the format of its output: ``text``, or a format of ``ralph_wrap.agents.output``.
        contained_root: environment variables that the agent needs as root in a container.
        model: options that choose the model; ``{model}`` stands for its name.
        budget: options that limit its cost; ``{left}`` stands for US dollars.
        metering: options that make it report its tokens after each turn.
        resume: options that continue an earlier session of the agent; ``{session}`` stands for its name.
        homes: its directories below the user's home.
        copied: files below the user's home that it rewrites; in a sandbox it gets a copy of each.

    """

    name: str
    command: tuple[str, ...]
    install: str
    prompt: str = "stdin"
    output: str = "text"
    contained_root: Mapping[str, str] = {}
    model: tuple[str, ...] = ("--model", "{model}")
    budget: tuple[str, ...] = ()
    metering: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    homes: tuple[AgentHome, ...] = ()
    copied: tuple[str, ...] = ()
