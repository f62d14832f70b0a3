"""Save the work in the submodules of a worktree: git deletes their repositories with its registration.

A submodule's repository is ``modules/<name>`` in the registration. The repository of a submodule in it is in
``modules`` of this repository, and so on. Before the worktree is removed, this module saves for each:

1. Its files and its index, by the same code as those of a worktree: a commit in its own repository.
2. Every commit that its refs, its HEAD and its reflogs name, and that the other repository lacks. All their
   objects are copied into a repository that stays. Each object is verified there. Only then the commits get
   refs there, ``refs/ralph/snapshots/<id>/submodule-<n>``.

The repository that stays is the main checkout's own repository of the same submodule, if there is one. It has
the other commits of the submodule, and ``git submodule update`` searches there. Otherwise it is the project's
repository. It lacks a commit if none of its refs contains the commit. For a submodule that ralph-wrap cloned
from elsewhere, the cloned commits do not count as missing.

A configuration, a pointer or a name never proves that work is saved. These are problems, and keep the
worktree: an unknown file in a repository, a path that leads out of it, and a repository with two directories.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, finish_git, resolve_commit, run_git
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.copy_commits import snapshots_of, store_of, tips, transferred
from ralph_wrap.worktree.save.inspect import tree_holds, tree_losses
from ralph_wrap.worktree.save.one_tree import save_tree
from ralph_wrap.worktree.save.registration import operation
from ralph_wrap.worktree.save.result import Losses, SavedSubmodule, SaveRequest, below
from ralph_wrap.worktree.save.submodule_repositories import SubmoduleRepository, find

# The files of git in a repository (gitrepository-layout(5)): this module checks them, or they hold no work.
_KNOWN = re.compile(
    r"branches|config(\.worktree)?|description|gc\.(log|pid)|hooks|info|logs|modules|packed-refs|refs"
    r"|index|sharedindex\..*|shallow|rebase-merge|rebase-apply|sequencer|rr-cache|reftable|\.?ralph-wrap-.*"
    r"|[A-Z][A-Z_]*|.*\.lock"
)
_OBJECTS = re.compile(r"[0-9a-f]{2}|pack|info|tmp_.*|incoming-.*|ralph-wrap-save-.*|.*\.lock")
_EMPTY = re.compile(r"branches|config|description|HEAD|hooks|info|objects|refs|.*\.lock")


def save_submodules(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    problems: list[str],
    request: SaveRequest,
) -> tuple[SavedSubmodule, ...]:
    """Save the work in the submodules of a worktree.

    Arguments:
        git: git at the repository.
        index: a path; copies of the submodules' indexes are made next to it.
        problems: gets a line for each thing that cannot be saved.
        request: how to save the worktree.

    Raises:
        OSError: the registration cannot be read.

    """
    done = []
    for number, submodule in enumerate(find(worktree, git, worktree.path, problems)):
        own_problems: list[str] = []
        store = store_of(worktree, submodule.tree.registration)
        saved = SavedSubmodule(submodule.name, submodule.path, store, unstarted=request.unstarted)
        try:
            if not _is_empty(submodule, submodule.tree.path):
                saved = _with_files(saved, submodule, git, _scratch(index, number), own_problems, request)
                saved = _with_commits(saved, submodule, git, own_problems, request)
        except (GitError, OSError) as error:
            own_problems.append(f"it cannot be saved: {error}")
        problems += _lines(submodule, own_problems)
        done.append(saved)
    return tuple(done)


def _with_files(
    saved: SavedSubmodule,
    submodule: SubmoduleRepository,
    git: Git,
    index: Path,
    problems: list[str],
    request: SaveRequest,
) -> SavedSubmodule:
    """Save the files of a submodule in its own repository."""
    tree = submodule.tree
    problems += _unknown(tree.registration, saved.store)
    if not submodule.path:
        problems += _unsaved_without_files(submodule, git)
        return saved
    if saved.unstarted and _is_as_cloned(submodule, git, tree.path, index):
        return saved
    work = save_tree(tree, git, index, request._replace(unstarted=False), inner=submodule.nested)
    problems += [*work.problems, *filter(None, [work.damage])]
    return saved._replace(saved=work)


def _with_commits(
    saved: SavedSubmodule,
    submodule: SubmoduleRepository,
    git: Git,
    problems: list[str],
    request: SaveRequest,
) -> SavedSubmodule:
    """Copy the commits of a submodule into the repository that stays."""
    submodule_git, store = submodule.tree.git(git), _git(git, saved.store)
    found = tips(submodule_git, store, submodule.tree.registration, problems, cloned=saved.unstarted)
    if found.loose:
        with transferred(submodule_git, store, found, request.session):
            make_snapshots(store, request.agent_id, found.loose, "submodule")
    return saved._replace(refs=snapshots_of(store, request.agent_id, found))


def submodules_hold(
    worktree: LinkedWorktree, git: Git, index: Path, directory: Path, saved: tuple[SavedSubmodule, ...]
) -> bool:
    """Return whether the submodules of a worktree are unchanged since the save, and their commits are safe.

    Arguments and errors are those of ``whole.holds``; *saved* is the result of :func:`save_submodules`.
    """
    problems: list[str] = []
    found = find(worktree, git, directory, problems)
    if [(submodule.name, submodule.path) for submodule in found] != [
        (submodule.name, submodule.path) for submodule in saved
    ]:
        return False
    for number, (submodule, saved_submodule) in enumerate(zip(found, saved, strict=True)):
        top = directory / submodule.path if submodule.path else submodule.tree.path
        if _is_empty(submodule, top):
            continue
        submodule_git, scratch = submodule.tree.git(git, top), _scratch(index, number)
        store = _git(git, saved_submodule.store)
        problems += _unknown(submodule.tree.registration, saved_submodule.store)
        if tips(
            submodule_git, store, submodule.tree.registration, problems, cloned=saved_submodule.unstarted
        ).loose:
            return False
        if not submodule.path:
            problems += _unsaved_without_files(submodule, git)
        elif not (
            saved_submodule.unstarted and _is_as_cloned(submodule, git, top, scratch)
        ) and not tree_holds(submodule.tree, git, scratch, top, saved_submodule.saved):
            return False
    return not problems


def add_losses(worktree: LinkedWorktree, git: Git, index: Path, found: Losses) -> Losses:
    """Return the losses of a worktree together with those of its submodules.

    Arguments:
        git: git at the repository.
        index: a path; copies of the submodules' indexes are made next to it.
        found: the losses without submodules.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    problems: list[str] = []
    for number, submodule in enumerate(find(worktree, git, worktree.path, problems)):
        store = store_of(worktree, submodule.tree.registration)
        saved_submodule = SavedSubmodule(submodule.name, submodule.path, store)
        found = found._replace(inner=(*found.inner, saved_submodule))
        if _is_empty(submodule, submodule.tree.path):
            continue
        own_problems = _unknown(submodule.tree.registration, store)
        worktree_git = submodule.tree.git(git)
        if submodule.path:
            lost = tree_losses(submodule.tree, git, _scratch(index, number), submodule.nested)
            own_problems += lost.problems
            found = found._replace(
                paths=(*found.paths, *below(submodule.path, lost.paths)),
                operation=found.operation or lost.operation,
                ignored=(*found.ignored, *below(submodule.path, lost.ignored)),
                ignored_files=found.ignored_files + lost.ignored_files,
            )
        else:
            own_problems += _unsaved_without_files(submodule, git)
        loose = tips(worktree_git, _git(git, store), submodule.tree.registration, own_problems).loose
        found = found._replace(commits=(*found.commits, *loose))
        problems += _lines(submodule, own_problems)
    return found._replace(problems=(*found.problems, *problems))


def _is_empty(submodule: SubmoduleRepository, top: Path) -> bool:
    """Return whether a clone was interrupted before an agent could work in it."""
    repository = submodule.tree.registration
    if not all(_EMPTY.fullmatch(entry.name) for entry in repository.iterdir()):
        return False
    if (repository / "objects").is_dir() and not all(
        _OBJECTS.fullmatch(entry.name) for entry in (repository / "objects").iterdir()
    ):
        return False  # another submodule, whose name ends with "objects"
    if submodule.path and any(entry.name != ".git" for entry in top.iterdir()):
        return False
    try:
        head = files.read(repository / "HEAD")
    except FileNotFoundError:
        head = b""
    refs = repository / "refs"
    return (not head or head.startswith(b"ref: ")) and not any(True for _ in files.files_below(refs))


def _unknown(repository: Path, store: Path) -> list[str]:
    """Return one line for each thing in a repository that no step saves."""
    found = []
    for entry in sorted(repository.iterdir()):
        if entry.name == "objects":
            found += [
                f"objects/{path.name} in its repository is unknown"
                for path in entry.iterdir()
                if not _OBJECTS.fullmatch(path.name)
            ]
        elif entry.name == "worktrees":
            if any(entry.iterdir()):
                found.append("another worktree belongs to it")
        elif entry.name == "lfs":
            large = entry / "objects"
            if any(not _has(store, repository, path) for path in files.files_below(large)):
                found.append("large files of git-lfs are nowhere else")
        elif not _KNOWN.fullmatch(entry.name):
            found.append(f"{entry.name} in its repository is unknown")
        elif entry.is_symlink():
            found.append(f"{entry.name} in its repository is a symlink")
    if (repository / "rebase-apply" / "applying").exists():
        found.append("git am is in progress: its patches cannot be saved")
    return found


def _has(store: Path, repository: Path, path: Path) -> bool:
    return (store / path.relative_to(repository)).is_file()


def _is_as_cloned(submodule: SubmoduleRepository, git: Git, top: Path, index: Path) -> bool:
    """Return whether all files of a submodule are those of the commit for which it was cloned."""
    worktree_git = submodule.tree.git(git, top)
    scratch = worktree_git._replace(index_file=index)
    if resolve_commit(worktree_git, submodule.commit) is None:
        return all(entry.name == ".git" for entry in top.iterdir())
    run_git(scratch, "read-tree", submodule.commit)
    with start_status(scratch) as running:
        status = parse_status(finish_git(running, "status").stdout)
    return not status.untracked and not any(os.path.lexists(top / path) for path in status.unstaged)


def _unsaved_without_files(submodule: SubmoduleRepository, git: Git) -> list[str]:
    """Return the work in a submodule without a directory that cannot be saved."""
    worktree_git = submodule.tree.git(git)
    found = []
    if unfinished := operation(submodule.tree):
        found.append(f"its directory is gone, and a {unfinished} is in progress")
    if (submodule.tree.registration / "index").exists() and run_git(
        worktree_git, "diff-index", "--cached", "--quiet", "--ignore-submodules=none", "HEAD", accept=(0, 1)
    ).status:
        found.append("its directory is gone, and something is staged")
    return found


def _git(git: Git, store: Path) -> Git:
    # Its configuration may name a work tree that does not exist; git would then fail.
    return git._replace(cwd=store, git_dir=store, common_dir=store, work_tree=store, config=())


def _scratch(index: Path, number: int) -> Path:
    return index.with_name(f"{index.name}-{number}")


def _lines(submodule: SubmoduleRepository, problems: list[str]) -> list[str]:
    name = submodule.path or submodule.name
    return [type(problem)(f"submodule {name}: {problem}") for problem in problems]  # may be Unreadable
