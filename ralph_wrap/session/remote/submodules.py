"""Name the submodules with work that a remote lacks: a push brings refs of the project's repository alone."""

from __future__ import annotations

import time
from pathlib import Path

from ralph_wrap.errors import RalphError
from ralph_wrap.git import Git, decode, existing_commits, list_refs, run_git
from ralph_wrap.git.index import GITLINK
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.commits import named_objects
from ralph_wrap.worktree.save.copy_commits import outermost
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.save.inspect import has_submodules, tree_losses
from ralph_wrap.worktree.save.submodule_repositories import SubmoduleRepository, find

_AFTER_TERM = 2.0
"""Seconds to look after a SIGTERM: all work is saved later, and ``docker stop`` kills after 10."""

_REFS = ("refs", "packed-refs")  # names of a repository's files
_OF_OTHERS = ("refs/remotes/", "refs/tags/")


class _TimeToLook(CancelToken):
    """Ends a look a while after a SIGTERM, and at a second signal.

    Arguments:
        signals: the signals so far.

    """

    def __init__(self, signals: CancelToken) -> None:
        super().__init__()
        self._signals = signals
        self._limit: float | None = None

    @property
    def requested(self) -> bool:
        """Whether the time is over."""
        if self._limit is None and self._signals.terms:
            self._limit = time.monotonic() + _AFTER_TERM
        return self._signals.hurried or (self._limit is not None and time.monotonic() >= self._limit)


class SubmoduleWatch:
    """Knows which submodules of a session have work that no remote has.

    Such work is what is not committed, and each commit that HEAD, branches, stashes or reflogs name and that
    no remote branch of the submodule contains. The commits from which the branch of the session began do not
    count. A submodule in which git cannot look counts as one with work.

    Arguments:
        base: the commit from which the branch began; empty if that is not known.
        cancel: the signals so far.

    Attributes:
        lacking: one line for each submodule with such work, and for each that nobody could look into.

    """

    def __init__(self, base: str, cancel: CancelToken) -> None:
        self._base = base
        self._cancel = _TimeToLook(cancel)
        self.lacking: tuple[str, ...] = ()

    def look(self, tree: LinkedWorktree, git: Git) -> None:
        """Look into the submodules of a worktree.

        Arguments:
            tree: the worktree of the session.
            git: git at the repository that has its registration.

        """
        if not has_submodules(tree):
            self.lacking = ()
            return
        git = git._replace(cancel=git.cancel or self._cancel)
        lines: list[str] = []
        try:
            origins = _Origins(tree, git, self._base)
            with scratch_in(tree.registration) as directory:
                for number, submodule in enumerate(find(tree, git, tree.path, lines)):
                    if what := _work_in(submodule, git, directory / str(number), origins):
                        lines.append(f"submodule {submodule.path or submodule.name}: {what}")
        except (RalphError, OSError) as error:
            lines.append(f"the work in submodules: {error}")
        self.lacking = tuple(lines)


def _work_in(submodule: SubmoduleRepository, git: Git, index: Path, origins: _Origins) -> str:
    """Return the work in a submodule that no remote has, in words; empty if there is none.

    Arguments:
        git: git at the repository of the worktree.
        index: a free path for a copy of the submodule's index.

    """
    try:
        found = []
        if submodule.path:
            lost = tree_losses(submodule.tree, git, index, submodule.nested)
            if lost.paths or lost.operation or lost.problems:
                found.append("uncommitted work")
        if _has_commits(submodule, submodule.tree.git(git), origins.of(submodule)):
            found.append("commits that no remote branch of it has")
    except (RalphError, OSError) as error:
        return f"git cannot look into it: {error}"
    return " and ".join(found)


def _has_commits(submodule: SubmoduleRepository, git: Git, origin: str) -> bool:
    problems: list[str] = []
    known = {*list_refs(git, "refs/remotes/").values(), *filter(None, [origin])}
    named = {*named_objects(submodule.tree.registration, git, problems, without=_REFS)}
    named |= {oid for ref, oid in list_refs(git).items() if not ref.startswith(_OF_OTHERS)}
    commits = outermost(git, existing_commits(git, named), {*existing_commits(git, known)})
    return bool(commits or problems)


class _Origins:
    """The commits of the submodules from which the branch of a session began.

    Arguments:
        worktree: the worktree of the session.
        git: git at its repository.
        base: the commit from which the branch began; empty if that is not known.

    """

    def __init__(self, worktree: LinkedWorktree, git: Git, base: str) -> None:
        self._git = git
        self._found: dict[str, tuple[Git, str]] = {"": (worktree.git(git), base)}

    def of(self, submodule: SubmoduleRepository) -> str:
        """Return the commit of a submodule; empty if it had none. A submodule above it comes first."""
        above = max(
            (path for path in self._found if f"{submodule.path}/".startswith(f"{path}/" if path else "")),
            key=len,
        )
        git, commit = self._found[above]
        path = submodule.path.removeprefix(f"{above}/") if above else submodule.path
        if not path or not commit:
            return ""
        words = ("ls-tree", "-z", "--full-tree", commit, "--", path)
        kind, _, rest = decode(run_git(git, *words, accept=(0, 128)).stdout).partition(" commit ")
        found = rest.partition("\t")[0] if kind == GITLINK else ""
        self._found[submodule.path] = (submodule.tree.git(self._git), found)
        return found
