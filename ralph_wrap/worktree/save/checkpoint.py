"""Keep the uncommitted work of an iteration: as a hidden ref, or as a commit on the branch.

A session that is killed later loses only the iteration that ran. This is so even if the worktree's directory
is lost with its disk or its container. A snapshot changes no file of the worktree.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, create_ref, list_refs, move_ref, read_commit
from ralph_wrap.git.index import commit_index, is_staged
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.safe.submodules import pointers_below
from ralph_wrap.git.status import stage_all
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.apart import store_again
from ralph_wrap.worktree.save.clones import sort_nested
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.damage import may_be_damage
from ralph_wrap.worktree.save.index import scratch_in, status_of
from ralph_wrap.worktree.save.private_index import PrivateIndex, WorktreeState
from ralph_wrap.worktree.save.registration import operation, require_plain
from ralph_wrap.worktree.save.trees import AWAY_TITLE, SNAPSHOT_TITLE, session_of
from ralph_wrap.worktree.save.walk import walk

_ATTEMPTS = 3  # to store work while a ``git gc`` deletes it
_RECENT = 10  # snapshots: a gc that began before one was named can delete it


class Snapshot(NamedTuple):
    """The state of a worktree at the end of an iteration.

    Attributes:
        head: the commit at HEAD.
        ref: ``refs/ralph/snapshots/<id>/<n>``, with a commit on top of *head* that holds the uncommitted
            work. ``None`` if there was none, and HEAD was on the branch of the session.
        problems: one line for each part that could not be kept, for example work in other repositories.
        in_submodules: one line for work in submodules whose repositories are in the registration.

    """

    head: str | None
    ref: str | None
    problems: tuple[str, ...] = ()
    in_submodules: tuple[str, ...] = ()


class _Taken(NamedTuple):
    """A snapshot that was taken.

    Attributes:
        state: what it holds.
        ref: of the snapshot; ``None`` if nothing was uncommitted.
        commit: that the ref names.

    """

    state: WorktreeState
    ref: str | None = None
    commit: str | None = None


class Snapshots:
    """Takes the snapshots of one session.

    Every object is read back before it gets the ref. A ``git gc`` that has begun before, and goes on, can
    break the snapshot later (see ``commits.drop_lost_snapshots``). The end of the session stores all work
    anew, in a way that no gc disturbs (see ``apart``).

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        directory: the directory of the session, for its own index.
        agent_id: names the refs.
        session: named in the messages of the commits.

    """

    def __init__(
        self, worktree: LinkedWorktree, git: Git, directory: Path, *, agent_id: str, session: str
    ) -> None:
        self._worktree = worktree
        self._git = git
        self._agent_id = agent_id
        self._session = session
        self._index = PrivateIndex(worktree, directory)
        self._last: _Taken | None = None
        self._staged: tuple[str | None, str, str] | None = None  # HEAD, tree of an index, and its commit
        self._recent: list[str] = []  # commits of the newest snapshots

    def look(self) -> WorktreeState:
        """Return the present state of the worktree.

        Raises:
            GitError: git failed.
            OSError: a file cannot be read, or a signal came.

        """
        try:
            return self._index.look(self._git)
        except GitError as error:
            if not may_be_damage(error):
                raise
        return self._store_again()

    def take(self, state: WorktreeState, number: int) -> Snapshot:
        """Keep uncommitted work as a hidden ref; the same work as last time makes nothing.

        Arguments:
            state: of the worktree, at its last look.
            number: the number of the iteration; an earlier snapshot of the same iteration is replaced.

        Raises:
            GitError: git failed, or an object of the work is missing or damaged; no ref was made.
            OSError: a file cannot be read or written, or a signal came.

        """
        if self._last is not None and self._last.state.has_same_work(state) and self._is_there(self._last):
            return _snapshot(state, self._last.ref)
        failure: GitError | None = None
        for _ in range(_ATTEMPTS):
            try:
                if failure is not None:
                    state = self._store_again()
                commit = self._commit(state, number)
                if commit is None:
                    self._last = _Taken(state)
                    return _snapshot(state, None)
                present = [*filter(None, [state.trees.head]), *self._whole()]
                damage = find_damage(self._inside, [commit], present)
                if damage is None:
                    self._last = _Taken(state, self._name(commit, number), commit)
                    self._recent = [*self._recent, commit][-_RECENT:]
                    return _snapshot(state, self._last.ref)
                failure = GitError("cat-file", 0, f"error: {damage}")
            except GitError as error:
                if not may_be_damage(error):
                    raise
                failure = error
        assert failure is not None
        raise failure

    def may_be_lost(self) -> bool:
        """Return whether git has deleted or packed a newer snapshot: then each one is to be looked for."""
        lost = [oid for oid in self._recent if not self._is_loose(oid)]
        self._recent = [oid for oid in self._recent if oid not in lost]
        return bool(lost)

    def _is_there(self, taken: _Taken) -> bool:
        """Return whether nobody has deleted or moved the ref of a snapshot."""
        return taken.ref is None or list_refs(self._inside, taken.ref).get(taken.ref) == taken.commit

    def _whole(self) -> list[str]:
        """Return the last snapshot, whose objects were read back, unless git may have deleted it since."""
        last = self._last.commit if self._last else None
        return [last] if last is not None and self._is_loose(last) else []

    def _is_loose(self, oid: str) -> bool:
        return (self._worktree.common_dir / "objects" / oid[:2] / oid[2:]).exists()

    def _store_again(self) -> WorktreeState:
        """Store all files and trees once more, as far as git lacks them, and look again."""
        worktree = self._worktree
        self._last = self._staged = None
        self._index.forget()
        with scratch_in(worktree.registration) as directory:
            store_again(worktree, self._inside, directory / "index")
        return self._index.look(self._git)

    @property
    def _inside(self) -> Git:
        """Git in the worktree."""
        return self._worktree.git(self._git)

    def _commit(self, state: WorktreeState, number: int) -> str | None:
        """Make the commit of uncommitted work, ``None`` if there is none."""
        is_away = state.branch != self._worktree.branch
        if state.trees.shows_head and not is_away:
            return None
        git, trees, staged = self._inside, state.trees, None
        if trees.index_tree != trees.tree:
            wanted = (trees.head, trees.index_tree)
            if self._staged is None or self._staged[:2] != wanted or not self._is_loose(self._staged[2]):
                self._staged = (*wanted, trees.commit_index(git, self._session))
            staged = self._staged[2]
        message = _message(number, self._session, is_away=is_away)
        return trees.commit(git, message, self._session, staged)

    def _name(self, commit: str, number: int) -> str:
        """Give the commit of a snapshot its ref, and return that.

        A resumed session counts from one again, and a session that ends may take more than one snapshot of
        its last iteration. What the ref named until now may be the only copy of some work, so that gets
        another ref first, unless it is the same work.
        """
        git, agent_id = self._inside, self._agent_id
        ref, reason = f"refs/ralph/snapshots/{agent_id}/{number}", f"ralph-wrap: snapshot of {self._session}"
        with contextlib.suppress(GitError):  # it exists; if not, git fails again below
            create_ref(git, ref, commit, reason)
            return ref
        if before := list_refs(git, ref).get(ref):
            if session_of(git, before) != self._session or not _is_same_work(git, before, commit):
                make_snapshots(git, agent_id, [before])
            move_ref(git, ref, before, commit, reason, no_deref=True)
        else:
            create_ref(git, ref, commit, reason)
        return ref


def _is_same_work(git: Git, first: str, second: str) -> bool:
    """Return whether two snapshots have the same files, and the same commit below them."""
    one, other = read_commit(git, first), read_commit(git, second)
    return (one.tree, one.parents[:1]) == (other.tree, other.parents[:1])


def _snapshot(state: WorktreeState, ref: str | None) -> Snapshot:
    return Snapshot(state.trees.head, ref, state.problems, state.in_submodules)


def _message(number: int, session: str, *, is_away: bool) -> str:
    return f"{AWAY_TITLE if is_away else SNAPSHOT_TITLE}{number} of session {session}\n"


def snapshot(worktree: LinkedWorktree, git: Git, *, agent_id: str, session: str, number: int) -> Snapshot:
    """Keep the uncommitted work of a session that ends and leaves its worktree as it is.

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        agent_id: names the ref.
        session: named in the commit's message.
        number: the number of the last iteration; an earlier snapshot of it is replaced.

    Raises:
        GitError: git failed, or an object of the work is missing or damaged; no ref was made.
        OSError: a file cannot be read or written.

    """
    with scratch_in(worktree.registration) as directory:
        snapshots = Snapshots(worktree, git, directory, agent_id=agent_id, session=session)
        kept = snapshots.take(snapshots.look(), number)
        beyond = _beyond_the_status(worktree, git, directory / "nested")
        return kept._replace(problems=(*kept.problems, *beyond))


def commit_all(worktree: LinkedWorktree, git: Git, message: str) -> bool:
    """Commit the uncommitted work to the session's branch.

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        message: the message of the commit.

    Returns:
        Whether this function made a commit. It makes none if nothing has changed, or during a git operation.
        Nor does it if HEAD is detached, or on another branch, which may be the user's.

    Raises:
        GitError: git failed; some files may be staged.
        OSError: a file cannot be read.

    """
    require_plain(worktree)
    worktree_git = worktree.git(git)
    status = status_of(worktree_git)
    if status.branch != worktree.branch or status.unmerged or operation(worktree):
        return False
    if status.changed or len(status.nested) < len(status.untracked):
        if failure := stage_all(worktree_git, exclude=status.nested):
            raise failure
        if is_staged(worktree_git):  # it does not if only line endings have changed
            commit_index(worktree_git, message)
            return True
    return False


def _beyond_the_status(worktree: LinkedWorktree, git: Git, index: Path) -> list[str]:
    """Name what git does not list: repositories with work in ignored directories, unreadable directories."""
    inside = worktree.git(git)
    status, walked = status_of(inside), walk(worktree.path, (), git.cancel or NEVER)
    nested = sort_nested(worktree, git, index, status, walked)
    known = {submodule.path for submodule in pointers_below(inside, worktree.path, worktree.copies)}
    found = [path for path in nested.others if walked.is_below(path, status.ignored) and path not in known]
    return [*walked.problems, *(f"nested repository {path}" for path in found)]
