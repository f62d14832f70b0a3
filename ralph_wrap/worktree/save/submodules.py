"""Save what the submodules of a worktree hold: their repositories lie in its registration and go with it.

A submodule's repository is ``modules/<name>`` in the registration, that of one in it ``modules`` in that
repository, and so on. What is saved of each, before anything of the worktree is removed:

1. its files and its index, by the same code as those of a worktree: a commit in its own repository;
2. every commit that its refs, its HEAD and its reflogs name and that is nowhere else. All objects of those
   are copied into a repository that stays, are looked for there one by one, and only then named by
   ``refs/ralph/snapshots/<id>/commit-<n>`` of it.

The repository that stays is the main checkout's own one of the same submodule, where its other commits are
and where ``git submodule update`` looks for them, or else the project's. In a place nowhere else is what none
of its refs holds; for a submodule that was cloned by us from elsewhere, what was not cloned, either.

Nothing is taken for saved because a configuration, a pointer or a name says so: whatever is unknown in a
repository, leads out of it, or is pointed to by two directories is a problem, and keeps the worktree.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import finish_git, parse_status, resolve_commit, run_git, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.copy_commits import snapshots_of, store_of, tips, transfer
from ralph_wrap.worktree.save.inspect import tree_holds, tree_losses
from ralph_wrap.worktree.save.one_tree import save_tree
from ralph_wrap.worktree.save.registration import operation
from ralph_wrap.worktree.save.result import SavedSubmodule, below
from ralph_wrap.worktree.save.submodule_repositories import SubmoduleRepository, find

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.result import Losses

# What git itself has in a repository (gitrepository-layout(5)), and what is looked at, or is nobody's work.
_KNOWN = re.compile(
    r"branches|config(\.worktree)?|description|gc\.(log|pid)|hooks|info|logs|modules|packed-refs|refs"
    r"|index|sharedindex\..*|shallow|rebase-merge|rebase-apply|sequencer|rr-cache|reftable|ralph-wrap-.*"
    r"|[A-Z][A-Z_]*|.*\.lock"
)
_OBJECTS = re.compile(r"[0-9a-f]{2}|pack|info|tmp_.*|incoming-.*|.*\.lock")
_EMPTY = re.compile(r"branches|config|description|HEAD|hooks|info|objects|refs|.*\.lock")


def save_submodules(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    problems: list[str],
    *,
    agent_id: str,
    session: str,
    commits_only: bool,
    unstarted: bool,
) -> tuple[SavedSubmodule, ...]:
    """Save what the submodules of a worktree hold.

    Arguments:
        worktree: whose.
        git: git at the repository.
        index: beside it, copies of their indexes can be made.
        problems: gets a line for all that cannot be saved.
        agent_id: as for :func:`save_tree`.
        session: the same.
        commits_only: the same.
        unstarted: the same.

    Raises:
        OSError: it cannot be told what there is.

    """
    done = []
    for number, sub in enumerate(find(worktree, git, worktree.path, problems)):
        mine: list[str] = []
        inner = SavedSubmodule(
            sub.name, sub.path, store_of(worktree, sub.tree.registration), unstarted=unstarted
        )
        try:
            if not _is_empty(sub, sub.tree.path):
                mine += _unknown(sub.tree.registration, inner.store)
                scratch = _scratch(index, number)
                if sub.path and not (unstarted and _is_as_cloned(sub, git, sub.tree.path, scratch)):
                    saved = save_tree(
                        sub.tree,
                        git,
                        scratch,
                        agent_id=agent_id,
                        session=session,
                        commits_only=commits_only,
                        inner=sub.nested,
                    )
                    mine += saved.problems
                    inner = inner._replace(saved=saved)
                elif not sub.path:
                    mine += _unsaved_without_files(sub, git)
                here, store = sub.tree.git(git), _git(git, inner.store)
                found = tips(here, store, sub.tree.registration, mine, cloned=unstarted)
                if found.loose:
                    transfer(here, store, found)
                    make_snapshots(store, agent_id, found.loose)
                inner = inner._replace(refs=snapshots_of(store, agent_id, found))
        except (GitError, OSError) as error:
            mine.append(f"it cannot be saved: {error}")
        problems += _told(sub, mine)
        done.append(inner)
    return tuple(done)


def hold(
    worktree: LinkedWorktree, git: Git, index: Path, directory: Path, saved: tuple[SavedSubmodule, ...]
) -> bool:
    """Tell whether the submodules of a worktree are as they were saved, and their commits held elsewhere.

    Arguments:
        worktree: saved without a problem.
        git: git at the repository.
        index: as it was given to :func:`save_submodules`.
        directory: where the worktree's directory is now.
        saved: what that returned.

    Raises:
        GitError: that cannot be told.
        OSError: the same.

    """
    problems: list[str] = []
    found = find(worktree, git, directory, problems)
    if [(one.name, one.path) for one in found] != [(one.name, one.path) for one in saved]:
        return False
    for number, (sub, inner) in enumerate(zip(found, saved, strict=True)):
        top = directory / sub.path if sub.path else sub.tree.path
        if _is_empty(sub, top):
            continue
        here, scratch = sub.tree.git(git, top), _scratch(index, number)
        store = _git(git, inner.store)
        problems += _unknown(sub.tree.registration, inner.store)
        if tips(here, store, sub.tree.registration, problems, cloned=inner.unstarted).loose:
            return False
        if not sub.path:
            problems += _unsaved_without_files(sub, git)
        elif not (inner.unstarted and _is_as_cloned(sub, git, top, scratch)) and not tree_holds(
            sub.tree, git, scratch, top, inner.saved
        ):
            return False
    return not problems


def add_losses(worktree: LinkedWorktree, git: Git, index: Path, found: Losses) -> Losses:
    """Return what would be lost with a worktree, with what would be lost in its submodules.

    Arguments:
        worktree: which one.
        git: git at the repository.
        index: beside it, copies of their indexes can be made.
        found: what would be lost besides.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    problems: list[str] = []
    for number, sub in enumerate(find(worktree, git, worktree.path, problems)):
        store = store_of(worktree, sub.tree.registration)
        inner = SavedSubmodule(sub.name, sub.path, store)
        found = found._replace(inner=(*found.inner, inner))
        if _is_empty(sub, sub.tree.path):
            continue
        mine = _unknown(sub.tree.registration, store)
        worktree_git = sub.tree.git(git)
        if sub.path:
            lost = tree_losses(sub.tree, git, _scratch(index, number), sub.nested)
            mine += lost.problems
            found = found._replace(
                paths=(*found.paths, *below(sub.path, lost.paths)),
                operation=found.operation or lost.operation,
                ignored=(*found.ignored, *below(sub.path, lost.ignored)),
                ignored_files=found.ignored_files + lost.ignored_files,
            )
        else:
            mine += _unsaved_without_files(sub, git)
        loose = tips(worktree_git, _git(git, store), sub.tree.registration, mine).loose
        found = found._replace(commits=(*found.commits, *loose))
        problems += _told(sub, mine)
    return found._replace(problems=(*found.problems, *problems))


def _is_empty(sub: SubmoduleRepository, top: Path) -> bool:
    """Tell whether a clone was cut short before anything could be worked on."""
    repository = sub.tree.registration
    if not all(_EMPTY.fullmatch(entry.name) for entry in repository.iterdir()):
        return False
    if (repository / "objects").is_dir() and not all(
        _OBJECTS.fullmatch(entry.name) for entry in (repository / "objects").iterdir()
    ):
        return False  # another submodule, whose name ends so
    if sub.path and any(entry.name != ".git" for entry in top.iterdir()):
        return False
    try:
        head = files.read(repository / "HEAD")
    except FileNotFoundError:
        head = b""
    refs = repository / "refs"
    return (not head or head.startswith(b"ref: ")) and not any(not path.is_dir() for path in refs.rglob("*"))


def _unknown(repository: Path, store: Path) -> list[str]:
    """Return what is in a repository and saved by nobody."""
    found = []
    for entry in sorted(repository.iterdir()):
        if entry.name == "objects":
            found += [
                f"objects/{one.name} in its repository is unknown"
                for one in entry.iterdir()
                if not _OBJECTS.fullmatch(one.name)
            ]
        elif entry.name == "worktrees":
            if any(entry.iterdir()):
                found.append("another worktree belongs to it")
        elif entry.name == "lfs":
            large = entry / "objects"
            if any(not path.is_dir() and not _has(store, repository, path) for path in large.rglob("*")):
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


def _is_as_cloned(sub: SubmoduleRepository, git: Git, top: Path, index: Path) -> bool:
    """Tell whether all files that a submodule has are those of the commit that it was cloned for."""
    worktree_git = sub.tree.git(git, top)
    scratch = worktree_git._replace(index_file=index)
    if resolve_commit(worktree_git, sub.commit) is None:
        return all(entry.name == ".git" for entry in top.iterdir())
    run_git(scratch, "read-tree", sub.commit)
    with start_status(scratch, "dirty") as asking:
        status = parse_status(finish_git(asking, "status").stdout)
    return not status.untracked and not any(os.path.lexists(top / path) for path in status.unstaged)


def _unsaved_without_files(sub: SubmoduleRepository, git: Git) -> list[str]:
    """Return what is not saved of a submodule whose directory is gone."""
    worktree_git = sub.tree.git(git)
    found = []
    if unfinished := operation(sub.tree):
        found.append(f"its directory is gone, and a {unfinished} is in progress")
    if (sub.tree.registration / "index").exists() and run_git(
        worktree_git, "diff-index", "--cached", "--quiet", "--ignore-submodules=none", "HEAD", accept=(0, 1)
    ).status:
        found.append("its directory is gone, and something is staged")
    return found


def _git(git: Git, store: Path) -> Git:
    # The work tree that its configuration names may be gone, which git would not bear.
    return git._replace(cwd=store, git_dir=store, common_dir=store, work_tree=store, config=())


def _scratch(index: Path, number: int) -> Path:
    return index.with_name(f"{index.name}-{number}")


def _told(sub: SubmoduleRepository, problems: list[str]) -> list[str]:
    return [f"submodule {sub.path or sub.name}: {problem}" for problem in problems]
