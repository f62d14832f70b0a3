"""Checks of the project: its git, its owner, its writable directories, and the agents."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ralph_wrap.agents import NAMES, Agent, installed, known
from ralph_wrap.agents.login import known_places, look_for_login
from ralph_wrap.branches.broken import broken_refs, is_in_use, removal_of
from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.commands.doctor.storage import existing_parent
from ralph_wrap.config import IgnoreLocation, Settings, trust
from ralph_wrap.config.authority import DELETING, any_approved, in_force
from ralph_wrap.config.settings import AgentTable
from ralph_wrap.errors import FIRST_COMMIT, GitError, GitTooOldError, RalphError, UntrustedError
from ralph_wrap.git import (
    NEWEST_TESTED,
    OLDEST_TESTED,
    Git,
    Repository,
    git_environment,
    is_ignored,
    list_refs,
    parse_version,
    run_git,
)
from ralph_wrap.git.quarantine import SUBMODULES, owners
from ralph_wrap.git.safe.filters import missing_filters, require_same_files
from ralph_wrap.session.unknown_worktrees import unknown_worktrees
from ralph_wrap.state.project import WORKTREES, Project, linked_directory
from ralph_wrap.system import privileges
from ralph_wrap.system.log import lines_of
from ralph_wrap.worktree.ignore import RULE

_HOOKS_OFF_SINCE = (2, 31)  # GIT_CONFIG_COUNT
_REPOSITORY = ("", "objects", "refs", "refs/heads", "refs/heads/ralph", "worktrees", "logs/refs/heads/ralph")
_STATE = (".ralph", ".ralph/run", ".ralph/run/agents", ".ralph/run/sessions", ".ralph/run/trash")


def git_version(project: Project) -> DoctorCheck:
    """Check whether git is installed, and new enough."""
    name, why = (
        "git",
        "git 2.30 or newer is tested; git 2.31 can switch off hooks in the agent's commits",
    )
    if isinstance(project.obstacle, GitTooOldError):
        return failed(name, project.obstacle.message, why, project.obstacle.hint)
    version = _version(project)
    if version is None:
        assert project.obstacle is not None
        return failed(name, project.obstacle.message, why, project.obstacle.hint)
    number = _number(version)
    if version < _HOOKS_OFF_SINCE:
        found = f"{number}, which cannot switch off hooks for one process: they run in the agent's commits"
        if version < OLDEST_TESTED:
            found += f"; the oldest git that ralph-wrap is tested with is {_number(OLDEST_TESTED)}"
        return noted(name, found, why, "install git 2.31 or newer, or use --hooks on")
    if version[:2] > NEWEST_TESTED:
        newest = _number(NEWEST_TESTED)
        found = f"{number}; the newest git that ralph-wrap is tested with is {newest}"
        return noted(name, found, why, f"install git {newest}, or a ralph-wrap that is tested with this git")
    return fine(name, number, why)


def _number(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _version(project: Project) -> tuple[int, ...] | None:
    if project.repository is not None:
        return project.repository.git_version
    try:
        return parse_version(
            run_git(Git(project.checkout, git_environment(project.environ)), "version").stdout
        )
    except (OSError, GitError):
        return None


def repository(project: Project) -> Iterator[DoctorCheck]:
    """Check whether there is a repository with a commit; without git there is no result."""
    why = "without a repository and a commit no session gets a worktree"
    if project.repository is not None:
        yield fine("repository", os.fspath(project.repository.common_dir), why)
        if project.repository.head is None:
            fix = FIRST_COMMIT
            yield failed("commit", "the repository has no commit yet", why, fix)
        else:
            yield fine("commit", project.repository.head, why)
    elif project.obstacle is not None and git_version(project).ok:
        yield failed("repository", project.obstacle.message, why, project.obstacle.hint)


def owner(project: Project, began_as: int, refused: RalphError | None) -> DoctorCheck:
    """Check which user owns the files that sessions make.

    Arguments:
        began_as: the user id at our start.
        refused: the error if root could not become the owner.

    """
    name, why = "owner", "the owner may be unable to change files of another user, and git may refuse them"
    status, uid = project.checkout.stat(), os.geteuid()
    if refused is not None:
        return failed(name, refused.message, why, refused.hint)
    if uid != began_as:
        found = f"user id {uid} owns {project.checkout}; a session that root starts becomes this user"
        return fine(name, found, why)
    if uid == status.st_uid:
        return fine(name, f"user id {uid} runs this and owns {project.checkout}", why)
    return noted(
        name,
        f"user id {uid} runs this, {project.checkout} belongs to user id {status.st_uid}",
        why,
        f"run it as its owner: docker exec --user {status.st_uid}:{status.st_gid}, or as root",
    )


def home(project: Project) -> DoctorCheck:
    """Check whether the user that a session becomes has a home directory, or gets one."""
    name, why = "home", "an agent keeps its login and its settings there; without it no session starts"
    try:
        choice = privileges.choose_home(project.environ, (project.root, project.checkout))
    except RalphError as error:
        return failed(name, error.message, why, error.hint)
    if choice.problem:
        return noted(name, choice.problem, why, choice.hint)
    return fine(name, f"{choice.path}{', made at the first session' if choice.is_new else ''}", why)


def private_files(project: Project) -> DoctorCheck:
    """Check whether there is a place outside the project for what no agent may change."""
    name, why = (
        "private files",
        "the configuration that our git obeys is kept there; without it no session starts",
    )
    if project.git.safe is None:
        return fine(name, "needed only with a repository", why)
    try:
        place = project.git.safe.require_home()
    except RalphError as error:
        return failed(name, error.message, why, error.hint)
    return fine(name, os.fspath(place), why)


def state(project: Project) -> DoctorCheck:
    """Check whether sessions can write records and worktrees in the project."""
    name, why = ".ralph", "sessions register there, and have their worktrees there"
    paths = [project.root / part for part in (*_STATE, WORKTREES)]
    existing = [path for path in paths if os.path.lexists(path)]
    if link := linked_directory(project):
        return failed(name, f"{link} is a symlink, which is not followed", why, "replace it by a directory")
    for path in existing or [existing_parent(project.root)]:
        if path.is_symlink() or not path.is_dir():
            fix = f"mv {shlex.quote(os.fspath(path))} elsewhere"
            return failed(name, f"{path} is in the way: it is not a directory", why, fix)
        if not _writable(path):
            return failed(name, f"{path} cannot be written by user id {os.geteuid()}", why, _give(path))
    return fine(name, "exists, and is writable" if existing else "can be created", why)


_ROOM = "a session creates its branch ralph/<id> and registers its worktree"


def repository_files(repository: Repository) -> DoctorCheck:
    """Check whether git can write its directories."""
    name, common = "repository files", repository.common_dir
    for path in (common / part for part in _REPOSITORY):
        if path.is_dir() and not _writable(path):
            return failed(name, f"{path} cannot be written by user id {os.geteuid()}", _ROOM, _give(common))
    return fine(name, "are writable", _ROOM)


def branch_names(project: Project) -> DoctorCheck:
    """Check whether git can create the branches of sessions."""
    name, ref = "branch names", "refs/heads/ralph"
    if ref in list_refs(project.git, ref):
        return failed(
            name, "branch ralph is in the way of ralph/<id>", _ROOM, "git branch -m ralph ANOTHER-NAME"
        )
    return fine(name, "ralph/<id> can be created", _ROOM)


def own_refs(project: Project) -> Iterator[DoctorCheck]:
    """Check whether each ref of ours has its commit."""
    name, why = "refs", "git gc and git log --all fail at a ref without its commit"
    broken = broken_refs(project.git)
    for ref, problem in broken.items():
        used = project.repository is not None and is_in_use(project.repository.common_dir, ref)
        fix = "ralph-wrap sweep" if used else removal_of(project.main, ref)
        yield failed(name, f"{ref} names commit {problem}", why, fix)
    if not broken:
        yield fine(name, "each ref of ralph-wrap has its commit", why)


def own_packs(repository: Repository) -> Iterator[DoctorCheck]:
    """Look for what killed saves have left among the objects of the repository."""
    name, why = "packs", "git gc leaves a pack with a .keep file as it is"
    objects = repository.common_dir / "objects"
    sessions = {owner.partition(SUBMODULES)[0] for owner in owners(objects)}
    left = [
        session
        for session in sorted(sessions)
        if not os.path.lexists(repository.common_dir / "worktrees" / session)
    ]
    for session in left:
        yield noted(
            name, f"a killed save of session {session} has left files in {objects}", why, "ralph-wrap sweep"
        )
    if not left:
        yield fine(name, "no killed save has left files", why)


def worktrees(project: Project) -> Iterator[DoctorCheck]:
    """Look for worktrees of sessions that no record knows, as after ``git clean -fdx``."""
    name, why = "worktrees", "a sweep finishes the sessions that have a record, and no others"
    unknown = [*unknown_worktrees(project)]
    for found in unknown:
        yield noted(name, found.message, why, found.hint(project.git))
    if not unknown:
        yield fine(name, "a record knows the session of each", why)


def ignore_rule(project: Project, rule: IgnoreLocation) -> DoctorCheck:
    """Check whether git ignores the worktrees, or will."""
    if project.around_worktrees is None:
        return fine("ignore rule", "the worktrees are in no checkout", "there is nothing to ignore")
    git, repository = project.around_worktrees
    name, why = "ignore rule", "without it git lists, and may add, the files of worktrees in the project"
    if is_ignored(git, f"{RULE}probe"):
        return fine(name, f"{RULE} is ignored", why)
    if rule is IgnoreLocation.OFF:
        return noted(name, f"{RULE} is not ignored, as configured", why, "ignore = 'gitignore'")
    exclude = repository.common_dir / "info" / "exclude"
    path = exclude if rule is IgnoreLocation.EXCLUDE else repository.root / ".gitignore"
    if rule is IgnoreLocation.GITIGNORE and (path.is_symlink() or path.is_dir()):
        path = exclude  # as a session does
    if path.is_symlink() or path.is_dir():
        return failed(name, f"{path} is no file", why, "add the line by hand, or --ignore off")
    # A session replaces the file, so its directory must be writable.
    if not _writable(next(parent for parent in path.parents if parent.is_dir())):
        return failed(name, f"{path} cannot be written", why, "add the line by hand, or --ignore off")
    return fine(name, f"the first session adds {RULE} to {path}", why)


def filters(project: Project, repository: Repository, commit: str) -> DoctorCheck:
    """Check whether our git and the agent's git see the same files, and can check them out."""
    name, why = (
        "filters",
        "a filter changes files between repository and checkout; each git must run it",
    )
    try:
        require_same_files(project.git, repository, commit)
    except UntrustedError as error:
        return failed(name, error.message, why, lines_of(error.hint)[0])
    for missing in missing_filters(project.git, repository, commit):
        result = failed if missing.is_required else noted
        return result(name, missing.problem, why, missing.fix)
    return fine(name, "each filter of a file is approved and installed", why)


_ONLY_LIMITS = "the project decides nothing but limits"


def commands(settings: Settings, project: Project) -> DoctorCheck:
    """Check whether the user has approved what the project decides."""
    name, why = (
        "trust",
        "an agent can write the configuration: what it decides counts only with the user's approval",
    )
    wanted = settings.stated
    if not wanted and not any_approved(project.environ):
        return fine(name, _ONLY_LIMITS, why)
    keys = ", ".join(wanted)
    in_session = in_force(settings)

    def depends(key: str) -> bool:  # clean, sweep and drop obey what no session does
        return in_session(key) or key in DELETING

    if wanted and not any(map(depends, wanted)):
        return fine(name, f"{keys}: only count if an option asks for it", why)
    if reason := trust.implied(project.environ):
        return fine(name, f"{keys}: approved by {reason}", why)
    try:
        missing = trust.unapproved(project.main, wanted, project.environ)
    except RalphError as error:
        return failed(name, error.message, why, error.hint)
    if keys := ", ".join(filter(depends, missing)):
        return failed(name, f"{keys}: not approved", why, "ralph-wrap trust")
    return fine(name, f"{', '.join(wanted)}: approved" if wanted else _ONLY_LIMITS, why)


def agents(
    environ: Mapping[str, str], chosen: Collection[str], tables: Mapping[str, AgentTable]
) -> Iterator[DoctorCheck]:
    """Check which agents are installed; a missing agent is only a note, and none if nobody has chosen it.

    Arguments:
        chosen: the agents in the configuration: the first one, and its fallback.
        tables: the agents of the configuration, by name.

    """
    paths = installed(environ)
    for name in NAMES:
        check, why = f"agent {name}", f"--agent {name} runs it; any other command goes after --"
        if path := paths.get(name):
            yield fine(check, path, why)
            table = tables.get(name)
            yield _login(known(name), {**environ, **dict((table.env if table else None) or ())})
        elif name in chosen:
            yield noted(check, "not installed", why, known(name).install)
    others = ", ".join(name for name in NAMES if name not in paths and name not in chosen)
    why = "--agent NAME runs one of these; any other command goes after --"
    if others and (paths or chosen):
        yield fine("other agents", f"not installed: {others}", why)
    elif others:
        ways = f"{known('claude').install}; or a program of your own: ralph-wrap run -- ./agent.sh"
        yield noted("other agents", f"none is installed: {others}", why, ways)


def _login(agent: Agent, environ: Mapping[str, str]) -> DoctorCheck:
    """Check whether a login is to be found, for the user that a session becomes; none is only a note."""
    check, why = f"login {agent.name}", "without a login, a session ends after its first iteration"
    place = look_for_login(agent, environ)
    if place is None:
        found = f"none is found: {known_places(agent, environ)}"
        return noted(check, found, why, f"{agent.login.command}; in a container: see docs/containers.md")
    if not place.readable:
        return noted(check, f"{place} cannot be read by this user", why, f"ls -l {shlex.quote(str(place))}")
    if not place.writable:
        found = f"{place}, which cannot be replaced by this user"
        why = "an agent writes a new token there before the old one ends"
        return noted(check, found, why, "mount its whole directory, without :ro; see docs/containers.md")
    return fine(check, str(place), why)


def python() -> DoctorCheck:
    """Report the version of Python; with an older one the program would not start."""
    return fine("python", platform.python_version(), "ralph-wrap needs 3.11 or newer")


def _writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


def _give(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "mount it without :ro"
    return f"sudo chown -R {os.geteuid()}:{os.getegid()} {shlex.quote(os.fspath(path))}"
