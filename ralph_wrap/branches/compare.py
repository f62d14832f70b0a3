"""Compare branches with the main branch and with each other, by a constant number of git processes.

``git merge-tree`` runs only for pairs that can conflict. Such a pair has one of these:

- Both branches change the same path.
- One branch has a file where the other one has a directory.
- One branch adds to a directory from which the other one removes a file. This may be a rename of the
  directory, and git follows such a rename.

All other pairs are clean. At most :data:`MOST_PAIRS` pairs are merged. A branch with a pair left over has
unknown conflicts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.branches import Branch, MainBranch
from ralph_wrap.branches.conflict_paths import conflict_paths
from ralph_wrap.branches.damage import damaged, require_contents, require_history
from ralph_wrap.branches.merged_by_patch import Compared, landed, meets, touched
from ralph_wrap.branches.pairs import Pairs, holders, overlapping
from ralph_wrap.branches.positions import Position, Positions, positions
from ralph_wrap.branches.touches import Touch, changed_file, touches_of
from ralph_wrap.errors import BlockingFileError, GitError, TamperedError
from ralph_wrap.git import Git, Repository
from ralph_wrap.git.compare import (
    MERGES,
    CommitInfo,
    DiffStat,
    MergeResult,
    changes,
    entries,
    facts_of,
    merges,
)
from ralph_wrap.git.safe.genuine import require_objects
from ralph_wrap.git.scratch import scratch_directory, size_of
from ralph_wrap.system.temporary import temporary_directory
from ralph_wrap.system.text import some

MOST_PAIRS = 5000
"""Maximum number of pairs of branches in trial merges; each takes a few milliseconds."""

MOST_OVERLAPS = 1_000_000
"""Maximum number of overlaps that all branches list together; each branch lists an equal share of it."""

MOST_CHANGES = 32 << 20
"""Maximum number of bytes in which git lists the changed files of all branches: some 200,000 files."""

_FEWEST_OVERLAPS = 10  # that a branch lists at most, however many branches there are
_OBJECTS = "ralph-wrap-merges-"  # what the names of the directories for new objects begin with
_STOPPED = 128  # the exit status of a git that cannot go on
_NAMED = 10  # branches in a note
_FEW = 50  # merges
_MUCH = 64 << 20  # bytes
_MEMORY = Path("/dev/shm")  # noqa: S108 -- we create a new directory in it, no fixed name (shm_overview(7))


class BranchComparison(NamedTuple):
    """A branch compared with the main branch and with the other branches; ``None`` is unknown.

    Attributes:
        time: time of commit of its tip, in seconds since 1970.
        subject: subject of its tip.
        ahead: number of commits that the branch has and the main branch lacks.
        behind: number of commits that the main branch has and the branch lacks.
        base: the merge base with the main branch.
        change: size of the change since the merge base.
        merged: the main branch has its commits, or the same patches, or a merge would change nothing.
        conflicts_main: a merge into the main branch has conflicts.
        conflicts: labels of the branches with which a merge has conflicts.
        overlaps: labels of the branches that change a file that this branch changes.
        touches: the files that it changes and that other programs run.
        damage: an object that is damaged, missing or replaced; then nothing else is known.

    """

    time: int | None = None
    subject: str | None = None
    ahead: int | None = None
    behind: int | None = None
    base: str | None = None
    change: DiffStat | None = None
    merged: bool | None = None
    conflicts_main: bool | None = None
    conflicts: tuple[str, ...] | None = None
    overlaps: tuple[str, ...] | None = None
    touches: tuple[Touch, ...] | None = None
    damage: str | None = None


def compare(
    objects: Git,
    repository: Repository,
    main: MainBranch | None,
    branches: Sequence[Branch],
    *,
    pairs: bool = True,
) -> tuple[dict[str, BranchComparison], list[str]]:
    """Return the facts of each branch by its name, and notes about facts that are unknown.

    Arguments:
        objects: git in a shadow git directory.
        main: the main branch; without one, most facts are unknown.
        branches: all branches.
        pairs: merge the branches with each other, too.

    Raises:
        GitError: an object of the main branch is damaged or missing.
        TamperedError: an object of the main branch holds something else than its name says.

    """
    try:
        return _compare(objects, repository, main, branches, pairs=pairs)
    except BlockingFileError:
        raise
    except (GitError, TamperedError):
        wrong = damaged(objects, main.tip, [*{branch.tip for branch in branches}]) if main else {}
        if not wrong:
            raise
    sound = [branch for branch in branches if branch.tip not in wrong]
    rows, notes = _compare(objects, repository, main, sound, pairs=pairs)
    others = {branch.name: wrong[branch.tip] for branch in branches if branch.tip in wrong}
    reasons = some([f"{name}, because {why}" for name, why in others.items()], _NAMED)
    notes.append(f"not compared: {'; '.join(reasons)}")
    return rows | {name: BranchComparison(damage=why) for name, why in others.items()}, notes


def _compare(
    objects: Git,
    repository: Repository,
    main: MainBranch | None,
    branches: Sequence[Branch],
    *,
    pairs: bool,
) -> tuple[dict[str, BranchComparison], list[str]]:
    """Return the facts of branches whose objects are sound, and notes about facts that are unknown."""
    tips = [*dict.fromkeys(branch.tip for branch in branches)]
    facts = facts_of(objects, [*tips, *([main.tip] if main else [])])
    if main is None or main.tip not in facts:
        return {branch.name: _without_main(facts.get(branch.tip)) for branch in branches}, []
    for tip in tips:
        if tip not in facts:
            raise GitError("log", _STOPPED, f"error: commit {tip} cannot be read")
    found = positions(objects, main.tip, tips, facts)
    spans = [(tip, position.base) for tip, position in found.of.items() if position.base and position.ahead]
    spans.sort(key=lambda span: found.of[span[0]].ahead)  # if they are too many, those with few commits count
    table = _Comparison(objects, found, facts, main, spans)
    with ThreadPoolExecutor(1) as executor:  # git counts the changed lines while the merges run
        counting = executor.submit(changes, objects, table.spans)
        trials, notes = _merges_of(table, repository, pairs=pairs)
        counted = dict(zip((tip for tip, _ in table.spans), counting.result(), strict=True))
    rows, cut_short = table.rows(branches, counted, trials)
    if left_out := len(spans) - len(table.spans):
        notes.append(f"the changes of {left_out} branches are unknown: all branches change too many files")
    return rows, notes + cut_short


class _TrialMerges(NamedTuple):
    """The results of the trial merges.

    Attributes:
        facing: for each tip, whether it conflicts with the main branch.
        clashes: for each tip, the tips that it conflicts with.
        untried: tips with pairs that were not merged.

    """

    facing: Mapping[str, bool]
    clashes: Mapping[str, set[str]]
    untried: set[str]


def _merges_of(
    table: _Comparison, repository: Repository, *, pairs: bool
) -> tuple[_TrialMerges | None, list[str]]:
    if repository.git_version < MERGES:
        return None, ["conflicts are unknown: git before 2.39 cannot try merges without a checkout"]
    try:
        trials = table.merged_with(pairs=pairs)
    except (GitError, OSError) as error:
        return None, [f"conflicts are unknown: {error}"]
    if not trials.untried:
        return trials, []
    note = f"more than {MOST_PAIRS} pairs of branches touch the same files"
    return trials, [f"conflicts of {len(trials.untried)} branches are unknown: {note}"]


def _merged(objects: Git, pairs: Sequence[tuple[str, str]]) -> list[MergeResult]:
    """Run trial merges. Their objects stay in memory if they will be small: a disk is much slower.

    The first few merges show the size. If directories hold many files, each merge writes large trees.
    """
    first, later = pairs[:_FEW], pairs[_FEW:]
    found: list[MergeResult] = []
    if os.access(_MEMORY, os.W_OK | os.X_OK):
        # The memory may be full.
        with contextlib.suppress(GitError, OSError), scratch_directory(_MEMORY, _OBJECTS) as scratch:
            found = merges(objects, first, scratch)
            if later and size_of(scratch) * len(later) / len(first) <= _MUCH:
                found += merges(objects, later, scratch)
    if remaining := pairs[len(found) :]:
        outside = (objects.work_tree or objects.cwd,)
        with scratch_directory(temporary_directory(objects.env, outside), _OBJECTS) as scratch:
            found += merges(objects, remaining, scratch)
    return found


def _without_main(fact: CommitInfo | None) -> BranchComparison:
    return BranchComparison(time=fact.time, subject=fact.subject) if fact else BranchComparison()


class _Comparison:
    """Data that is computed once for all branches; branches with the same tip share it.

    Arguments:
        found: positions of the tips relative to the main branch.
        facts: the facts of the tip commits.
        main: the main branch.
        spans: the tips that have commits of their own, each with its merge base.

    """

    def __init__(
        self,
        objects: Git,
        found: Positions,
        facts: Mapping[str, CommitInfo],
        main: MainBranch,
        spans: Sequence[tuple[str, str]],
    ) -> None:
        self._objects = objects
        self._found = found
        self._facts = facts
        self._main = main
        trees = require_history(objects, found)
        changes_of: dict[Compared, dict[str, str]] = {}
        listed = entries(objects, spans, lambda _, tree: trees.add(tree), MOST_CHANGES)
        changes_of.update(zip(spans, listed, strict=False))
        self.spans = spans = spans[: len(changes_of)]
        behind = [pair for pair in spans if found.of[pair[0]].behind]
        single_commits: list[Compared] = [
            (oid, *found.ahead.parents[oid]) for tip, _ in behind for oid in found.of[tip].commits or ()
        ]
        single_commits = [*dict.fromkeys(pair for pair in single_commits if pair not in changes_of)]
        listed = entries(objects, single_commits, lambda _, tree: trees.add(tree), MOST_CHANGES)
        changes_of.update(zip(single_commits, listed, strict=False))
        self._prints = {tip: conflict_paths(changes_of[tip, base]) for tip, base in spans}
        self._touches = touches_of(
            objects,
            {tip: [changed_file(*entry) for entry in changes_of[tip, base].items()] for tip, base in spans},
            {tip: tip for tip, _ in spans},
            tests=True,
        )
        self._touched = touched(objects, found, self._prints.values(), changes_of.values(), trees)
        require_objects(objects, trees)
        self._landed = landed(objects, found, changes_of, self._touched)
        self._open = [tip for tip in self._prints if tip not in self._landed]

    def merged_with(self, *, pairs: bool) -> _TrialMerges:
        """Run the trial merges of pairs that can conflict; a tip whose merge changes nothing has landed.

        Arguments:
            pairs: merge the tips with each other, too.

        Raises:
            GitError: git cannot run the merges.
            OSError: the directory for the new objects cannot be created.

        """
        facing = [
            tip for tip in self._open if meets(self._prints[tip], self._found.missed(tip), self._touched)
        ]
        meeting = Pairs([self._prints[tip] for tip in self._open] if pairs else [])
        numbers = [*islice(meeting, MOST_PAIRS)]
        merged_pairs = [(self._open[first], self._open[second]) for first, second in numbers]
        to_merge = [*((self._main.tip, tip) for tip in facing), *merged_pairs]
        tries = _merged(self._objects, to_merge)
        against = dict(zip(facing, tries, strict=False))
        landed_here = [
            tip
            for tip, merge in against.items()
            if merge.clean and merge.tree == self._facts[self._main.tip].tree and self._prints[tip].paths
        ]
        self._require_contents(landed_here)
        self._landed.update(landed_here)
        clashes: dict[str, set[str]] = {}
        for (first, second), merge in zip(merged_pairs, tries[len(facing) :], strict=True):
            if not merge.clean and not {first, second} & self._landed:
                clashes.setdefault(first, set()).add(second)
                clashes.setdefault(second, set()).add(first)
        untried: set[str] = set()
        if len(numbers) == MOST_PAIRS:
            gone = {number for number, tip in enumerate(self._open) if tip in self._landed}
            untried = {self._open[number] for number in meeting.after(numbers[-1], gone)}
        return _TrialMerges({tip: not merge.clean for tip, merge in against.items()}, clashes, untried)

    def _require_contents(self, tips: Sequence[str]) -> None:
        """Check the contents by which a merge of tips changes nothing: old, new, and in the main branch."""
        if tips:
            spans = [(tip, str(self._found.of[tip].base)) for tip in tips]
            in_main = zip(tips, entries(self._objects, [(self._main.tip, tip) for tip in tips]), strict=True)
            wanted = [
                {path: entry for path, entry in files.items() if path in self._prints[tip].paths}
                for tip, files in in_main
            ]
            require_contents(self._objects, [*entries(self._objects, spans), *wanted])

    def rows(
        self, branches: Sequence[Branch], counted: Mapping[str, DiffStat], trials: _TrialMerges | None
    ) -> tuple[dict[str, BranchComparison], list[str]]:
        """Return the facts of each branch, by name, and a note if not all overlaps are among them.

        Arguments:
            branches: all branches.
            counted: size of the change of each tip.
            trials: results of the trial merges; ``None`` if they could not run.

        """
        clashes: Mapping[str, set[str]] = {} if trials is None else trials.clashes
        unmerged = [
            branch for branch in branches if branch.tip in self._prints and branch.tip not in self._landed
        ]
        changing = holders(self._prints[branch.tip].paths for branch in unmerged)
        shared = {path: numbers for path, numbers in changing.items() if len(numbers) > 1}
        most = max(_FEWEST_OVERLAPS, MOST_OVERLAPS // max(1, len(unmerged)))
        numbers = {branch.name: number for number, branch in enumerate(unmerged)}
        sharing: dict[str, list[int]] = {}
        for number, branch in enumerate(unmerged):
            sharing.setdefault(branch.tip, []).append(number)
        found, cut_short = {}, 0
        for branch in branches:
            row = self._row(branch.tip, self._found.of[branch.tip], counted)
            if branch.name in numbers:
                paths = self._prints[branch.tip].paths
                others = overlapping(paths, shared, numbers[branch.name], most)
                clashing = [number for tip in clashes.get(branch.tip, ()) for number in sharing.get(tip, ())]
                cut_short += len(others) > most
                row = row._replace(
                    conflicts_main=None if trials is None else trials.facing.get(branch.tip, False),
                    conflicts=None
                    if trials is None or branch.tip in trials.untried
                    else tuple(unmerged[number].label for number in sorted(clashing)),
                    overlaps=tuple(unmerged[number].label for number in others[:most]),
                )
            found[branch.name] = row
        note = f"{cut_short} branches change files that more than {most} others change, and list only these"
        return found, [note] if cut_short else []

    def _row(self, tip: str, position: Position, counted: Mapping[str, DiffStat]) -> BranchComparison:
        """Return the facts of a tip that do not depend on other branches."""
        row = BranchComparison(
            time=self._facts[tip].time,
            subject=self._facts[tip].subject,
            ahead=position.ahead,
            behind=position.behind,
            base=position.base,
            merged=not position.ahead or tip in self._landed,
        )
        if position.ahead and position.base and tip not in self._prints:
            return row._replace(merged=None)
        if position.base is None:
            return row
        change = counted[tip] if position.ahead else DiffStat(0, 0, 0)
        touches = self._touches.get(tip, ())
        return row._replace(change=change, conflicts_main=False, conflicts=(), overlaps=(), touches=touches)
