"""The repositories of submodules below a checkout, without git's own way into them.

``git status``, ``git diff`` and ``git add`` start another git in each submodule. It obeys the configuration
of the submodule's repository, which an agent can write: a filter there would run its program. So our git
stays outside (``--ignore-submodules=dirty``), and looks into each submodule by a command of its own, which
obeys only what is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import pointer
from ralph_wrap.git.command import Git, finish_git
from ralph_wrap.git.index import SubmoduleEntry, submodules_in
from ralph_wrap.git.repository import RepositoryCopies
from ralph_wrap.git.status import parse_status, start_status


class SubmodulePointer(NamedTuple):
    """A submodule with a repository.

    Attributes:
        path: relative to the top level of the checkout.
        commit: its commit in the index.
        git_dir: the repository that its ``.git`` is or names; perhaps there is none.

    """

    path: str
    commit: str
    git_dir: Path


def pointers_below(
    git: Git, top: Path, copies: RepositoryCopies | None = None, belongs: Path | None = None
) -> Iterator[SubmodulePointer]:
    """Yield the submodules of a checkout that have a ``.git``, as :func:`pointers_of` does.

    Arguments:
        git: git in the checkout.

    Raises:
        GitError: git cannot read the index.

    """
    return pointers_of(submodules_in(git), top, copies, belongs)


def pointers_of(
    entries: Iterable[SubmoduleEntry],
    top: Path,
    copies: RepositoryCopies | None = None,
    belongs: Path | None = None,
) -> Iterator[SubmodulePointer]:
    """Yield the submodules in an index that have a ``.git``; no symlink is followed.

    Arguments:
        entries: of the index.
        top: the directory of the checkout.
        copies: take these repositories instead, and leave out a submodule that has none there.
        belongs: where it belongs, if it has been moved; a relative path in a ``.git`` file starts there.

    """
    for path, commit in {entry.path: entry.commit for entry in entries}.items():
        directory = top / path
        paths = (path, *_parents(path), f"{path}/.git")
        if any((top / each).is_symlink() for each in paths):
            continue
        try:
            is_inside = (directory / ".git").is_dir()
            found = pointer.real(directory / ".git") if is_inside else None
            git_dir = found or pointer.read(directory, (belongs or top) / path)
        except OSError:  # it has no files
            continue
        repository = git_dir if copies is None else copies.of(git_dir)
        if repository is not None:
            yield SubmodulePointer(path, commit, repository)


def inner_git(git: Git, top: Path, submodule: SubmodulePointer) -> Git:
    """Return git in a submodule.

    Arguments:
        git: git in the checkout above it.
        top: the directory of this checkout.

    """
    directory, git_dir = top / submodule.path, submodule.git_dir
    common_dir = git_dir.parent.parent if git_dir.parent.name == "worktrees" else git_dir
    return git._replace(
        cwd=directory, git_dir=git_dir, common_dir=common_dir, work_tree=directory, index_file=None
    )


def changed_inside(
    git: Git,
    top: Path,
    copies: RepositoryCopies | None = None,
    entries: Iterable[SubmoduleEntry] | None = None,
) -> list[str]:
    """Return the submodules with uncommitted work in them, and those in which git cannot look.

    Arguments:
        git: git in the checkout.
        top: its directory.
        copies: as in :func:`pointers_of`.
        entries: the submodules in its index, if they are known.

    Raises:
        GitError: git cannot read the index.

    """
    return [
        submodule.path
        for submodule in pointers_of(submodules_in(git) if entries is None else entries, top, copies)
        if not _is_clean(inner_git(git, top, submodule), copies)
    ]


def _is_clean(git: Git, copies: RepositoryCopies | None) -> bool:
    try:
        with start_status(git) as running:
            status = parse_status(finish_git(running, "status").stdout)
        return status.clean and not changed_inside(git, git.cwd, copies)
    except (GitError, OSError):
        return False


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
