"""Write the first files of a project: a prompt, a configuration, and its schema.

A file that exists is never changed, and neither is what a symlink leads to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import agents, config
from ralph_wrap.commands.quickstart import templates
from ralph_wrap.config import trust
from ralph_wrap.config.schema import schema
from ralph_wrap.errors import RefusedError, UntrustedError, UsageError
from ralph_wrap.state.project import Project
from ralph_wrap.system import files, privileges

SCHEMA = config.CONFIG.with_name("config.schema.json")
"""The schema that the configuration names, for editors."""


def _contents(agent: str) -> dict[Path, str]:
    """Return the text of each file, by its path below the project root."""
    return {
        config.PROMPT: templates.PROMPT,
        config.CONFIG: templates.configuration(agent),
        SCHEMA: json.dumps(schema(), indent=2) + "\n",
    }


class FirstFiles(NamedTuple):
    """The first files of a project after a quickstart.

    Attributes:
        written: the files that are new, relative to the project root.
        kept: the files that were there, and are unchanged.
        options: the options of ``ralph-wrap run`` that the project needs; the configuration may give all.

    """

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    options: tuple[str, ...]


def missing(project: Project) -> list[Path]:
    """Return the files that :func:`write` would write, relative to the project root."""
    return [path for path in _contents("") if not os.path.lexists(project.main / path)]


def check_name(project: Project, agent: str) -> None:
    """Check the name of an agent.

    Raises:
        UsageError: the agent is neither known nor in the configuration.

    """
    names = sorted({*agents.NAMES, *dict(config.of_project(project.main, project.environ).agents)})
    if agent not in names:
        raise UsageError(f"unknown agent {agent!r}", f"known agents: {', '.join(names)}")


def write(project: Project, agent: str) -> FirstFiles:
    """Write each file that is missing. The user has chosen what it says, so it needs no other approval.

    Arguments:
        agent: its name; :func:`check_name` accepts it.

    Raises:
        UntrustedError: the caller is inside a session: an agent must not approve what it chooses.
        RefusedError: ``.ralph`` is a symlink, or is no directory.
        OSError: a file cannot be written.

    """
    if session := project.environ.get("RALPH_SESSION_ID"):
        raise UntrustedError(
            f"quickstart cannot run inside session {session}", "run it in a terminal outside the session"
        )
    directory = (project.main / config.CONFIG).parent
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise RefusedError(f"{directory} is not a directory", "replace it by a directory")
    directory.mkdir(exist_ok=True)
    contents = _contents(agent)
    written = tuple(path for path, text in contents.items() if _is_new(project.main / path, text))
    _approve(project, written)
    current = config.of_project(project.main, project.environ)
    return FirstFiles(
        written,
        tuple(path for path in contents if path not in written),
        () if current.agent == agent else ("--agent", agent),
    )


def _is_new(path: Path, content: str) -> bool:
    """Write a file unless something has its name; return whether it was written."""
    try:
        files.claim(path, content.encode())
    except FileExistsError:
        return False
    return True


def _approve(project: Project, written: Container[Path]) -> None:
    """Approve what the new files decide, and nothing of a file that was there."""
    stated = config.of_project(project.main, project.environ).stated
    if trust.implied(project.environ):
        return
    missing = trust.unapproved(project.main, stated, project.environ)
    ours = {
        key: value
        for key, value in stated.items()
        if key not in missing
        or (config.PROMPT if key == os.fspath(config.PROMPT) else config.CONFIG) in written
    }
    if ours.keys() & missing.keys():
        trust.approve(project.main, ours, privileges.ensure_home(project.environ))


__all__ = ["SCHEMA", "FirstFiles", "check_name", "missing", "write"]
