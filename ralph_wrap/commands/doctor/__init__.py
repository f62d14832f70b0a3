"""What would go wrong here: checks, each with what it found, why that matters, and the command that mends it.

Nothing is changed and nothing is left behind: a check asks what a session would ask, of the same functions,
or tries it on a file that is gone when the check ends. A check fails if a session here would not be isolated,
or would not survive ``docker stop``; whatever else is worth knowing is a note.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import agents, config
from ralph_wrap.commands.doctor import container, probes, storage
from ralph_wrap.commands.doctor import project as project_checks
from ralph_wrap.commands.doctor.result import Check, failed, fine, noted
from ralph_wrap.config import Settings
from ralph_wrap.errors import (
    AgentError,
    GitError,
    GitTooOldError,
    NotARepositoryError,
    RalphError,
    UsageError,
)
from ralph_wrap.session import preflight
from ralph_wrap.state import project
from ralph_wrap.system import privileges
from ralph_wrap.system.container import mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ralph_wrap.state.project import Project

_COMMAND = ("/bin/sh",)  # any agent that is there


class Diagnosis(NamedTuple):
    """What was found.

    Attributes:
        checks: all of them, in the order in which a session meets what they are about.
        problem: what keeps a session here from being isolated or from surviving ``docker stop``.

    """

    checks: tuple[Check, ...]
    problem: RalphError | None


def examine(directory: Path, environ: Mapping[str, str], root: Path = Path("/")) -> Diagnosis:
    """Check what would go wrong with a session; if root's, it becomes the project's owner, as a session does.

    Arguments:
        directory: the project that was named.
        root: where ``/proc`` and the marks of a container are.

    Raises:
        UsageError: the directory is not there.

    """
    began_as, refused = os.geteuid(), None
    try:
        environ = privileges.become_owner(directory, environ, before=_load_the_rest)
    except RalphError as error:
        refused = error
        environ = privileges.with_home(environ, os.geteuid())
    found = project.find(directory, environ)
    checks = (
        *_place(directory, found, environ, project_checks.owner(found, began_as, refused)),
        *probes.locks(found),
        probes.events(found, storage.kind(found.root)),
        probes.subreaper(),
        *storage.mounts(found, contained=mark(root) is not None),
        container.first_process(root),
        container.stop_timeout(root),
        *project_checks.agents(environ),
        project_checks.python(),
    )
    return Diagnosis(checks, _problem(checks, found.obstacle))


def _place(directory: Path, found: Project, environ: Mapping[str, str], owner: Check) -> Iterator[Check]:
    yield project_checks.git_version(found, environ)
    yield from project_checks.repository(found, environ)
    yield owner
    yield project_checks.state(found, environ)
    settings, configuration = _settings(directory, found, environ)
    yield configuration
    yield project_checks.commands(settings, found, environ)
    if found.repository is None:
        return
    repository = found.repository
    yield _asked("repository files", lambda: project_checks.repository_files(repository))
    yield _asked("branch names", lambda: project_checks.branch_names(found, environ))
    yield _asked(
        "ignore rule", lambda: project_checks.ignore_rule(found, repository, settings.ignore, environ)
    )
    yield _asked("committer", lambda: _base(settings, found, environ))
    yield _asked("disk", lambda: storage.disk(found, environ))


def _asked(name: str, ask: Callable[[], Check]) -> Check:
    """Return an answer of git's, or that there is none."""
    try:
        return ask()
    except GitError as error:
        return failed(name, error.message, "a session asks git the same", "git status && git fsck")


def _settings(directory: Path, found: Project, environ: Mapping[str, str]) -> tuple[Settings, Check]:
    why = "without a configuration that can be read no session starts"
    try:
        settings = config.load(directory, found.root, Path.cwd(), {}, environ, _COMMAND)
    except UsageError as error:
        return Settings(directory, _COMMAND), failed("configuration", error.message, why, error.hint)
    return settings, fine("configuration", "can be read", why)


def _base(settings: Settings, found: Project, environ: Mapping[str, str]) -> Check:
    """Look first, as a session does: at the commit to start from, and at who commits."""
    name, why = "committer", "git refuses a commit by nobody; then ralph-wrap is named as the committer"
    try:
        outlook = preflight.look_first(settings, found, found.git(environ), environ)
    except (UsageError, AgentError) as error:
        return failed("base", error.message, "every session starts from this", error.hint)
    if not outlook.identity:
        return fine(name, "git knows one", why)
    return noted(
        name,
        f"git knows none here: {outlook.identity['GIT_COMMITTER_NAME']} commits",
        why,
        "git config --global user.name NAME && git config --global user.email ADDRESS",
    )


def _problem(checks: tuple[Check, ...], obstacle: RalphError | None) -> RalphError | None:
    failing = [check.check for check in checks if not check.ok]
    if not failing:
        return None
    if isinstance(obstacle, NotARepositoryError | GitTooOldError):
        return obstacle
    return RalphError(
        f"{len(failing)} of {len(checks)} checks failed: {', '.join(failing)}", "see the fix of each"
    )


def _load_the_rest() -> None:
    # Python may be installed where only root can read.
    ours = ("ralph_wrap.config.agent_tables", *(f"{agents.__name__}.{name}" for name in agents.NAMES))
    for seldom_used in (*ours, "hashlib", "tempfile", "tomllib", "traceback"):
        import_module(seldom_used)


__all__ = ["Check", "Diagnosis", "examine"]
