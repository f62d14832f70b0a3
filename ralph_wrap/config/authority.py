"""What a project decides beyond limits, so that a session needs the user's word for it.

An agent can write ``.ralph/config.toml``, and a clone brings it. A limit or a duration in it can only make a
session longer or shorter. Every other key decides what runs, what is read, or where work goes. So does the
prompt file of a project: its text is handed to an agent with the rights of the user.

:mod:`ralph_wrap.config.trust` keeps what the user has approved. What the user types, or sets in the
environment, needs no approval: it replaces the key of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ralph_wrap.config.options import CHECK_IS_GATE, ROWS, Settings
from ralph_wrap.config.parsers import COUNT, DOLLARS, DURATIONS, written
from ralph_wrap.config.settings import Isolation
from ralph_wrap.config.table import KEY
from ralph_wrap.system import privileges

PROMPT = Path("PROMPT.md")
"""The default prompt file, below the project root."""

LEADS_TO = " (it leads to "
"""What follows the path of a prompt file, and comes before what a symlink leads to."""

APPROVALS = "trust"
"""The directory in which :mod:`ralph_wrap.config.trust` keeps what the user has approved."""

IMPLIES = "RALPH_TRUST"
"""The variable with which the user approves everything; its value is 1."""

OWNER = "owner"
"""The key of the owner of the configuration file, if that is another user."""

DELETING = ("keep_dropped", "keep_sessions")
"""Durations that need the user's word: a short one deletes what the user could still restore or read."""

_LIMITS = (COUNT, *DURATIONS, DOLLARS)
_PROMPTS = ("prompt", "prompt_file", os.fspath(PROMPT))


def any_approved(environ: Mapping[str, str]) -> bool:
    """Tell within a moment whether the user may have approved anything, in any project."""
    return os.path.exists(privileges.state_home(environ) / APPROVALS)  # noqa: PTH110 -- False where we may not look


def needs_approval(name: str) -> bool:
    """Return whether a key of the configuration file needs the user's word."""
    row = ROWS[name]
    return KEY in row.sources and (row.kind not in _LIMITS or name in DELETING)


def stated(root: Path, values: Mapping[str, Any], owner: int | None) -> dict[str, Any]:
    """Return what a project decides beyond limits, by key, in the form in which the user approves it.

    Arguments:
        root: the project root.
        values: of the configuration file, by key.
        owner: user id of the owner of the configuration file; ``None`` if there is no file.

    """
    found: dict[str, Any] = {}
    if owner not in {None, 0, os.geteuid()}:
        found[OWNER] = f"user id {owner} owns .ralph/config.toml"
    for name, value in values.items():
        if name == "agents":
            found |= {f"agents.{agent}": _lists(table.stated()) for agent, table in value}
        elif name == "prompt_file":
            found[name] = _with_target(root, value)
        elif needs_approval(name) and value != ROWS[name].default:
            found[name] = written(value, ROWS[name].kind)
    if not values.keys() & {*_PROMPTS} and os.path.lexists(root / PROMPT):
        found[os.fspath(PROMPT)] = _with_target(root, PROMPT)
    return found


def _lists(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: [*value] if isinstance(value, tuple) else value for key, value in table.items()}


def _with_target(root: Path, path: Path) -> str:
    """Return a path, with what it leads to if that is not the same path below the root.

    The user approves both: a symlink that leads elsewhere later is another text.
    """
    plain = Path(os.path.realpath(root), path)
    target = os.path.realpath(plain)
    return os.fspath(path) if target == os.fspath(plain) else f"{path}{LEADS_TO}{target})"


def needed_to_land(settings: Settings) -> frozenset[str]:
    """Return the keys that decide how a branch lands."""
    return frozenset({"check", "main"} | ({"verify"} if settings.check.strip() == CHECK_IS_GATE else set()))


def in_force(settings: Settings) -> Callable[[str], bool]:
    """Return a function that tells whether a session with these settings depends on a key of the project."""
    unused = {*settings.replaced, *DELETING}
    if settings.isolation is Isolation.OFF:
        unused |= {
            row.name for row in Settings.options if row.group == "worktree" and row.name != "isolation"
        }
    if not settings.agent:  # the user has typed a command
        unused |= {"agent", "model", "agent_arg", "fallback"}
    if not settings.merge_on_complete:
        unused |= {"check", "main"}
    if not settings.notify:
        unused.add("notify_on")
    if not settings.verify:
        unused.add("verify_each")
    if not settings.pool:
        unused.add("pool_keep")
    if unused & {*_PROMPTS}:
        unused |= {*_PROMPTS}

    def depends(key: str) -> bool:
        kind, _, agent = key.partition(".")
        return agent in {settings.agent, *settings.fallback} if kind == "agents" else key not in unused

    return depends
