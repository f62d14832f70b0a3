"""The definition of an agent's command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_BASES = {
    ".config/": "XDG_CONFIG_HOME",
    ".local/share/": "XDG_DATA_HOME",
    ".local/state/": "XDG_STATE_HOME",
    ".cache/": "XDG_CACHE_HOME",
}
"""The directories of the XDG base directory specification, and the variables that name others."""


def below_home(name: str, home: Path, environ: Mapping[str, str]) -> Path:
    """Return where a file or directory below a user's home is, also if an XDG variable moves it."""
    for beginning, variable in _BASES.items():
        if name.startswith(beginning) and (base := environ.get(variable)):
            return Path(base, name.removeprefix(beginning))
    return home / name


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

    def directory(self, home: Path, environ: Mapping[str, str]) -> Path:
        """Return where it is for a user."""
        return Path(environ.get(self.variable) or below_home(self.path, home, environ))


class AgentLogin(NamedTuple):
    """Where an agent finds its login, and how it says that it has none.

    Where to look is for ``doctor``. How it says so ends a session (``ended_by: not-logged-in``), so these
    must be signs that the agent alone can give: no prompt, tool or project may cause them. A reader of
    ``ralph_wrap.agents.output`` sets ``AgentFailure.logged_out`` where the stream itself has such a sign, an
    HTTP status 401 for example; *statuses* and *words* are for what a stream does not say.

    Attributes:
        variables: environment variables; each one alone is a login.
        files: files below the user's home; each one alone is a login. In a directory of ``Agent.homes``, its
            variable counts.
        command: what logs a user in, for people.
        statuses: exit statuses with which the agent ends only because it has no login.
        words: regular expressions for the beginning of its final error; each one says that it has no login.
        endings: the same for all of the last lines of its stderr, where its final error has several. Empty
            lines and indentation do not count; what is told is the first one of these lines.

    """

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    command: str = ""
    statuses: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()


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
        login: where it finds its login, and how it says that it has none.

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
    login: AgentLogin = AgentLogin()
