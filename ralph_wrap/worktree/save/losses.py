"""What would be lost with a worktree that is to be removed without being saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.worktree.save.commits import unheld
from ralph_wrap.worktree.save.registration import operation
from ralph_wrap.worktree.save.save import has_submodules, look, nested

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.submodules import Inner


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
    inner: tuple[Inner, ...] = ()

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


def losses(worktree: LinkedWorktree, where: Git, index: Path, inner: tuple[str, ...] | None = None) -> Losses:
    """Look for everything that would be lost with a worktree; nothing is changed.

    Arguments:
        worktree: which one.
        where: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.
        inner: paths of its submodules, of which somebody else looks; ``None``: look at them, too.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    here = worktree.git(where)
    problems: list[str] = []
    without = inner or ()
    if inner is None and has_submodules(worktree):
        from ralph_wrap.worktree.save.submodule_repositories import find  # noqa: PLC0415 -- few have any

        # What is wrong with them is told where they are looked at, below.
        without = tuple(one.path for one in find(worktree, where, worktree.path, []) if one.path)
    status, walked = look(worktree, here, here._replace(index_file=index), problems, without)
    problems += [f"nested repository: {path}" for path in nested(status, walked)]
    commits = unheld(worktree.registration, here, problems)
    found = Losses(
        paths=(*status.changed, *status.untracked),
        commits=tuple(commits),
        operation=operation(worktree),
        problems=tuple(problems),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
    )
    if inner is None and has_submodules(worktree):
        from ralph_wrap.worktree.save.submodules import add_losses  # noqa: PLC0415 -- the same

        return add_losses(worktree, where, index, found)
    return found
