"""Checks of the project and the machine, each with its result, its reason, and a command that fixes it.

The checks change nothing. They call the functions that a session calls, or try them on a file that they
delete again. A check fails if a session here would not be isolated, or would not survive ``docker stop``.
Other facts that a user should know are notes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import config
from ralph_wrap.commands.doctor import container, probes, sandbox, storage, tools
from ralph_wrap.commands.doctor import project as project_checks
from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.config import SandboxMode, Settings
from ralph_wrap.errors import (
    TO_SEE_DAMAGE,
    AgentError,
    GitError,
    GitTooOldError,
    NotARepositoryError,
    ProblemsError,
    RalphError,
    UntrustedError,
    UsageError,
)
from ralph_wrap.session import preflight
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system import privileges
from ralph_wrap.system.container import mark

_COMMAND = ("/bin/sh",)  # stands for an agent, and always exists


class Diagnosis(NamedTuple):
    """The results of all checks.

    Attributes:
        checks: all checks, in the order in which a session meets their subjects.
        problem: the error if a check failed, else ``None``.

    """

    checks: tuple[DoctorCheck, ...]
    problem: RalphError | None


def examine(directory: Path, environ: Mapping[str, str], root: Path = Path("/")) -> Diagnosis:
    """Run all checks. Root becomes the owner of the project first, as a session does.

    Arguments:
        directory: the project's directory as the user named it.
        root: the directory that has ``/proc`` and the marks of a container.

    Raises:
        UsageError: the directory does not exist.

    """
    began_as, refused = os.geteuid(), None
    try:
        environ = privileges.become_owner(directory, environ)
    except RalphError as error:
        refused = error
        environ = privileges.with_home(environ)
    project = find_project(directory, environ)
    settings, configuration = _settings(directory, project)
    owner = project_checks.owner(project, began_as, refused)
    checks = (
        *_project_checks(settings, configuration, project, owner),
        *probes.locks(project),
        probes.subreaper(),
        *sandbox.confinement(environ),
        *storage.mounts(project, contained=mark(root) is not None),
        container.first_process(root, os.getpid()),
        container.stop_timeout(root),
        *project_checks.agents(environ, _chosen(settings), dict(settings.agents)),
        project_checks.python(),
    )
    return Diagnosis(checks, _problem(checks, project.obstacle))


def _project_checks(
    settings: Settings, configuration: DoctorCheck, project: Project, owner: DoctorCheck
) -> Iterator[DoctorCheck]:
    yield project_checks.git_version(project)
    yield from project_checks.repository(project)
    yield owner
    yield project_checks.home(project)
    yield project_checks.private_files(project)
    yield project_checks.state(project)
    yield configuration
    yield project_checks.commands(settings, project)
    if project.repository is None:
        return
    repository = project.repository
    yield _run_check("repository files", lambda: project_checks.repository_files(repository))
    yield _run_check("branch names", lambda: project_checks.branch_names(project))
    try:
        yield from project_checks.own_refs(project)
        yield from project_checks.own_packs(repository)
    except GitError as error:
        yield _failed_by_git("refs", error)
    yield from project_checks.worktrees(project)
    yield _run_check("ignore rule", lambda: project_checks.ignore_rule(project, settings.ignore))
    if around := project.around_worktrees:
        yield from tools.worktree_finders(around[1].root)
    yield _run_check("committer", lambda: _base(settings, project))
    if commit := repository.head:
        yield _run_check("filters", lambda: project_checks.filters(project, repository, commit))
    yield _run_check("disk", lambda: storage.disk(project))
    yield _run_check("kept", lambda: storage.kept(project))


def _run_check(name: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    """Return the result of a check, or a failed check if git fails."""
    try:
        return check()
    except GitError as error:
        return _failed_by_git(name, error)


def _failed_by_git(name: str, error: GitError) -> DoctorCheck:
    why = "a session runs the same git command"
    return failed(name, error.message, why, f"git status && {TO_SEE_DAMAGE}")


def _settings(directory: Path, project: Project) -> tuple[Settings, DoctorCheck]:
    why = "no session starts with an invalid configuration"
    try:
        settings = config.load(directory, project.main, Path.cwd(), {}, project.environ, _COMMAND)
    except UsageError as error:
        return Settings(directory, _COMMAND), failed("configuration", error.message, why, error.hint)
    return settings, fine("configuration", "can be read", why)


def _base(settings: Settings, project: Project) -> DoctorCheck:
    """Check the base and the identity of the committer, as a session does before it starts."""
    name, why = "committer", "git refuses a commit without an identity; then ralph-wrap is the committer"
    try:
        identity = preflight.committer(project)
        preflight.look_first(settings._replace(sandbox=SandboxMode.OFF), project)
    except UntrustedError:
        pass  # another check says it
    except (UsageError, AgentError) as error:
        return failed("base", error.message, "every session starts from this commit", error.hint)
    if not identity:
        return fine(name, "git has an identity", why)
    return noted(
        name,
        f"git has no identity here: the committer is {identity['GIT_COMMITTER_NAME']}",
        why,
        "git config --global user.name NAME && git config --global user.email ADDRESS",
    )


def _chosen(settings: Settings) -> set[str]:
    """Return the agents that the configuration names: the first one, and its fallback."""
    names = (str(settings.stated.get(key, "")) for key in ("agent", "fallback"))
    return {name for text in names for name in text.split("\n") if name}


def _problem(checks: tuple[DoctorCheck, ...], obstacle: RalphError | None) -> RalphError | None:
    failing = [check.check for check in checks if not check.ok]
    if not failing:
        return None
    if isinstance(obstacle, NotARepositoryError | GitTooOldError):
        return obstacle
    return ProblemsError(
        f"{len(failing)} of {len(checks)} checks failed: {', '.join(failing)}", "see the fix of each"
    )


__all__ = ["Diagnosis", "DoctorCheck", "examine"]
