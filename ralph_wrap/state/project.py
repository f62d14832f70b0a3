"""The project: what the user's directory belongs to, and where its state is kept."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import GitTooOldError, IsolationError, NotARepositoryError, RalphError, UsageError
from ralph_wrap.git import Git, Repository
from ralph_wrap.state.registry import Claim, Registry
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WORKTREES = Path(".ralph/worktrees")
"""Where the worktrees are, below the project root."""

RUN = Path(".ralph/run")
"""Where everything else of ours is."""

POOL = RUN / "pool"
"""Where warm worktrees wait for sessions."""

_OUR_WORKTREE = re.compile(r"(.+)/\.ralph/worktrees/[^/]+", re.DOTALL)


class Project(NamedTuple):
    """Where a session works.

    Attributes:
        checkout: top level of the checkout that the user is in; without a repository, the directory itself.
        root: the project root, where ``.ralph`` is. The same as *checkout*, but for who starts inside one
            of our worktrees: that belongs to the outer one's project, and its worktree goes beside the
            outer one's, not into it.
        prefix: the user's place below *checkout*.
        repository: of *checkout*.
        obstacle: why there is no repository to make a worktree from.

    """

    checkout: Path
    root: Path
    prefix: Path
    repository: Repository | None
    obstacle: RalphError | None

    def git(self, environ: Mapping[str, str]) -> Git:
        """Return git at the top level of the checkout."""
        return Git(self.checkout, git.environment(environ))


def find(
    directory: Path, environ: Mapping[str, str], meanwhile: Callable[[], object] = lambda: None
) -> Project:
    """Find out what a directory belongs to.

    Arguments:
        directory: is looked at.
        meanwhile: called while git looks, unless there is no git.

    Raises:
        UsageError: it is not there, or not a directory.

    """
    try:
        here = directory.resolve(strict=True)
        if not here.is_dir():
            raise NotADirectoryError(20, "not a directory")
    except OSError as error:
        raise UsageError(f"project {directory}: {error.strerror}", "name a directory that is there") from None
    obstacle: RalphError
    try:
        repository = git.locate(Git(here, git.environment(environ)), meanwhile)
    except (IsolationError, NotARepositoryError, GitTooOldError) as error:
        obstacle = error
    except FileNotFoundError:
        obstacle = IsolationError("git is not installed", "install git 2.15 or newer")
    except OSError as error:
        obstacle = IsolationError(f"git cannot be run: {error.strerror}", "check the PATH")
    else:
        outer = _OUR_WORKTREE.fullmatch(os.fspath(repository.root))
        nested = outer is not None and _is_checkout_of(Path(outer[1]), repository.common_dir)
        root = Path(outer[1]) if outer and nested else repository.root
        return Project(repository.root, root, repository.prefix, repository, None)
    return Project(here, here, Path(), None, obstacle)


def _is_checkout_of(directory: Path, common_dir: Path) -> bool:
    """Tell whether a directory is the top level of a checkout of a repository (gitrepository-layout(5))."""
    pointer = directory / ".git"
    try:
        named = git.text(files.read(pointer)).removeprefix("gitdir: ").rstrip("\n")
    except OSError:
        return pointer.resolve() == common_dir
    target = (directory / named).resolve()
    return common_dir in {target, target.parent.parent}


def repository_of(place: Project) -> Repository:
    """Return the repository of a project.

    Raises:
        RalphError: there is none, or git cannot be used in it.

    """
    if place.repository is None:
        raise place.obstacle or NotARepositoryError(f"{place.root} is not in a git repository", "git init")
    return place.repository


def registries(project: Project, environ: Mapping[str, str]) -> Iterator[Registry]:
    """Yield every place where sessions of this project may be registered, the normal one first.

    At least one; but not a second one that only somebody else can see, root say, who has become the owner.
    """
    inside = not _symlink(project)
    if inside:
        yield Registry(project.root / RUN)
    away = _away(project, environ)
    if not inside or _may_be_seen(away.directory):
        yield away


def _away(project: Project, environ: Mapping[str, str]) -> Registry:
    """Return where sessions are registered if they cannot be in the project."""
    import hashlib  # noqa: PLC0415 -- seldom needed, and slow

    key = hashlib.sha256(os.fsencode(project.root)).hexdigest()[:16]
    return Registry(_state(environ) / key)


def _may_be_seen(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return False
    except OSError:
        return True
    return os.access(path, os.X_OK)


def _state(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or '/'}/.local/state"
    return Path(home, "ralph-wrap")


def has_ownerless(project: Project, environ: Mapping[str, str]) -> bool:
    """Tell, in a few milliseconds, whether there may be sessions whose owner is dead."""
    if not _symlink(project) and Registry(project.root / RUN).has_ownerless():
        return True
    # Where there is no other place, its name, a hash, is not needed.
    return os.access(_state(environ), os.F_OK) and _away(project, environ).has_ownerless()


def has_trash(project: Project) -> bool:
    """Tell whether removed worktrees may be left: normally they are deleted as soon as they are removed."""
    with contextlib.suppress(OSError), os.scandir(Registry(project.root / RUN).trash) as entries:
        if any(entries):
            return True
    with contextlib.suppress(OSError), os.scandir(project.root / WORKTREES) as entries:
        return any(entry.name.endswith(".leaving") for entry in entries)
    return False


def register(
    project: Project, environ: Mapping[str, str], claim: Callable[[Registry], Claim]
) -> tuple[Claim, IsolationError | None]:
    """Register a session in the first place where that is possible.

    Arguments:
        claim: registers in a registry that is ready.

    Returns:
        The claim, and why it is not in the project itself: without that, no worktree can be had.

    Raises:
        NoIdLeftError: every id is taken.
        RalphError: there is no such place.

    """
    problem: IsolationError | None = None
    if link := _symlink(project):
        problem = IsolationError(f"{link} is a symlink, which is not followed", "replace it by a directory")
    for registry in registries(project, environ):
        try:
            registry.prepare()
            return claim(registry), problem
        except OSError as error:
            problem = problem or IsolationError(
                f"{registry.directory} cannot be used: {error.strerror}",
                f"it must be a directory that user id {os.geteuid()} can write, on a disk that is not full",
            )
    raise RalphError(
        "no place for the session's records can be had", "set XDG_STATE_HOME to a writable directory"
    )


def _symlink(project: Project) -> Path | None:
    """Return which of our directories is a symlink: it may lead out, and git looks behind none."""
    run = project.root / RUN
    places = (run.parent, run, project.root / WORKTREES, run / "agents", run / "sessions", run / "trash")
    return next((place for place in places if place.is_symlink()), None)
