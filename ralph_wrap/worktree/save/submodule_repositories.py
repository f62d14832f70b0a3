"""Find the repositories of submodules in a worktree's registration, and the directories of their files.

A directory belongs to a repository if the index above knows it as a submodule and its ``.git`` file names the
repository. What the repository itself says of that (``core.worktree``) is not asked.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import decode, pointer, run_git
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.model import LinkedWorktree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.git import Git

_TEMPLATES = re.compile(r".*/(config|description|.*\.lock)|hooks/.*|info/exclude")  # before there is a HEAD


class SubmoduleRepository(NamedTuple):
    """A repository in a worktree's registration.

    Attributes:
        name: its place there, as ``modules/a/modules/b``.
        path: of its files, below the top of the worktree; empty if it has none (any more).
        commit: what the index above it says it is at.
        tree: the same as a worktree; without *path* its directory is the repository.
        nested: paths of the submodules in it, below its own.

    """

    name: str
    path: str
    commit: str
    tree: LinkedWorktree
    nested: tuple[str, ...]


def find(
    worktree: LinkedWorktree, git: Git, directory: Path, problems: list[str]
) -> list[SubmoduleRepository]:
    """Return the submodules of a worktree, those in submodules included, by name.

    Arguments:
        worktree: which one.
        git: git at the repository.
        directory: where its directory is now.
        problems: gets a line for what is no repository, or whose it cannot be told.

    Raises:
        OSError: it cannot be looked at.

    """
    return sorted(_find(worktree, git, directory, "", "", problems))


def _find(
    above: LinkedWorktree, git: Git, directory: Path | None, name: str, path: str, problems: list[str]
) -> Iterator[SubmoduleRepository]:
    pointers = _pointers(above, git, directory) if directory else []
    modules = above.registration / "modules"
    for repository in _repositories(modules, problems):
        pointing = [(commit, at) for commit, at, pointed in pointers if pointed == repository]
        label = f"{name}modules/{repository.relative_to(modules)}"
        if len(pointing) > 1:
            problems.append(f"two directories share {label}: {', '.join(at for _, at in pointing)}")
        commit, at = pointing[0] if pointing else ("", "")
        tree = LinkedWorktree(
            path=above.path / at if at else repository,
            registration=repository,
            common_dir=repository,
            branch="",
            base="",
            branch_created=False,
            config=above.config,
        )
        whole = f"{path}{at}" if at else ""
        inside = [
            *_find(
                tree, git, directory / at if directory and at else None, f"{label}/", f"{whole}/", problems
            )
        ]
        nested = tuple(one.path.removeprefix(f"{whole}/") for one in inside if one.path)
        yield SubmoduleRepository(label, whole, commit, tree, nested)
        yield from inside


def _pointers(above: LinkedWorktree, git: Git, place: Path) -> list[tuple[str, str, Path]]:
    """Return commit and path of each submodule in an index, and the repository that its ``.git`` names."""
    try:
        listing = run_git(above.git(git, place), "ls-files", "-s", "-z").stdout
    except GitError:
        return []  # whoever saves the rest tells that, and finds their directories to be nested repositories
    found = []
    # In a conflict there are up to three entries of one path.
    entries = re.findall(rb"(?:\A|\0)160000 ([0-9a-f]+) [0-3]\t([^\0]+)", listing)
    for name, oid in {name: oid for oid, name in entries}.items():
        path = decode(name)
        directory = place / path
        if (directory / ".git").is_symlink() or any(
            (place / one).is_symlink() for one in (path, *_parents(path))
        ):
            continue
        try:
            # Relative to where it belongs: it leads nowhere else while it is in the trash.
            pointed = pointer.read(directory, above.path / path)
        except OSError:
            continue
        found.append((decode(oid), path, pointed))
    return found


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _repositories(modules: Path, problems: list[str]) -> list[Path]:
    """Return the repositories below a directory: what has a HEAD, which is the first that git makes in one.

    Names of submodules may have slashes, so that there are directories between.
    """
    found: list[Path] = []
    waiting = [modules] if os.path.lexists(modules) else []
    while waiting:
        place = waiting.pop()
        if place.is_symlink():
            problems.append(f"{place} is a symlink")
        elif place.is_dir():
            head = place / "HEAD"
            if place != modules and os.path.lexists(head) and not head.is_dir():
                found.append(place)
            else:
                waiting += place.iterdir()
        elif not _TEMPLATES.fullmatch(f"{place.parent.name}/{place.name}"):
            problems.append(f"{place} belongs to no repository")
    return sorted(found)
