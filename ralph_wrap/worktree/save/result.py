"""What was saved of a worktree, and what would be lost with it: the values that the save returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class SavedWork(NamedTuple):
    """What a worktree held besides its branch.

    Attributes:
        branch: ``ralph/<id>-wip`` if something was uncommitted or on no branch.
        paths: what was uncommitted, as ``git status`` names it.
        snapshots: refs that were made for commits that no branch held.
        ignored: ignored files and directories (with a slash), which are not saved.
        ignored_files: how many files those are.
        problems: what could not be saved, one line each; empty if the worktree may go.
        missing: files that were never checked out, or are as they were before that.
        inner: what was saved of its submodules.

    """

    branch: str | None
    paths: tuple[str, ...]
    snapshots: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    problems: tuple[str, ...]
    missing: tuple[str, ...] = ()
    inner: tuple[SavedSubmodule, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was uncommitted."""
        return not self.paths

    @property
    def own_ignored(self) -> tuple[str, ...]:
        """Its ignored files without those in submodules."""
        return tuple({*self.ignored} - {path for one in self.inner for path in one.ignored})


_NOTHING = SavedWork(None, (), (), (), 0, ())


class SavedSubmodule(NamedTuple):
    """What was saved of a submodule.

    Attributes:
        name: the place of its repository in the registration, as ``modules/a/modules/b``.
        path: of its files, below the top of the worktree; empty if it has none (any more).
        store: the repository that holds it now.
        refs: by which it does.
        saved: of its files.
        unstarted: it was cloned by us and never worked in.

    """

    name: str
    path: str
    store: Path
    refs: tuple[str, ...] = ()
    saved: SavedWork = _NOTHING
    unstarted: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """What was uncommitted in it, as paths in the worktree."""
        return below(self.path, self.saved.paths)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Its ignored files, the same way."""
        return below(self.path, self.saved.ignored)


class Losses(NamedTuple):
    """What a worktree holds and nothing else does.

    Attributes:
        paths: what is uncommitted, as ``git status`` names it.
        commits: ids of commits that no branch, tag or remote branch holds, only the outermost.
        operation: what git is in the middle of: ``merge``, ``rebase``, …
        problems: what git does not see or cannot save, one line each.
        ignored: ignored files and directories (with a slash), which go with the worktree.
        ignored_files: how many files those are.
        inner: its submodules.

    """

    paths: tuple[str, ...]
    commits: tuple[str, ...]
    operation: str | None
    problems: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    inner: tuple[SavedSubmodule, ...] = ()

    @property
    def none(self) -> bool:
        """Nothing but ignored files would be lost."""
        return not (self.paths or self.commits or self.operation or self.problems)

    def lines(self) -> list[str]:
        """Return what would be lost, one line each; ignored files are counted."""
        found = [f"uncommitted: {path}" for path in self.paths]
        found += [f"commit on no branch: {commit}" for commit in self.commits]
        found += [f"in progress: {self.operation}"] if self.operation else []
        found += self.problems
        return found + ([f"ignored files: {self.ignored_files}"] if self.ignored_files else [])


def below(path: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths in a submodule as paths in the worktree."""
    return tuple(f"{path}/{one}" for one in paths)
