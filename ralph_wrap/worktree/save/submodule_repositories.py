"""Find the repositories of submodules in a worktree's registration, and the directories of their files.

A directory belongs to a repository if the index above lists it as a submodule, and its ``.git`` file names
the repository. This module does not read ``core.worktree`` in the configuration of the repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git
from ralph_wrap.git.repository import RepositoryCopies
from ralph_wrap.git.safe.submodules import SubmodulePointer, pointers_below
from ralph_wrap.worktree.create.replica import TEMPLATES
from ralph_wrap.worktree.model import LinkedWorktree


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
        git: git at the repository.
        directory: the present directory of the worktree.
        problems: gets a line for each file without a repository, and each repository with two directories.

    Raises:
        OSError: a directory cannot be read.

    """
    return sorted(_find(worktree, git, directory, "", "", problems, worktree.copies))


def _find(
    above: LinkedWorktree,
    git: Git,
    directory: Path | None,
    name: str,
    path: str,
    problems: list[str],
    copies: RepositoryCopies | None,
) -> Iterator[SubmoduleRepository]:
    pointers = _pointers(above, git, directory, copies) if directory else []
    modules = above.registration / "modules"
    for repository in _repositories(modules, problems):
        pointing = [(commit, own_path) for own_path, commit, pointed in pointers if pointed == repository]
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
                copies,
            )
        ]
        nested = tuple(submodule.path.removeprefix(f"{full_path}/") for submodule in inner if submodule.path)
        yield SubmoduleRepository(label, full_path, commit, tree, nested)
        yield from inner


def _pointers(
    above: LinkedWorktree, git: Git, top: Path, copies: RepositoryCopies | None
) -> list[SubmodulePointer]:
    """Return the submodules in an index, and the repositories that their ``.git`` files name."""
    try:
        # A path is relative to the directory's own path, even while the directory is in the trash.
        return [*pointers_below(above.git(git, top), top, copies, above.path)]
    except GitError:
        return []  # the save of the files reports this, and sees their directories as nested repositories


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
        elif not TEMPLATES.fullmatch(f"{path.parent.name}/{path.name}"):
            problems.append(f"{path} belongs to no repository")
    return sorted(found)
