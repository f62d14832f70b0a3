"""Make saved work of the last snapshot of a session whose end nothing saved.

The machine of the session died. Its last snapshot is what it had not committed a short time before, and the
branch can be newer: the agent may have committed meanwhile. So the saved work stands on the branch. A path
that differs between the snapshot's parent and the branch is as the branch has it, because the commit is
newer. Every other path is as the snapshot has it. The same holds for the index. If the commit has what was
staged of a file, the changes that were not staged are newer than the commit.

The snapshot of a detached HEAD, or of another branch, stays on its own parent: HEAD was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ralph_wrap.git import Git, commit_tree, run_git, tree_of
from ralph_wrap.git import merge as merging
from ralph_wrap.git.index import write_tree
from ralph_wrap.git.merge import PathChange
from ralph_wrap.worktree.save.trees import AWAY_TITLE, INDEX_TITLE, WORK_TITLE, saved_state

_NOT_STAGED = ("", "")  # no mode and no object id


class WorkOfSnapshot(NamedTuple):
    """What a snapshot has that a branch lacks.

    Attributes:
        commit: object id of the saved work; ``None`` if the branch has all of it.
        older: paths that the snapshot has in an older state than the branch; they are not in the saved work.

    """

    commit: str | None
    older: tuple[str, ...] = ()


def work_of_snapshot(scratch: Git, snapshot: str, tip: str | None, session: str) -> WorkOfSnapshot:
    """Make a commit of saved work of a snapshot; no ref changes.

    Arguments:
        scratch: git in the repository, with a free path for an index.
        snapshot: its commit.
        tip: commit of the session's branch; ``None`` if there is no such branch.
        session: session id, for the messages.

    Raises:
        GitError: git failed.

    """
    state = saved_state(scratch, snapshot)
    stays = tip is None or state.head in {None, tip} or state.title.startswith(AWAY_TITLE)
    older: dict[str, None] = {}
    if not stays and tip is not None and state.head is not None:
        newer = merging.moved(scratch, state.head, tip)
        staging = merging.moved(scratch, state.head, state.staged)
        was_staged = {change.path: change.after for change in staging}
        foreign = [change for change in newer if was_staged.get(change.path, _NOT_STAGED) != change.after]
        files = _with(scratch, tip, foreign, merging.moved(scratch, state.head, state.files), older)
        staged = _with(scratch, tip, newer, staging, older)
        state = state._replace(head=tip, files=files, staged=staged)
    is_clean = state.head is not None and {state.files, state.staged} == {tree_of(scratch, state.head)}
    if is_clean and tip is not None and merging.is_ancestor(scratch, str(state.head), tip):
        return WorkOfSnapshot(None, tuple(older))
    parents = [state.head] if state.head else []
    if state.staged != state.files:
        parents.append(commit_tree(scratch, state.staged, parents, f"{INDEX_TITLE}{session}\n"))
    message = f"{WORK_TITLE}{session}\n\nWhat was not committed in its last snapshot.\n"
    return WorkOfSnapshot(commit_tree(scratch, state.files, parents, message), tuple(older))


def _with(
    scratch: Git, tip: str, newer: Iterable[PathChange], changes: Iterable[PathChange], older: dict[str, None]
) -> str:
    """Return the tree of a commit with some changes, except those in which the commit is newer.

    Arguments:
        tip: the commit.
        newer: what its branch has changed.
        changes: what the snapshot has changed.
        older: gets the paths in which the commit is newer, and different.

    """
    at_tip = {change.path: change.after for change in newer}
    present = {path for path, after in at_tip.items() if after is not None}
    above = {parent for path in present for parent in _parents(path)}
    applied = []
    for change in changes:
        is_in_the_way = change.after is not None and (
            change.path in above or not present.isdisjoint(_parents(change.path))
        )
        if change.path not in at_tip and not is_in_the_way:
            applied.append(change)
        elif is_in_the_way or at_tip[change.path] != change.after:
            older[change.path] = None
    applied.sort(key=lambda change: change.after is not None)  # a file goes before a directory comes
    run_git(scratch, "read-tree", tip)
    rows = [f"{change.new_mode} {change.new}\t{change.path}\0" for change in applied]
    run_git(
        scratch, "update-index", "-z", "--index-info", stdin="".join(rows).encode(errors="surrogateescape")
    )
    return write_tree(scratch)


def _parents(path: str) -> list[str]:
    """Return the directories that a path is in."""
    names = path.split("/")
    return ["/".join(names[:end]) for end in range(1, len(names))]
