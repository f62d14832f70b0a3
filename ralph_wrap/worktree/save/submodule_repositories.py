"""Find the repositories of submodules in a worktree's registration, and the directories of their files.

A directory belongs to a repository if the index above lists it as a submodule, and its ``.git`` file names
the repository. This module does not read ``core.worktree`` in the configuration of the repository.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import pointer
from ralph_wrap.git.index import list_index
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.model import LinkedWorktree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.git import Git

_TEMPLATES = re.compile(r".*/(config|description|.*\.lock)|hooks/.*|info/exclude")  # they exist before HEAD


class SubmoduleRepository(NamedTuple):
    """A repository in a worktree's registration.

    Attributes:
        name: its path there, as ``modules/a/modules/b``.
        path: the path of its files, below the top of the worktree; empty if it has no files.
        commit: its commit in the index above it.
        tree: the submodule as a worktree; without *path* its directory is the repository.
        nested: paths of the submodules in it, below its own path.

    """

    name: str
    path: str
    commit: str
    tree: LinkedWorktree
    nested: tuple[str, ...]


def find(
    worktree: LinkedWorktree, git: Git, directory: Path, problems: list[str]
) -> list[SubmoduleRepository]:
    """Return the submodules of a worktree, including submodules of submodules, by name.

    Arguments:
        worktree: the worktree.
        git: git at the repository.
        directory: the present directory of the worktree.
        problems: gets a line for each file without a repository, and each repository with two directories.

    Raises:
        OSError: a directory cannot be read.

    """
    return sorted(_find(worktree, git, directory, "", "", problems))


def _find(
    above: LinkedWorktree, git: Git, directory: Path | None, name: str, path: str, problems: list[str]
) -> Iterator[SubmoduleRepository]:
    pointers = _pointers(above, git, directory) if directory else []
    modules = above.registration / "modules"
    for repository in _repositories(modules, problems):
        pointing = [(commit, own_path) for commit, own_path, pointed in pointers if pointed == repository]
        label = f"{name}modules/{repository.relative_to(modules)}"
        if len(pointing) > 1:
            problems.append(
                f"two directories share {label}: {', '.join(own_path for _, own_path in pointing)}"
            )
        commit, own_path = pointing[0] if pointing else ("", "")
        tree = LinkedWorktree(
            path=above.path / own_path if own_path else repository,
            registration=repository,
            common_dir=repository,
            branch="",
            base="",
            branch_created=False,
            config=above.config,
        )
        full_path = f"{path}{own_path}" if own_path else ""
        inner = [
            *_find(
                tree,
                git,
                directory / own_path if directory and own_path else None,
                f"{label}/",
                f"{full_path}/",
                problems,
            )
        ]
        nested = tuple(submodule.path.removeprefix(f"{full_path}/") for submodule in inner if submodule.path)
        yield SubmoduleRepository(label, full_path, commit, tree, nested)
        yield from inner


def _pointers(above: LinkedWorktree, git: Git, top: Path) -> list[tuple[str, str, Path]]:
    """Return commit and path of each submodule in an index, and the repository that its ``.git`` names."""
    try:
        entries = list_index(above.git(git, top)).submodules()
    except GitError:
        return []  # the save of the files reports this, and sees their directories as nested repositories
    found = []
    for path, commit in {entry.path: entry.commit for entry in entries}.items():
        directory = top / path
        if (directory / ".git").is_symlink() or any(
            (top / parent).is_symlink() for parent in (path, *_parents(path))
        ):
            continue
        try:
            # The path is relative to the directory's own path, even while the directory is in the trash.
            pointed = pointer.read(directory, above.path / path)
        except OSError:
            continue
        found.append((commit, path, pointed))
    return found


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _repositories(modules: Path, problems: list[str]) -> list[Path]:
    """Return the repositories below a directory: each directory with a HEAD, which git creates first.

    Names of submodules may have slashes, so a repository may be several levels deep.
    """
    found: list[Path] = []
    waiting = [modules] if os.path.lexists(modules) else []
    while waiting:
        path = waiting.pop()
        if path.is_symlink():
            problems.append(f"{path} is a symlink")
        elif path.is_dir():
            head = path / "HEAD"
            if path != modules and os.path.lexists(head) and not head.is_dir():
                found.append(path)
            else:
                waiting += path.iterdir()
        elif not _TEMPLATES.fullmatch(f"{path.parent.name}/{path.name}"):
            problems.append(f"{path} belongs to no repository")
    return sorted(found)
