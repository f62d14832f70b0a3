"""The values of a save: how to save a worktree, what was saved, and what would be lost with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import Head


class SaveRequest(NamedTuple):
    """How the work in a worktree is saved.

    Attributes:
        agent_id: it names the branch and the snapshots.
        session: id of the session, for the commit's message.
        commits_only: save no files; uncommitted files are then a problem.
        unstarted: no agent has worked in the worktree: missing files were never checked out.
        restored: commit of the saved work that was put back into the worktree; ``None`` if there was none.
        keeps_branch: the branch of the saved work stays as it is; any other work gets a snapshot.

    """

    agent_id: str
    session: str
    commits_only: bool = False
    unstarted: bool = False
    restored: str | None = None
    keeps_branch: bool = False

    @property
    def branch(self) -> str:
        """Short name of the branch for the saved work."""
        return f"ralph/{self.agent_id}-wip"


class SavedWork(NamedTuple):
    """The work in a worktree that its branch did not hold.

    Attributes:
        branch: ``ralph/<id>-wip`` if there was uncommitted work, or a commit on no branch. If that branch
            could not be moved, it is the full name of a snapshot.
        paths: the uncommitted paths, as ``git status`` names them.
        snapshots: new refs for commits that no branch contained.
        ignored: ignored files and directories (with a slash), which are not saved.
        ignored_files: the number of these files.
        problems: one line for each thing that could not be saved, as ``walk.Unreadable`` if that is the only
            reason; empty if the worktree may be removed.
        missing: files that the checkout did not write, or that still have their content from before it.
        inner: the saved work of its submodules.
        head: its HEAD; ``None`` if nothing was saved.
        named: every object id in the files of its registration. At the time of the save, a ref in the
            repository holds each commit among them.
        staged: a value that changes with the content of its index; ``None`` without an index.
        damage: an object that is missing or damaged, in words, and what was saved all the same. The worktree
            has to stay: it may have the last copy. Empty if every object was read back.
        clones: repositories in ignored directories without work of their own, which may go with it.
        detached: the number of commits below *branch* that were made on a detached HEAD.
        nested: the paths of other repositories in it, which cannot be saved.

    """

    branch: str | None
    paths: tuple[str, ...]
    snapshots: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    problems: tuple[str, ...]
    missing: tuple[str, ...] = ()
    inner: tuple[SavedSubmodule, ...] = ()
    head: Head | None = None
    named: frozenset[str] = frozenset()
    staged: bytes | None = None
    damage: str = ""
    clones: tuple[str, ...] = ()
    detached: int = 0
    nested: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """There was no uncommitted work."""
        return not self.paths

    @property
    def ref(self) -> str | None:
        """Full name of *branch*."""
        branch = self.branch
        return branch if branch is None or branch.startswith("refs/") else f"refs/heads/{branch}"

    @property
    def own_ignored(self) -> tuple[str, ...]:
        """Its ignored files, without those in submodules."""
        return tuple({*self.ignored} - {path for submodule in self.inner for path in submodule.ignored})


_NOTHING = SavedWork(None, (), (), (), 0, ())


class SavedSubmodule(NamedTuple):
    """The saved work of a submodule.

    Attributes:
        name: the path of its repository in the registration, as ``modules/a/modules/b``.
        path: the path of its files, below the top of the worktree; empty if it has no files.
        store: the repository that holds its commits now.
        refs: the refs in *store* that hold them.
        saved: the saved work in its files.
        unstarted: ralph-wrap cloned it, and no agent has worked in it.

    """

    name: str
    path: str
    store: Path
    refs: tuple[str, ...] = ()
    saved: SavedWork = _NOTHING
    unstarted: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Its uncommitted paths, as paths in the worktree."""
        return below(self.path, self.saved.paths)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Its ignored files, as paths in the worktree."""
        return below(self.path, self.saved.ignored)


class Losses(NamedTuple):
    """The work that would be lost with a worktree.

    Attributes:
        paths: the uncommitted paths, as ``git status`` names them.
        commits: ids of commits that no branch, tag or remote branch contains, without their ancestors.
        operation: the git operation in progress: ``merge``, ``rebase``, …
        problems: one line for each thing that git does not see or cannot save.
        ignored: ignored files and directories (with a slash), which are deleted with the worktree.
        ignored_files: the number of these files.
        inner: its submodules.
        clones: repositories in ignored directories without work of their own, which may go with it.

    """

    paths: tuple[str, ...]
    commits: tuple[str, ...]
    operation: str | None
    problems: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    inner: tuple[SavedSubmodule, ...] = ()
    clones: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Only ignored files would be lost."""
        return not (self.paths or self.commits or self.operation or self.problems)

    def lines(self) -> list[str]:
        """Return one line for each loss, and one line with the number of ignored files."""
        found = [f"uncommitted: {path}" for path in self.paths]
        found += [f"commit on no branch: {commit}" for commit in self.commits]
        found += [f"in progress: {self.operation}"] if self.operation else []
        found += self.problems
        return found + ([f"ignored files: {self.ignored_files}"] if self.ignored_files else [])


def below(path: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths in a submodule as paths in the worktree."""
    return tuple(f"{path}/{name}" for name in paths)
