"""Safety checks before a drop: the selected branches, those in use, and the work that would be lost."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import branches, config
from ralph_wrap.branches import HEADS, Branch, MainBranch
from ralph_wrap.branches.compare import BranchComparison, compare
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError
from ralph_wrap.git import (
    Git,
    commits_without,
    decode,
    existing_commits,
    list_refs,
    list_worktrees,
    tree_of,
)
from ralph_wrap.git.compare import entries, facts_of, history
from ralph_wrap.git.pointer import checkout_of
from ralph_wrap.git.safe.genuine import require_objects
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import WORKTREES, Project, repository_of
from ralph_wrap.system import files
from ralph_wrap.system.text import command, some

# If HEAD names a symbolic ref, git worktree list shows only its target. These files have its own name, too
# (git-worktree(1)). A bisection that is reset to HEAD leaves the branch alone.
_TO_DETACH = ("switch", "--detach")
_BEGUN_ON = (
    ("HEAD", "", _TO_DETACH),
    ("rebase-merge/head-name", ", for a rebase", ("rebase", "--abort")),
    ("rebase-apply/head-name", ", for a rebase", ("rebase", "--abort")),
    ("BISECT_START", ", for a bisection", ("bisect", "reset", "HEAD")),
)
_NAMED = 10  # commits and files that a refusal lists; it counts the others


class _CheckedOut(NamedTuple):
    """Where a branch is checked out.

    Attributes:
        path: the top of the checkout; the registration, if that does not name one.
        occasion: what git does there with the branch, as the end of a sentence; usually nothing.
        to_leave: arguments of git there after which the branch is free, or which end the occasion.

    """

    path: Path
    occasion: str = ""
    to_leave: tuple[str, ...] = _TO_DETACH


class PreviewedTips(NamedTuple):
    """The commits of a branch and of its saved work, as a preview has shown them."""

    tip: str
    saved: str | None


class DropSelection(NamedTuple):
    """The branches to drop.

    Attributes:
        names: ids, branches or titles; empty for all branches that sessions created.
        merged: only branches that the main branch has.
        empty: only branches without own commits and without saved work.
        older_than: only branches that have not changed for this number of seconds.
        force: also branches with work that would be lost.
        forever: what goes cannot be restored; hints repeat that.
        previewed: of the names, the commits of branch and saved work that the user has seen. A branch that
            has moved since then stays, and one that is gone is none.

    """

    names: tuple[str, ...] = ()
    merged: bool = False
    empty: bool = False
    older_than: float | None = None
    force: bool = False
    forever: bool = False
    previewed: Mapping[str, PreviewedTips] | None = None


class DropSafety:
    """Decides which branches may be dropped.

    Arguments:
        objects: git in a shadow git directory.
        now: seconds since 1970.

    """

    def __init__(self, project: Project, objects: Git, chosen: Sequence[Branch], now: float) -> None:
        self._git = project.git
        self._objects = objects
        self._now = now
        self._main = _main(project)
        repository = repository_of(project)
        self._common_dir = repository.common_dir
        self._worktrees = project.root / WORKTREES
        self._checked_out = _checked_out(self._git, self._common_dir)
        saved = [_of_saved(branch) for branch in chosen if branch.saved and not branch.only_saved]
        self._facts, _ = compare(self._objects, repository, self._main, [*chosen, *saved], pairs=False)
        self._to_drop = {branch.ref for branch in chosen}
        sound = [branch.tip for branch in [*chosen, *saved] if not self._facts[branch.name].damage]
        self._known = facts_of(objects, sound)

    def fits(self, branch: Branch, wanted: DropSelection) -> bool:
        """Return whether a branch is one of the branches to drop."""
        facts = self._facts[branch.name]
        if wanted.older_than is not None and self._now - self._touched(branch) < wanted.older_than:
            return False
        if not wanted.merged and not wanted.empty:
            return True
        return bool((wanted.merged and facts.merged) or (wanted.empty and self._is_empty(branch, facts)))

    def _touched(self, branch: Branch) -> float:
        """Return the time of the last change of a branch."""
        names = [name for name in (branch.name, branch.saved_name) if name is not None]
        times = [self._facts[name].time for name in names]
        return max([*(time for time in times if time is not None), _ended(branch)])

    def _is_empty(self, branch: Branch, facts: BranchComparison) -> bool:
        """Return whether a branch has no own commits since its recorded base, and no saved work."""
        return branch.saved is None and (branch.tip == branch.base if branch.base else facts.ahead == 0)

    def look_again(self) -> None:
        """Read the worktrees again, so that :meth:`busy` knows new ones."""
        self._checked_out = _checked_out(self._git, self._common_dir)

    def busy(self, branch: Branch) -> RalphError | None:
        """Return the error for a branch that is in use, ``None`` if it is free."""
        if branch.verdict is not None:
            return ConflictError(
                f"the session of {branch.name} is {branch.verdict}: the branch stays",
                advice_for(Verdict(branch.verdict), branch.label),
            )
        for name in {branch.name, branch.saved_name}:
            if found := self._checked_out.get(name or ""):
                return ConflictError(
                    f"{name} is checked out in {found.path}{found.occasion}: the branch stays",
                    self._way_to_free(branch, found),
                )
        if self._main is not None and branch.ref == self._main.ref:
            return ConflictError(
                f"{branch.name} is the main branch", 'to change it: main = "NAME" in .ralph/config.toml'
            )
        return None

    def _way_to_free(self, branch: Branch, found: _CheckedOut) -> str:
        """Return the hint for a branch that is checked out."""
        if branch.id and branch.record and found.path.parent == self._worktrees:
            return command("ralph-wrap", "rm", branch.id)
        if found.path.parent == self._common_dir / "worktrees":  # a registration without a path
            return "git has lost the path of this worktree; to give it back: git worktree repair PATH"
        return f"to free the branch: {command('git', '-C', found.path, *found.to_leave)}"

    def lost(self, branch: Branch) -> tuple[str, ...]:
        """Return the work that would be lost, one line each."""
        lines: list[str] = []
        facts = self._facts[branch.name]
        if damage := facts.damage or self._facts[branch.saved_name or branch.name].damage:
            return (f"unknown commits and files, because {damage}",)
        if not facts.merged and not branch.only_saved:
            if self._main is None or branch.tip == branch.base:
                others = self._others()
                commits = commits_without(self._objects, [branch.tip], *others)
                if not commits:
                    require_objects(self._objects, history(self._objects, others, [branch.tip]).parents)
            else:
                commits = commits_without(self._objects, [branch.tip], self._main.tip)
            lines += some([f"{commit.id[:12]} {commit.subject}" for commit in commits], _NAMED, " commits")
        if branch.saved and not self._saved_elsewhere(branch):
            lines += [
                f"{line} in {branch.saved_name}"
                for line in some(self._saved_paths(branch.saved), _NAMED, " paths")
            ]
        return tuple(lines)

    def _others(self) -> list[str]:
        """Return what keeps commits when branches go: other branches, tags and remote branches.

        No branch below ``ralph/`` counts: the next drop may delete it.
        """
        refs = list_refs(self._git, HEADS, "refs/tags/", "refs/remotes/")
        keeping = {
            oid for ref, oid in refs.items() if not ref.startswith(branches.OURS) and ref not in self._to_drop
        }
        return existing_commits(self._objects, keeping)

    def _saved_elsewhere(self, branch: Branch) -> bool:
        """Return whether the main branch has all saved work, or the session's branch has the same files."""
        facts = self._facts[branch.saved_name or branch.name]
        if facts.ahead == 0:
            return True
        fact = self._known.get(branch.saved or "")
        if fact is None or not fact.parents or self._is_staged(fact.parents):
            return False
        tip_facts = self._known.get(branch.tip)
        same = tip_facts is not None and fact.parents[0] == branch.tip and tip_facts.tree == fact.tree
        return bool(facts.merged) or same

    def _is_staged(self, parents: Sequence[str]) -> bool:
        """Return whether the second parent of saved work is an index that differs from HEAD."""
        return len({tree_of(self._objects, parent) for parent in parents}) > 1

    def _saved_paths(self, saved: str) -> list[str]:
        fact = self._known.get(saved)
        pair = (saved, fact.parents[0]) if fact and fact.parents else (saved,)
        return [path for paths in entries(self._objects, [pair]) for path in paths] or ["nothing but commits"]


def _checked_out(git: Git, common_dir: Path) -> dict[str, _CheckedOut]:
    """Return the checkout of each branch that is checked out, or from which a rebase or bisection began."""
    worktrees = list_worktrees(git)
    found = {info.branch: _CheckedOut(info.path) for info in worktrees if info.branch}
    tops = {common_dir: worktrees[0].path if worktrees else common_dir.parent}
    for registration in common_dir.glob("worktrees/*"):
        try:
            tops[registration] = checkout_of(registration)
        except OSError:  # its rebase or bisection has begun all the same
            tops[registration] = registration
    for directory in sorted(tops):
        for name, occasion, to_leave in _BEGUN_ON:
            with contextlib.suppress(OSError):
                began = decode(files.read(directory / name)).strip().removeprefix("ref: ")
                checkout = _CheckedOut(tops[directory], occasion, to_leave)
                found.setdefault(began.removeprefix(HEADS), checkout)
    return found


def _main(project: Project) -> MainBranch | None:
    configured = config.of_project(project.main, project.environ, "main").main
    try:
        return branches.main_branch(project, configured)
    except NotFoundError:
        if configured:
            raise
        return None


def _of_saved(branch: Branch) -> Branch:
    """Return the ``-wip`` branch of saved work as a separate branch."""
    return branch._replace(
        name=branch.saved_name or branch.name, id=None, tip=branch.saved or branch.tip, saved=None
    )


def _ended(branch: Branch) -> float:
    """Return the end of the session of a branch, in seconds since 1970; 0 if it is not known."""
    try:
        return datetime.fromisoformat(str((branch.record or {}).get("ended"))).timestamp()
    except (ValueError, OverflowError, OSError):  # an agent may have changed the record
        return 0.0
