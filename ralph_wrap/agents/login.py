"""Look for the login of an agent: whether there is one and where, never what it is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.agents.definition import Agent, below_home

_EMPTY = 4  # bytes: an empty JSON object and a newline are a login that was taken away


class LoginPlace(NamedTuple):
    """Where the login of an agent was found.

    Attributes:
        variable: the name of the environment variable; empty if it is a file.
        path: of the file.
        readable: this user can read the file.
        writable: this user can write a new token into the file.

    """

    variable: str = ""
    path: Path = Path()
    readable: bool = True
    writable: bool = True

    def __str__(self) -> str:
        return self.variable or os.fspath(self.path)


def look_for_login(agent: Agent, environ: Mapping[str, str]) -> LoginPlace | None:
    """Return where an agent finds its login; ``None`` if it has none that we know to look for.

    An agent prefers a variable to a file, so a variable is reported first. No file is read.

    Arguments:
        environ: of the agent; ``HOME`` is its user's.

    """
    if variable := next((name for name in agent.login.variables if environ.get(name)), ""):
        return LoginPlace(variable)
    places = [_place(path) for path in login_files(agent, environ)]
    found = [place for place in places if place is not None]
    return next((place for place in found if place.readable), found[0] if found else None)


def login_files(agent: Agent, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that are a login of an agent, where its user has them."""
    home = Path(environ.get("HOME") or "/")
    return [_below(agent, name, home, environ) for name in agent.login.files]


def known_places(agent: Agent, environ: Mapping[str, str]) -> str:
    """Return where an agent looks for a login, for people."""
    return ", ".join([*agent.login.variables, *map(shlex.quote, map(str, login_files(agent, environ)))])


def _below(agent: Agent, name: str, home: Path, environ: Mapping[str, str]) -> Path:
    for own in agent.homes:
        if name.startswith(f"{own.path}/"):
            return own.directory(home, environ) / name.removeprefix(f"{own.path}/")
    return below_home(name, home, environ)


def _place(path: Path) -> LoginPlace | None:
    try:
        if path.stat().st_size < _EMPTY:
            return None
    except PermissionError:  # it may be there
        return LoginPlace("", path, readable=False, writable=False)
    except OSError:
        return None
    # An agent replaces the file, or writes into it: a file that is mounted alone cannot be replaced.
    is_replaceable = os.access(path.parent, os.W_OK | os.X_OK) and not path.is_mount()
    return LoginPlace("", path, os.access(path, os.R_OK), is_replaceable and os.access(path, os.W_OK))
