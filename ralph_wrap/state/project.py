"""The project of a directory: its root, its checkout, its repository, and the directories of its state."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config.repository_trust import safe_common_dirs
from ralph_wrap.errors import (
    DamagedRepositoryError,
    GitTooOldError,
    IsolationError,
    NoCheckoutError,
    NotARepositoryError,
    RalphError,
    UntrustedError,
    UsageError,
)
from ralph_wrap.git import Git, Repository, git_environment, locate_repository, pointer, shadow
from ralph_wrap.git.home import home_of, home_of_bare, make_home
from ralph_wrap.state.claim import SessionClaim
from ralph_wrap.state.registry import Registry
from ralph_wrap.system.disk import NO_ROOM
from ralph_wrap.system.files import is_locked
from ralph_wrap.system.text import command

WORKTREES = Path(".ralph/worktrees")
"""Directory of the worktrees, below the project root."""

CLONES = Path(".ralph/clones")
"""Directory of the clones, below the project root. In a container it can be the only writable one."""

RUN = Path(".ralph/run")
"""Directory of all other files of ralph-wrap, below the project root."""

POOL = RUN / "pool"
"""Directory of warm worktrees, below the project root."""

_PARTS = ("agents", "sessions", "trash")  # of a registry
_OUR_WORKTREE = re.compile(r".+/\.ralph/worktrees/[^/]+", re.DOTALL)


class Project(NamedTuple):
    """A project, and the checkout in it from which the user started.

    Attributes:
        checkout: top level of the checkout that the user is in; without a repository, the directory itself.
        root: the project root with the directory ``.ralph``: the main checkout of the repository, even if
            the user is in a linked worktree, which may be one of ours. Of a bare repository, a directory that
            no removal of a worktree touches (:mod:`ralph_wrap.git.home`).
        prefix: path of the user's directory below *checkout*.
        repository: of *checkout*; ``None`` if there is none.
        obstacle: reason why no worktree can be created.
        environ: the environment of the process that works on the project.
        git: git at the top level of the checkout.
        is_bare: the repository has no main checkout, and so the root is none.

    """

    checkout: Path
    root: Path
    prefix: Path
    repository: Repository | None
    obstacle: RalphError | None
    environ: Mapping[str, str]
    git: Git
    is_bare: bool = False

    @property
    def main(self) -> Path:
        """The checkout with the project's settings and prompt: the root, if it is a checkout.

        Of a bare repository, it is the checkout that the user is in.
        """
        return self.checkout if self.is_bare else self.root

    @property
    def around_worktrees(self) -> tuple[Git, Repository] | None:
        """The checkout that must ignore our worktrees below it.

        It is ``None`` if there is none, or if the session around this one has seen to it.
        """
        if self.is_bare or self.is_nested or self.repository is None:
            return None
        return self.git._replace(cwd=self.root), self.repository._replace(root=self.root)

    @property
    def is_nested(self) -> bool:
        """Whether the user is in a worktree of ours, as an agent is that starts another session."""
        return _OUR_WORKTREE.fullmatch(os.fspath(self.checkout)) is not None and self.root != self.checkout


def find_project(directory: Path, environ: Mapping[str, str]) -> Project:
    """Find the project of a directory.

    Arguments:
        directory: the directory that the user named.

    Raises:
        UsageError: the directory does not exist, or is not a directory.

    """
    try:
        resolved = directory.resolve(strict=True)
        if not resolved.is_dir():
            raise NotADirectoryError(20, "not a directory")
    except OSError as error:
        raise UsageError(f"project {directory}: {error.strerror}", "name a directory that exists") from None
    obstacle: RalphError
    try:
        repository = locate_repository(Git(resolved, git_environment(environ)))
        home = home_of(repository.root, repository.common_dir)
    except (
        *(IsolationError, NotARepositoryError, GitTooOldError),
        *(UntrustedError, DamagedRepositoryError, NoCheckoutError),
    ) as error:
        obstacle = error
    except FileNotFoundError:
        obstacle = IsolationError("git is not installed", "install git 2.30 or newer")
    except OSError as error:
        obstacle = IsolationError(f"git cannot be run: {error.strerror}", "check the PATH")
    else:
        return Project(
            repository.root,
            home.directory,
            repository.prefix,
            repository,
            None,
            environ,
            Git(repository.root, git_environment(environ), safe=safe_common_dirs(repository, environ)),
            is_bare=not home.is_checkout,
        )
    bare = home_of_bare(resolved) if isinstance(obstacle, NoCheckoutError) else None
    root = bare.directory if bare else resolved
    git = Git(resolved, git_environment(environ))
    return Project(resolved, root, Path(), None, obstacle, environ, git, is_bare=bare is not None)


def find_project_without_git(directory: Path, environ: Mapping[str, str]) -> Project | None:
    """Find the project of a directory by its files alone, where an agent may have made git hang.

    Arguments:
        directory: the directory that the user named.

    Returns:
        A project without a repository; ``None`` if there is no ``.git`` in or above the directory.

    """
    resolved = pointer.real(directory)
    top = next((path for path in (resolved, *resolved.parents) if os.path.lexists(path / ".git")), None)
    if top is None:
        return None
    try:
        root = home_of(top, pointer.common_dir_by_place(top)).directory
    except RalphError:
        root = top
    return Project(root, root, Path(), None, None, environ, Git(root, git_environment(environ)))


def with_replica(project: Project, replica: Path) -> Project:
    """Return a project with the replica of a clone for its repository."""
    git = project.git._replace(cwd=replica, git_dir=replica)
    return project._replace(repository=repository_of(project)._replace(common_dir=replica), git=git)


def repository_of(project: Project) -> Repository:
    """Return the repository of a project.

    Raises:
        RalphError: there is no repository, or git cannot use it.

    """
    if project.repository is None:
        raise project.obstacle or NotARepositoryError(
            f"{project.root} is not in a git repository", "git init"
        )
    return project.repository


def is_writable(repository: Repository) -> bool:
    """Return whether this process may write to a repository; in a container it is often read-only."""
    directory = repository.common_dir
    return all(os.access(path, os.W_OK) for path in (directory, directory / "objects", directory / "refs"))


@contextlib.contextmanager
def objects_of(project: Project) -> Iterator[Git]:
    """Yield git on the objects of a project: it believes nothing else that an agent may have written there.

    Raises:
        RalphError: there is no repository, or git cannot use it.
        OSError: no private directory can be made.

    """
    with shadow.shadow_repository(project.git, repository_of(project)) as objects:
        yield objects


def registries(project: Project) -> Iterator[Registry]:
    """Yield every registry that may have sessions of this project, the normal one first.

    If one of our directories is a symlink, there is no normal one: it may lead out of the project.
    """
    if not linked_directory(project):
        yield Registry(project.root / RUN)
    yield from _registry_of_clones(project)


def own_registry(project: Project) -> Registry:
    """Return the normal registry of a project.

    Raises:
        RalphError: one of our directories is a symlink.

    """
    if link := linked_directory(project):
        raise RalphError(f"{link} is a symlink, which is not followed", "replace it by a directory")
    return Registry(project.root / RUN)


def has_ownerless(project: Project) -> bool:
    """Return whether there may be sessions with a dead owner, without reading any record."""
    return any(registry.has_ownerless() for registry in registries(project))


def has_clones(project: Project) -> bool:
    """Return whether there may be work of clones to take in, or a clone that borrows objects."""
    homes = [Registry(project.root / RUN), *_registry_of_clones(project)]
    directories = [*(home.bundles for home in homes), *(home.agents for home in homes[1:])]
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            if any(entries):
                return True
    return False


def has_trash(project: Project) -> bool:
    """Return whether removed worktrees are on the disk which no process deletes now."""
    for home in (RUN, CLONES / RUN.name):
        with contextlib.suppress(OSError), os.scandir(Registry(project.root / home).trash) as entries:
            if any(_is_abandoned(Path(entry.path)) for entry in entries):
                return True
    for places in (WORKTREES, CLONES):
        with contextlib.suppress(OSError), os.scandir(project.root / places) as entries:
            if any(entry.name.endswith(".leaving") for entry in entries):
                return True
    return False


def _is_abandoned(removed: Path) -> bool:
    # A deletion holds the lock of its directory. Where sessions end all the time, one is always at work.
    try:
        return not is_locked(removed)
    except OSError:  # not a directory of ours, perhaps
        return True


def prepare_root(project: Project) -> None:
    """Make the project root of a bare repository; any other one is a checkout, and is there.

    Raises:
        RalphError: it cannot be made.

    """
    if project.is_bare and project.repository is not None:
        make_home(project.root, project.repository.common_dir)


def register_session(
    project: Project, claim: Callable[[Registry], SessionClaim]
) -> tuple[SessionClaim, IsolationError | None]:
    """Register a session in the first registry that works.

    Arguments:
        claim: registers the session in a registry.

    Returns:
        The claim, and the reason if it is among the clones: then the session cannot have a worktree.

    Raises:
        NoIdLeftError: no id is free.
        RalphError: no registry works, or one of our directories is a symlink.

    """
    # No way round a symlink: an agent that makes one must not take the isolation of the next session.
    own = own_registry(project)
    prepare_root(project)
    failure: OSError | None = None
    for registry in (own, *_registry_of_clones(project)):
        try:
            registry.prepare()
            return claim(registry), unusable_registry(own, failure) if failure else None
        except OSError as error:
            if error.errno in NO_ROOM:  # no worktree fits there either, and the user can make room
                raise RalphError(
                    f"no records can be written in {registry.directory}: {error.strerror}",
                    f"make room, then type the command again: {command('df', '-h', project.root)}",
                ) from error
            failure = failure or error
    assert failure is not None
    problem = unusable_registry(own, failure)
    raise RalphError(problem.message, problem.hint)


def unusable_registry(registry: Registry, error: OSError) -> IsolationError:
    """Return the error for a registry that cannot be written, with the command that mends it."""
    run, own = registry.directory, registry.directory.parent
    in_the_way = [path for path in (own, run) if os.path.lexists(path) and not path.is_dir()]
    user = f"{os.geteuid()}:{os.getegid()}"
    if error.errno == errno.EROFS:
        hint = "mount the project writable; or at least .ralph/clones, and add --isolation clone"
    elif in_the_way:
        hint = command("mv", in_the_way[0], f"{in_the_way[0]}.aside")
    elif (existing := own if own.is_dir() else own.parent).stat().st_uid == os.geteuid():
        hint = command("chmod", *(("-R",) if existing == own else ()), "u+rwX", existing)
    elif existing == own:
        hint = command("sudo", "chown", "-R", user, own)
    else:
        hint = command("sudo", "install", "-d", "-o", str(os.geteuid()), "-g", str(os.getegid()), own)
    return IsolationError(f"{run} cannot be used: {error.strerror}", hint)


def linked_directory(project: Project) -> Path | None:
    """Return our first directory that is a symlink: it may lead out of the project, and git stops there."""
    run = project.root / RUN
    directories = (run.parent, run, project.root / WORKTREES, *(run / name for name in _PARTS))
    return next((directory for directory in directories if directory.is_symlink()), None)


def _registry_of_clones(project: Project) -> Iterator[Registry]:
    """Yield the registry in the directory of the clones, for sessions that can write only there."""
    clones = project.root / CLONES
    registry = Registry(clones / RUN.name)
    names = (*_PARTS, registry.replicas.name, registry.bundles.name)
    directories = (clones.parent, clones, registry.directory, *(registry.directory / name for name in names))
    if clones.is_dir() and not any(directory.is_symlink() for directory in directories):
        yield registry
