"""The plain project root as the workspace of a session, without a worktree.

Falling back to it is for projects. An agent that may do everything must not begin to work in a home
directory, or on all repositories at once, because its user stood in the wrong place.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.config import Isolation
from ralph_wrap.errors import NotARepositoryError, PlainRootBusyError, UsageError
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.workspace import Workspace
from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.log import get_logger

log = get_logger()

_LEVELS = 2  # below a directory, for repositories: ~/src/app, ~/src/team/app
_MOST_DIRECTORIES = 2000
_ON_PURPOSE = "to let the agent work in this directory itself: --isolation off"


def require_project(project: Project) -> None:
    """Check that a session may fall back to a directory.

    Raises:
        UsageError: it has a home directory in it, or is not a repository and holds some.

    """
    top = project.checkout
    if any(home.is_relative_to(top) for home in _homes(project)):
        what = "has everything in it" if top == Path("/") else "is a home directory, or has one in it"
        raise UsageError(
            f"{top} is in no git repository that can have worktrees, and {what}: no agent is started in it",
            f"to name a project: -C DIRECTORY; {_ON_PURPOSE}",
        )
    if not isinstance(project.obstacle, NotARepositoryError):
        return
    if (held := next(_repositories_in(top), None)) is not None:
        raise UsageError(
            f"{top} is in no git repository, and holds {held}: an agent is not started by mistake where it"
            " could change several projects",
            f"to work on that one: -C {shlex.quote(os.fspath(held))}; {_ON_PURPOSE}",
        )


def _homes(project: Project) -> Iterator[Path]:
    yield Path("/")
    names = [project.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        names.append(pwd.getpwuid(os.geteuid()).pw_dir)
    for name in filter(os.path.isabs, names):
        yield Path(os.path.realpath(name))


def _repositories_in(top: Path) -> Iterator[Path]:
    """Yield the repositories in a directory that is no project; only the first directories are looked at."""
    level, seen = [top], 0
    for _ in range(_LEVELS):
        below: list[Path] = []
        for directory in level:
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                below += sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
        below = below[: _MOST_DIRECTORIES - seen]
        seen += len(below)
        yield from (path for path in below if os.path.lexists(path / ".git"))
        level = below


def enter_plain_root(context: SessionContext, fallback: str | None) -> Workspace:
    """Lock the plain project root, and return it as the workspace.

    Arguments:
        fallback: reason for the plain project root, if isolation was wanted.

    Raises:
        PlainRootBusyError: another session works in it.

    """
    root = context.project.checkout
    try:
        lock = files.try_lock(root)
    except OSError as error:
        log.warning(
            "plain_root.unlocked",
            f"{root} cannot be locked ({error.strerror}): a second session in it would not be noticed",
        )
        return Workspace(root, fallback=fallback)
    if lock is None:
        session = _session_in(root, context)
        message = f"{session} works in {root} already" if session else _holder_of(root)
        if context.settings.isolation is not Isolation.OFF:
            raise PlainRootBusyError(
                message, "wait for it, or share the directory on purpose with --isolation off"
            )
        log.warning("plain_root.shared", message, "--isolation off was given, so both work in it")
    return Workspace(root, lock=lock, fallback=fallback)


def _holder_of(root: Path) -> str:
    return f"another session works in {root} already: {lock_holder.held_lock(root).sentence}"


def _session_in(root: Path, context: SessionContext) -> str:
    for registry in registries(context.project):
        for record in registry.unfinished():
            with contextlib.suppress(OSError):
                if (
                    isinstance(record, SessionRecord)
                    and record.id != context.record.id
                    and record.workspace == os.fspath(root)
                    and registry.is_locked(record.id)
                ):
                    return f"session {record.session}"
    return ""
