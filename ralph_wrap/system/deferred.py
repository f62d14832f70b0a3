"""What loads or compiles at its first use, and why. At the top of a module it would delay every start.

::

    from ralph_wrap.system import deferred

    _NUMBER = deferred.pattern("[0-9]+")

    deferred.hashlib.sha256()

While an agent works, another version of ralph-wrap may be installed. So a session loads all that it can need
while git checks out its worktree (:func:`load_session`), and a server does so at its start.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio as asyncio
    import ctypes as ctypes
    import datetime as datetime  # noqa: ICN001 -- each name is that of its module
    import difflib as difflib
    import hashlib as hashlib
    import shutil as shutil
    import socket as socket
    import tempfile as tempfile
    import tomllib as tomllib
    import traceback as traceback
    from collections.abc import Mapping
    from typing import Any, AnyStr

    import psutil as psutil
    import structlog as structlog

    from ralph_wrap.config import agent_tables as agent_tables
    from ralph_wrap.config import job as job
    from ralph_wrap.config import trust as trust
    from ralph_wrap.git import object_reader as object_reader
    from ralph_wrap.git import remote as remote
    from ralph_wrap.git import shadow as shadow
    from ralph_wrap.git.safe import limited as limited
    from ralph_wrap.session import agent_loop as agent_loop
    from ralph_wrap.session import checkpoint as checkpoint
    from ralph_wrap.session import clone_end as clone_end
    from ralph_wrap.session import exit_report as exit_report
    from ralph_wrap.session import open_clone as open_clone
    from ralph_wrap.session import plain_root as plain_root
    from ralph_wrap.session import worktree_end as worktree_end
    from ralph_wrap.session.remote import claiming as claiming
    from ralph_wrap.session.remote import give_back as give_back
    from ralph_wrap.session.remote import push as push
    from ralph_wrap.session.sandbox import backend as backend
    from ralph_wrap.session.sandbox import start as start
    from ralph_wrap.state import landings as landings
    from ralph_wrap.state import report as report
    from ralph_wrap.state import session_start as session_start
    from ralph_wrap.state.audit import guard as guard
    from ralph_wrap.system import container as container
    from ralph_wrap.system import dialogue as dialogue
    from ralph_wrap.system.files import lock_holder as lock_holder
    from ralph_wrap.worktree import restore as restore
    from ralph_wrap.worktree import warm as warm
    from ralph_wrap.worktree.create import report_copies as report_copies
    from ralph_wrap.worktree.create import submodules as submodules
    from ralph_wrap.worktree.leaks import compare as compare
    from ralph_wrap.worktree.leaks import observation as observation
    from ralph_wrap.worktree.pool import maintenance as maintenance
    from ralph_wrap.worktree.save import sync as sync

FOR_SOME_COMMANDS = {
    "asyncio": "asyncio",  # "async with" of the Python API
    "psutil": "psutil",  # what sessions use
    "structlog": "structlog",  # messages on a terminal
}
FOR_SOME_PROJECTS = {
    "agent_tables": "ralph_wrap.config.agent_tables",  # agents in a configuration file
    "backend": "ralph_wrap.session.sandbox.backend",  # a sandbox
    "clone_end": "ralph_wrap.session.clone_end",  # a session in a clone
    "open_clone": "ralph_wrap.session.open_clone",  # the same
    "container": "ralph_wrap.system.container",  # an agent that root runs
    "difflib": "difflib",  # a misspelt name
    "claiming": "ralph_wrap.session.remote.claiming",  # a session that is mirrored to a remote
    "give_back": "ralph_wrap.session.remote.give_back",  # a mirrored session that was killed at its start
    "job": "ralph_wrap.config.job",  # a job that another program has written
    "shadow": "ralph_wrap.git.shadow",  # a difference, which no configuration of the repository changes
    "plain_root": "ralph_wrap.session.plain_root",  # a session without a worktree
    "push": "ralph_wrap.session.remote.push",  # a session that pushes its branch
    "restore": "ralph_wrap.worktree.restore",  # a session that goes on from an earlier one
    "socket": "socket",  # a sandbox with a network of listed hosts
    "start": "ralph_wrap.session.sandbox.start",  # a sandbox
    "tempfile": "tempfile",  # a sandbox without bubblewrap
    "tomllib": "tomllib",  # a configuration file
    "trust": "ralph_wrap.config.trust",  # a project that decides more than limits
    "traceback": "traceback",  # an error that we did not expect
}
_FOR_WORKTREES = {
    "hashlib": "hashlib",
    "shutil": "shutil",
    "dialogue": "ralph_wrap.system.dialogue",
    "ctypes": "ctypes",  # inotify, prctl, syncfs: after git has begun to check out
    "landings": "ralph_wrap.state.landings",
    "limited": "ralph_wrap.git.safe.limited",
    "lock_holder": "ralph_wrap.system.files.lock_holder",
    "object_reader": "ralph_wrap.git.object_reader",
    "remote": "ralph_wrap.git.remote",
    "report_copies": "ralph_wrap.worktree.create.report_copies",
    "submodules": "ralph_wrap.worktree.create.submodules",
    "compare": "ralph_wrap.worktree.leaks.compare",
    "observation": "ralph_wrap.worktree.leaks.observation",
    "sync": "ralph_wrap.worktree.save.sync",
    "warm": "ralph_wrap.worktree.warm",
}
_FOR_POOLS = {"maintenance": "ralph_wrap.worktree.pool.maintenance"}
_FOR_SESSIONS = {
    "agent_loop": "ralph_wrap.session.agent_loop",
    "checkpoint": "ralph_wrap.session.checkpoint",
    "datetime": "datetime",
    "exit_report": "ralph_wrap.session.exit_report",
    "report": "ralph_wrap.state.report",
    "session_start": "ralph_wrap.state.session_start",
    "guard": "ralph_wrap.state.audit.guard",
    "worktree_end": "ralph_wrap.session.worktree_end",
}
MODULES = {**FOR_SOME_COMMANDS, **FOR_SOME_PROJECTS, **_FOR_WORKTREES, **_FOR_POOLS, **_FOR_SESSIONS}
"""The full name of each module, by the name that this module gives it."""


if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> object:
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(MODULES[name])


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled at its first use, which takes 0.1 ms or more."""
    compiled_later: Any = _Pattern(text, flags)
    return compiled_later  # type: ignore[no-any-return]  # it has the methods of a pattern


class _Pattern:
    """Compiles the expression when a method of it is first asked for.

    Arguments:
        text: the expression.
        flags: as :func:`re.compile` takes them.

    """

    def __init__(self, text: Any, flags: int) -> None:
        self._arguments = (text, flags)

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._arguments), name)
        setattr(self, name, value)  # the next use finds it without this method
        return value


def load_worktrees() -> None:
    """Load all that makes, saves and removes worktrees."""
    _load(_FOR_WORKTREES | _FOR_POOLS)


def load_session(*, pool: bool) -> None:
    """Load all that a session needs for its agent, and to save its work.

    Arguments:
        pool: the session has a pool of warm worktrees.

    """
    _load(_FOR_WORKTREES | _FOR_SESSIONS | (_FOR_POOLS if pool else {}))


def load_for_other_user() -> None:
    """Load all that a process may need after it has become a user who perhaps cannot read our files."""
    _load(FOR_SOME_PROJECTS | _FOR_WORKTREES | _FOR_POOLS | _FOR_SESSIONS)


def _load(modules: Mapping[str, str]) -> None:
    for name in modules.values():
        import_module(name)
