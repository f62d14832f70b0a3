"""Save the work in one worktree or submodule, without its submodules (see ``whole``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import (
    Git,
    Head,
    count_commits,
    create_ref,
    delete_ref,
    existing_commits,
    list_refs,
    move_ref,
    read_head,
    run_git,
    tree_of,
    worktree_holding,
)
from ralph_wrap.git.index import list_index, write_tree
from ralph_wrap.git.object_reader import is_gone
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.apart import StoreApart, present_of
from ralph_wrap.worktree.save.clones import sort_nested
from ralph_wrap.worktree.save.commits import make_snapshots, named_commits, named_objects, unreachable
from ralph_wrap.worktree.save.damage import (
    changed_paths,
    head_commit,
    lost_commit,
    may_be_damage,
    newest_whole_commit,
)
from ralph_wrap.worktree.save.from_snapshot import work_of_snapshot
from ralph_wrap.worktree.save.index import (
    copy_index,
    differing_files,
    index_digest,
    lift_flags,
    reading_anew,
    resolve,
    stage_changes,
    status_of,
    unlock,
)
from ralph_wrap.worktree.save.inspect import has_submodules, head_of, look
from ralph_wrap.worktree.save.registration import operation, unsaved_bookkeeping
from ralph_wrap.worktree.save.result import SavedWork, SaveRequest
from ralph_wrap.worktree.save.trees import (
    WORK_TITLE,
    WorktreeTrees,
    counted,
    saved_state,
    session_of,
    unsaved_files,
    write_trees,
)
from ralph_wrap.worktree.save.walk import walk
from ralph_wrap.worktree.warm import taken_at

_ATTEMPTS = 3  # to store work while a ``git gc`` deletes it


def save_tree(
    tree: LinkedWorktree,
    git: Git,
    index: Path,
    request: SaveRequest,
    *,
    inner: tuple[str, ...] = (),
) -> SavedWork:
    """Save the work that would be lost with a worktree, read it back, and name it.

    Arguments:
        tree: the worktree.
        git: git at the repository.
        index: a free path for a copy of the index, in a directory that is for such copies alone.
        request: how to save it.
        inner: paths of its submodules, which this function leaves out.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    return _save(_Saving(tree, tree.git(git), index, request, inner))


def save_without_files(worktree: LinkedWorktree, git: Git, index: Path, request: SaveRequest) -> SavedWork:
    """Save what the registration of a worktree holds: its index and its commits. Its directory is gone.

    Arguments:
        git: git at the repository.
        index: a free path for a copy of the index, in a directory of our own.
        request: how to save it.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    nothing = index.with_name("files")
    nothing.mkdir(exist_ok=True)
    return _save(_Saving(worktree, worktree.git(git, nothing), index, request, has_files=False))


def last_snapshot(git: Git, request: SaveRequest) -> str | None:
    """Return the ref of the newest snapshot of a session; an earlier session of the same id has some, too.

    Raises:
        GitError: git failed.

    """
    prefix = f"refs/ralph/snapshots/{request.agent_id}/"
    found = list_refs(git, prefix)
    numbers = (ref.removeprefix(prefix) for ref in found)
    for number in sorted((int(number) for number in numbers if number.isdecimal()), reverse=True):
        if session_of(git, found[f"{prefix}{number}"]) == request.session:
            return f"{prefix}{number}"
    return None


def save_snapshot(tree: LinkedWorktree, git: Git, index: Path, request: SaveRequest) -> SavedWork | None:
    """Make the last snapshot of a session its saved work: nothing else has what was not committed.

    Arguments:
        tree: the worktree, whose directory is gone.
        git: git at the repository.
        index: a free path for an index, in a directory of our own.
        request: how to save it.

    Returns:
        What was saved; ``None`` without a whole snapshot, or if the branch has all of it.

    Raises:
        GitError: git failed.
        OSError: a temporary file cannot be written.

    """
    ref = last_snapshot(git, request)
    tip = _tip(git, tree.branch)
    present = existing_commits(git, filter(None, [tip]))
    if ref is None or find_damage(git, [ref], present) is not None:
        return None
    snapshot = list_refs(git, ref)[ref]
    commit = work_of_snapshot(git._replace(index_file=index), snapshot, tip, request.session).commit
    if commit is None or find_damage(git, [commit], present) is not None:
        return None
    branch = _name(tree, git, request, commit, _tip(git, request.branch))
    state = saved_state(git, commit)
    before = tree_of(git, state.head) if state.head else None
    paths = {*changed_paths(git, before, state.files), *changed_paths(git, before, state.staged)}
    return SavedWork(branch, tuple(sorted(paths)), (), (), 0, ())


class _Saving(NamedTuple):
    """One save.

    Attributes:
        tree: the worktree.
        git: git in it.
        index_copy: a free path for a copy of the index.
        request: how to save it.
        inner: paths of its submodules, which are saved elsewhere.
        has_files: its directory exists.

    """

    tree: LinkedWorktree
    git: Git
    index_copy: Path
    request: SaveRequest
    inner: tuple[str, ...] = ()
    has_files: bool = True

    @property
    def scratch(self) -> Git:
        """Git with the copy of the index."""
        return self.git._replace(index_file=self.index_copy)


class _Found(NamedTuple):
    """What a worktree has that its branch does not hold.

    Attributes:
        head: the commit and the branch that are checked out.
        commits: the commits that its registration names.
        picture: its uncommitted work; ``None`` if there is none.
        work: the rest of the result; branch and snapshots are still missing.
        names_head: the commit of a detached HEAD gets the branch of the saved work.

    """

    head: Head
    commits: list[str]
    picture: WorktreeTrees | None
    work: SavedWork
    names_head: bool = True


def _save(saving: _Saving) -> SavedWork:
    """Save a worktree; if a ``git gc`` has deleted objects meanwhile, store them again."""
    tree, request = saving.tree, saving.request
    present = present_of(tree, saving.git)
    damage = lost_commit(tree, saving.git)
    attempts = 0 if damage else _ATTEMPTS
    for attempt in range(attempts):
        with contextlib.ExitStack() as stack:
            apart = StoreApart(stack, tree, saving.git, request.session, present)
            try:
                if attempt:
                    apart.store_again(saving.index_copy)
                found = _look(saving, apart, is_last=attempt == _ATTEMPTS - 1)
                commit, damage = _store(saving, apart, found)
            except GitError as error:
                if not may_be_damage(error):
                    raise
                damage = error.message
            else:
                if damage is None:
                    return _named(saving, found, commit)
    return _save_beside_damage(saving, present, str(damage))


def _look(saving: _Saving, apart: StoreApart, *, is_last: bool) -> _Found:
    """Find the work, and store its trees.

    Arguments:
        is_last: do without an index that git cannot read.

    """
    if not saving.has_files:
        return _look_at_registration(saving, apart)
    return _look_at_files(saving, apart, is_last=is_last)


def _look_at_files(saving: _Saving, apart: StoreApart, *, is_last: bool) -> _Found:
    tree, request, inner = saving.tree, saving.request, saving.inner
    problems: list[str] = []
    head = head_of(tree, saving.git)
    if request.unstarted:
        left = _left_by_checkout(tree, saving.scratch, head.commit or "HEAD", inner)
        if left is not None:
            named, commits = _registered(saving, head, problems)
            work = SavedWork(None, (), (), (), 0, tuple(problems), left, head=head, named=named)
            return _Found(head, commits, None, work, names_head=False)
    git, scratch = apart.seeing(saving.git), apart.seeing(saving.scratch)
    staged = index_digest(tree)  # before it is copied: a later one means that something was staged meanwhile
    status, walked = look(tree, git, scratch, problems, inner, needs_index=not is_last)
    nested = sort_nested(tree, saving.git, saving.index_copy, status, walked)
    problems += nested.problems
    picture = None
    paths: tuple[str, ...] = (*status.changed, *status.untracked)
    if not status.clean and request.commits_only:
        problems.append(counted(len(status.changed) + len(status.untracked), "uncommitted path"))
    elif not status.clean:
        trees = write_trees(tree, apart.git(saving.scratch), head, status, problems)
        picture = None if trees.shows_head else trees
        if problems:  # git has named more than could be saved
            paths = _paths_in(apart.git(saving.scratch), trees)
    named, commits = _registered(saving, head, problems)
    work = SavedWork(
        branch=None,
        paths=paths,
        snapshots=(),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
        problems=tuple(problems),
        head=head,
        named=named,
        staged=staged,
        clones=nested.clones,
        nested=tuple(nested.others),
    )
    return _Found(head, commits, picture, work)


def _paths_in(git: Git, trees: WorktreeTrees) -> tuple[str, ...]:
    """Return the paths of uncommitted work in the trees that hold it."""
    before = trees.head_tree or (tree_of(git, trees.head) if trees.head else None)
    found = {*changed_paths(git, before, trees.tree), *changed_paths(git, before, trees.index_tree)}
    return tuple(sorted(found))


def _registered(saving: _Saving, head: Head, problems: list[str]) -> tuple[frozenset[str], list[str]]:
    """Return the object ids in the registration, and the commits among them."""
    named = named_objects(saving.tree.registration, saving.git, problems)
    at_head = {head.commit} & named  # the save has read it
    return named, [*filter(None, at_head), *named_commits(saving.git, named - at_head, problems)]


def _look_at_registration(saving: _Saving, apart: StoreApart) -> _Found:
    tree = saving.tree
    problems = unsaved_bookkeeping(tree)
    if has_submodules(tree):
        problems.append(f"repositories of its submodules are in {tree.registration / 'modules'}")
    head = read_head(saving.git)
    scratch = apart.git(saving.scratch)
    copy_index(tree, scratch)
    resolve(scratch)
    staged = write_tree(scratch)
    picture = WorktreeTrees(head.commit, head.tree, staged, staged)
    named, commits = _registered(saving, head, problems)
    work = SavedWork(None, (), (), (), 0, tuple(problems), head=head, named=named)
    return _Found(head, commits, None if picture.shows_head else picture, work)


def _store(saving: _Saving, apart: StoreApart, found: _Found) -> tuple[str | None, str | None]:
    """Bring the work into the repository, and read it back.

    Returns:
        The commit of the uncommitted work, if there is any; what is damaged, in words, if anything is.

    """
    commit = None
    if found.picture is not None:
        commit = _commit(saving, apart, found.picture)
    # The agent may have left the branch, and nothing else has read its commits.
    left = None if found.head.branch == f"refs/heads/{saving.tree.branch}" else _branch_tip(saving)
    wanted = [commit, found.head.commit, left, *found.commits]
    tips = [oid for oid in dict.fromkeys(wanted) if oid and oid != saving.tree.base]
    return commit, apart.enter(tips) if tips else None


def _branch_tip(saving: _Saving) -> str | None:
    """Return what the branch of the session holds; a submodule has no such branch."""
    return _tip(saving.git, saving.tree.branch) if saving.tree.branch else None


def _commit(saving: _Saving, apart: StoreApart, picture: WorktreeTrees) -> str:
    """Return the commit of uncommitted work: that of an earlier save with the same work, or a new one."""
    git, session = apart.git(saving.scratch), saving.request.session
    before = _tip(saving.git, saving.request.branch)
    if before is not None and picture.is_in(git, before):
        return before
    message = f"{WORK_TITLE}{session}\n\nWhat was not committed when the session ended.\n"
    if unfinished := operation(saving.tree):
        message += f"A {unfinished} was in progress.\n"
    return picture.commit(git, message, session)


def _on_no_branch(saving: _Saving, found: _Found) -> list[str]:
    """Return the commits that only the registration names, without their ancestors."""
    head = found.head
    if head.branch is not None and head.branch.startswith("refs/heads/") and found.commits == [head.commit]:
        return []  # the branch holds the only one
    return unreachable(saving.git, found.commits)


def _named(saving: _Saving, found: _Found, commit: str | None) -> SavedWork:
    """Give refs to work that was read back, and return it."""
    git, request, head = saving.git, saving.request, found.head
    before = _tip(git, request.branch)
    branch = None
    if commit is not None:
        branch = _name(saving.tree, git, request, commit, before)
    elif found.names_head and head.branch is None and head.commit:
        # Work that was put back is on its branch already, and stays there if the next session needs it.
        own = (f"refs/heads/{request.branch}",) if before and before == request.restored else ()
        if unreachable(git, [head.commit], without=own):
            branch = _name(saving.tree, git, request, head.commit, before)
    snapshots = make_snapshots(git, request.agent_id, _on_no_branch(saving, found))
    detached = _count_detached(saving, head) if branch else 0
    return found.work._replace(branch=branch, snapshots=snapshots, detached=detached)


def _count_detached(saving: _Saving, head: Head) -> int:
    """Return the number of commits at a detached HEAD that the branch of the session lacks."""
    if head.branch is not None or not head.commit or not saving.tree.branch:
        return 0
    own = _branch_tip(saving) or saving.tree.base
    return count_commits(saving.git, own, head.commit) or 0


def retire(git: Git, request: SaveRequest) -> None:
    """Turn the branch of saved work that was put back into a snapshot; the session leaves no such work.

    Arguments:
        git: git in the repository.

    Raises:
        GitError: git failed; the work is on the branch, in a snapshot, or both.

    """
    ref, restored = f"refs/heads/{request.branch}", request.restored
    if restored is None or _tip(git, request.branch) != restored or worktree_holding(git, ref):
        return
    make_snapshots(git, request.agent_id, [restored])
    delete_ref(git, ref, restored)


def _save_beside_damage(saving: _Saving, present: Sequence[str], damage: str) -> SavedWork:
    """Save the files on the newest whole commit, and each other whole commit; the worktree has to stay.

    Arguments:
        present: the commits that count as whole without a look.
        damage: what is damaged or missing, in words.

    """
    git, tree, request = saving.git, saving.tree, saving.request
    problems: list[str] = []
    named = named_objects(tree.registration, git, problems)
    whole, at_head_damage = newest_whole_commit(tree, git, present)
    commit, paths = None, tuple[str, ...]()
    with contextlib.ExitStack() as stack:
        apart = StoreApart(stack, tree, git, request.session, present)
        apart.store_again(saving.index_copy)
        if not request.commits_only:
            with reading_anew(saving.scratch):
                picture = _picture_on(saving, apart, whole, problems)
            paths = changed_paths(apart.git(git), picture.head_tree, picture.tree)
            commit = _commit(saving, apart, picture) if paths or not picture.shows_head else None
        at_head = [whole] if whole and whole not in present else []
        damages = {
            oid: find_damage(git, [oid], present)
            for oid in dict.fromkeys([_branch_tip(saving), *existing_commits(git, sorted(named))])
            if oid
        }
        damage = at_head_damage or next(filter(None, damages.values()), damage)
        others = [oid for oid, found in damages.items() if found is None]
        tips = [*([commit] if commit else []), *at_head, *others]
        if broken := apart.enter(tips) if tips else None:
            damage = f"{broken}; its files cannot be saved"
            return SavedWork(None, paths, (), (), 0, tuple(problems), named=named, damage=damage)
    branch = None
    if commit is not None:
        branch = _name(tree, git, request, commit, _tip(git, request.branch))
        damage += f"; the files are saved on {branch}, on top of {whole[:12] if whole else 'nothing'}"
    snapshots = make_snapshots(git, request.agent_id, _unnamed(git, others))
    return SavedWork(branch, paths, snapshots, (), 0, tuple(problems), named=named, damage=damage)


def _picture_on(saving: _Saving, apart: StoreApart, whole: str | None, problems: list[str]) -> WorktreeTrees:
    """Store the files and the index as they are, without a look at a damaged HEAD."""
    tree, scratch = saving.tree, apart.git(saving.scratch)
    head = Head(whole, tree_of(scratch, whole) if whole else None, None)
    if saving.has_files:
        walked = walk(tree.path, saving.inner)
        problems += [*walked.problems, *unsaved_bookkeeping(tree)]
        problems += [f"nested repository {path} cannot be saved" for path in walked.repositories]
    try:
        with reading_anew(scratch):
            copy_index(tree, scratch)
            resolve(scratch)
            lift_flags(tree, scratch, list_index(scratch))
        staged = write_tree(scratch)
    except (GitError, FileNotFoundError) as error:
        problems.append(f"what was staged is not saved: {error}")
        saving.index_copy.unlink(missing_ok=True)
        unlock(scratch)
        run_git(scratch, "read-tree", whole or "--empty")
        staged = write_tree(scratch)
    if not saving.has_files:
        return WorktreeTrees(whole, head.tree, staged, staged)
    paths, nested = differing_files(scratch)
    left, reason = stage_changes(scratch, paths, nested)
    if left:
        problems.append(unsaved_files(tree, left, reason))
    return WorktreeTrees(whole, head.tree, write_tree(scratch), staged)


def _unnamed(git: Git, commits: list[str]) -> list[str]:
    """Return the commits among some whole ones that need a ref."""
    named = {*list_refs(git).values()}
    try:
        loose = unreachable(git, commits)
    except GitError:  # a damaged branch may be the only one that contains them
        loose = commits
    return [oid for oid in loose if oid not in named]


def _left_by_checkout(
    worktree: LinkedWorktree, scratch: Git, commit: str, inner: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the files that an interrupted checkout has not written; ``None`` if a process worked in it."""
    warm_commit = taken_at(worktree.registration)
    before = None
    with contextlib.suppress(GitError):  # git may have pruned this commit
        before = _differing(scratch, warm_commit) if warm_commit else None
    found = _differing(scratch, commit) - {*inner}  # they may be cloned, but not checked out yet
    if inner and walk(worktree.path, inner).repositories:
        return None
    unwritten = tuple(
        path
        for path in found
        if not os.path.lexists(worktree.path / path) or (before is not None and path not in before)
    )
    return unwritten if len(unwritten) == len(found) else None


def _differing(scratch: Git, commit: str) -> set[str]:
    run_git(scratch, "read-tree", commit)
    status = status_of(scratch)
    return {*status.unstaged, *status.untracked}


def _tip(git: Git, branch: str) -> str | None:
    ref = f"refs/heads/{branch}"
    return list_refs(git, ref).get(ref)


def _name(tree: LinkedWorktree, git: Git, request: SaveRequest, commit: str, before: str | None) -> str:
    """Point ``ralph/<id>-wip`` to a commit, and return the name that the commit has now.

    The former commit of the branch gets a snapshot. If the branch must stay, a worktree has it checked out,
    or its commit is damaged, so that git gives it no other ref, the new commit gets a snapshot.

    Arguments:
        before: the former commit; ``None`` if there is no such branch.

    """
    branch = request.branch
    ref = f"refs/heads/{branch}"
    reason = _reason(request)
    if before is None:
        create_ref(git, ref, commit, reason)
    elif before != commit:
        if request.keeps_branch or worktree_holding(git, ref):
            return make_snapshots(git, request.agent_id, [commit])[0]
        if not existing_commits(git, [before]):
            witnesses = [oid for oid in (tree.base, head_commit(tree, git)) if oid]
            if not is_gone(git, before, witnesses):
                return make_snapshots(git, request.agent_id, [commit])[0]
            delete_ref(git, ref, before)  # with its reflog, which names no lost commit so
            create_ref(git, ref, commit, reason)
            return branch
        make_snapshots(git, request.agent_id, [before])
        move_ref(git, ref, before, commit, reason, no_deref=True)
    return branch


def _reason(request: SaveRequest) -> str:
    return f"ralph-wrap: end of {request.session}"
