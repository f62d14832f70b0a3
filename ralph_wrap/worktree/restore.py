"""Put the saved work of an earlier session back into a new worktree, uncommitted.

:mod:`ralph_wrap.worktree.save` describes what ``ralph/<id>-wip`` holds. The files of its commit come back as
files, the tree of its second parent as the index, and its first parent as HEAD:

- If the branch is still at this parent, files and index are exactly those of the save.
- If the branch got commits since, the saved changes are applied on top of them. The same holds if the branch
  was at this parent once, and was rebased or reset since.
- If the branch was never at the parent, the agent had left the branch. HEAD is detached at the parent.
- If the branch contains the saved work itself, there is nothing to do.

Nothing here changes a branch. ``ralph/<id>-wip`` stays until the new session has saved its work.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import ConflictError, GitError, TamperedError
from ralph_wrap.git import (
    Git,
    commit_tree,
    decode_lines,
    list_refs,
    read_commit,
    read_head,
    run_git,
    tree_of,
)
from ralph_wrap.git import merge as merging
from ralph_wrap.git.index import write_tree
from ralph_wrap.git.read_back import require_whole
from ralph_wrap.git.safe.genuine import require_genuine
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command, named
from ralph_wrap.worktree.create.submodules import is_repository
from ralph_wrap.worktree.layout import SPARSE, is_sparse
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.submodule_repositories import SubmoduleRepository, find
from ralph_wrap.worktree.save.trees import WORK_TITLE, SavedState, saved_state

_NAMED = 5  # files with conflicts that an error names; it counts the others


def restore(worktree: LinkedWorktree, git: Git, agent_id: str) -> str | None:
    """Put the saved work of an agent id into a new worktree, and return its commit; ``None`` without any.

    Arguments:
        worktree: no agent has worked in it.
        git: git in the repository.
        agent_id: names the branch of the saved work.

    Raises:
        ConflictError: the saved work conflicts with commits that the branch got since.
        GitError: git failed.

    """
    ref = f"refs/heads/ralph/{agent_id}-wip"
    saved = list_refs(git, ref).get(ref)
    if saved is None:
        return None
    name = ref.removeprefix("refs/heads/")
    try:
        restore_commit(worktree.git(git), saved, name=name)
    except ConflictError as error:
        ways_on = (
            f"to resolve it: git switch {shlex.quote(worktree.branch)} && git merge {name}",
            f"then, with another branch checked out: ralph-wrap resume {agent_id}",
        )
        raise ConflictError(error.message, Commands.of(*ways_on)) from None
    return saved


def restore_commit(git: Git, saved: str, *, name: str) -> None:
    """Put a commit of saved work into a clean checkout.

    Arguments:
        git: in the checkout; it names the repository.
        saved: object id of the commit.
        name: names it in an error.

    Raises:
        ConflictError: it conflicts with the commits of HEAD.
        TamperedError: an object of it holds something else than its name says.
        DamageError: an object of it is damaged or missing; nothing has changed.
        GitError: git failed.

    """
    require_genuine(git, saved, saved)
    state = saved_state(git, saved)
    found, before = read_head(git), state.head
    head = found.commit
    assert head is not None  # a new worktree is at a commit
    if merging.is_ancestor(git, saved, head):
        return
    for tree in (state.files, state.staged):
        require_genuine(git, before or head, tree)
    require_whole(git, [saved], [head])
    if before is not None and before != head:
        was_on_branch = before != saved and _has_been_at(git, found.branch, before)
        if was_on_branch or merging.is_ancestor(git, before, head):
            state = _moved_onto(git, head, state, name)
        else:
            _move_files(git, head, before)
            run_git(git, "update-ref", "--no-deref", "HEAD", before)
            head = before
    _move_files(git, head, state.files)
    _read_index(git, state.staged)


class SavedSubmoduleWork(NamedTuple):
    """The saved work of one submodule, as the report of a session names it.

    Attributes:
        path: of the submodule, below the top of the worktree.
        refs: full names of refs in the repository that stays.

    """

    path: str
    refs: tuple[str, ...]


def restore_submodules(
    worktree: LinkedWorktree,
    git: Git,
    agent_id: str,
    session: str,
    saved: Sequence[SavedSubmoduleWork],
    store: Path,
) -> list[SavedSubmoduleWork]:
    """Put the saved work of submodules back into those of a new worktree.

    Arguments:
        worktree: its submodules are initialised, as far as the configuration wants that.
        git: git in the repository.
        agent_id: names the refs.
        session: id of the session that saved the work.
        saved: the work; a file that an agent can write may say it.
        store: the repository of the project: it has the work, or its own repositories of submodules have it.

    Returns:
        The work that was not put back, because its submodule is not there, or git failed.

    """
    found = {submodule.path: submodule for submodule in find(worktree, git, worktree.path, [])}
    left = []
    for work in sorted(saved):  # a submodule before those in it
        submodule = found.get(work.path)
        try:
            if submodule is None:
                left.append(work)
                continue
            own = store / submodule.tree.registration.relative_to(worktree.registration)
            sources = [own, store] if is_repository(own) else [store]
            if not any(
                _restore_submodule(submodule, git, source, agent_id, session, work.refs) for source in sources
            ):
                left.append(work)
        except (GitError, ConflictError, TamperedError):
            left.append(work)
    return left


def _restore_submodule(
    submodule: SubmoduleRepository, git: Git, store: Path, agent_id: str, session: str, refs: Sequence[str]
) -> bool:
    """Put the saved work of one submodule back, and return whether there was any."""
    known = re.compile(rf"refs/ralph/snapshots/{agent_id}/submodule-[0-9]+")
    refs = [ref for ref in refs if known.fullmatch(ref)]
    store_git = git._replace(cwd=store, git_dir=store, common_dir=store, work_tree=store, config=())
    commits = list_refs(store_git, *refs) if refs else {}
    works = [ref for ref in commits if read_commit(store_git, commits[ref]).subject == WORK_TITLE + session]
    chosen = works or [ref for ref in commits if len(commits) == 1 or commits[ref] == submodule.commit]
    if not chosen:
        return False
    submodule_git = submodule.tree.git(git)
    options = ("--quiet", "--no-tags", "--no-recurse-submodules")
    run_git(submodule_git, "fetch", *options, store, chosen[0], config=("-c", "protocol.file.allow=always"))
    restore_commit(submodule_git, commits[chosen[0]], name=chosen[0])
    return True


def _has_been_at(git: Git, ref: str | None, commit: str) -> bool:
    """Return whether a branch was at a commit once, as its reflog says."""
    if ref is None:
        return False
    answer = run_git(git, "reflog", "--format=%H", ref, "--", accept=(0, 128))
    return commit in decode_lines(answer.stdout)


def _moved_onto(git: Git, head: str, state: SavedState, name: str) -> SavedState:
    """Return saved work as it is on top of the commits that the branch got since."""
    files, conflicts = _applied(git, head, state.head, state.files)
    if files is None:
        raise ConflictError(
            f"{name} conflicts with the commits that its branch got since: {named(conflicts, _NAMED)}",
            command("git", "diff", head[:12], name),
        )
    staged, _ = _applied(git, head, state.head, state.staged)
    return SavedState(head, files, staged or tree_of(git, head))


def _applied(git: Git, head: str, base: str | None, tree: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the tree of HEAD with a saved change, or ``None`` and the paths with conflicts.

    The checkout is clean again afterwards.
    """
    change = commit_tree(git, tree, [base] if base else [], "saved work\n")
    conflicts = merging.bring(git, change)
    applied = None if conflicts else write_tree(git)
    _start_over(git, head)
    return applied, conflicts


def _start_over(git: Git, head: str) -> None:
    run_git(git, "read-tree", "--reset", "-u", "--no-recurse-submodules", head, config=_config(git))


def _move_files(git: Git, old: str, new: str) -> None:
    """Move files and index from one commit or tree to another, also outside of a sparse checkout."""
    if old != new:
        options = ("-m", "-u", "--no-sparse-checkout", "--no-recurse-submodules")
        run_git(git, "read-tree", *options, old, new)


def _read_index(git: Git, tree: str) -> None:
    """Give the index the entries of a tree; the files stay."""
    run_git(git, "read-tree", "-m", "--no-recurse-submodules", tree, config=_config(git))
    run_git(git, "update-index", "-q", "--refresh", accept=(0, 1))


def _config(git: Git) -> tuple[str, ...]:
    return SPARSE if git.git_dir is not None and is_sparse(git.git_dir) else ()
