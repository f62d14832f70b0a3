"""Pairs of branches that can conflict, and overlaps: without a list of all pairs."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.branches import compare
from ralph_wrap.branches.conflict_paths import ChangedPaths
from ralph_wrap.branches.pairs import Pairs, holders, overlapping
from ralph_wrap.commands import review
from ralph_wrap.state.project import find_project
from tests.support.histories import Grown, grow_all

if TYPE_CHECKING:
    from tests.support.repo import Repo

PATHS = st.frozensets(st.sampled_from("abc"))
PRINTS = st.lists(st.builds(ChangedPaths, PATHS, PATHS, PATHS), max_size=7)


def _meet(first: ChangedPaths, second: ChangedPaths) -> bool:
    return bool(
        first.paths & (second.paths | second.grown)
        or first.grown & (second.paths | second.left)
        or first.left & second.grown
    )


@given(PRINTS, st.sets(st.integers(0, 6)))
def test_pairs_are_those_of_the_definition(prints: list[ChangedPaths], without: set[int]) -> None:
    """Also the branches with a pair after each pair, which are found without the pairs."""
    every = [pair for pair in combinations(range(len(prints)), 2) if _meet(*(prints[one] for one in pair))]
    pairs = Pairs(prints)
    assert [*pairs] == every
    for number, last in enumerate(every):
        later = [pair for pair in every[number + 1 :] if not {*pair} & without]
        assert pairs.after(last, without) == {one for pair in later for one in pair}


@given(PRINTS, st.integers(1, 7))
def test_overlaps_are_the_first_ones(prints: list[ChangedPaths], most: int) -> None:
    """One more than wanted shows that the list is cut short."""
    shared = holders(changed.paths for changed in prints)
    for number, changed in enumerate(prints):
        others = [other for other, its in enumerate(prints) if other != number and its.paths & changed.paths]
        assert overlapping(changed.paths, shared, number, most) == others[: most + 1]


LOOK = r"""
import os, re, sys
from pathlib import Path
from ralph_wrap.branches import compare
from ralph_wrap.commands import review
from ralph_wrap.state import project
compare.MOST_PAIRS = 10
found = review.look(project.find_project(Path.cwd(), os.environ))
assert len(found.rows) == int(sys.argv[1])
print(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def _memory(repo: Repo, branches: int) -> int:
    """Return the most kilobytes that a review of the branches has had.

    They are those of `proc(5)`. What ``getrusage`` says counts those of the tests, too: a child has the
    memory of its parent until its ``exec``.
    """
    words = (sys.executable, "-c", LOOK, str(branches))
    ended = subprocess.run(words, cwd=repo.path, env=os.environ, stdout=subprocess.PIPE, check=True)
    return int(ended.stdout)


def _grow(repo: Repo, begin: int, end: int) -> None:
    """Make branches that all change one file, with numbers from *begin* to before *end*."""
    names = [f"ralph/{number:04x}" for number in range(begin, end)]
    grow_all(repo, [Grown(name, ["main"], {"file.txt": f"{name}\n"}) for name in names])
    repo.git("pack-refs", "--all")


def test_memory_grows_with_the_branches_and_not_with_their_pairs(repo: Repo) -> None:
    """All change one file. The 4.5 million pairs of 3,000 branches took 500 MB."""
    _grow(repo, 0, 300)
    small = _memory(repo, 300)
    _grow(repo, 300, 3000)
    assert _memory(repo, 3000) < small + 40_000


def _chain(repo: Repo, number: int, length: int = 100) -> None:
    """Make branches that stand on each other: each has the commits of those before it, and one more.

    Arguments:
        repo: for them.
        number: of branches.
        length: of the name of the file that each adds.

    """
    commits: list[Grown] = []
    for one in range(number):
        parents: list[str | int] = [one - 1] if one else ["main"]
        commits.append(Grown(f"ralph/{one:04x}", parents, {f"{one:04x}{'n' * length}": f"{one}\n"}))
    grow_all(repo, commits)


def test_branches_that_stand_on_each_other_have_a_limit(repo: Repo) -> None:
    """Git lists only the first 32 MB of the 59 MB of names that they change: 199 MB of memory, not 430."""
    _chain(repo, 700, 240)
    assert _memory(repo, 700) < 300_000


def test_branches_beyond_the_limit_are_unknown(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with few commits are compared; the others say that nothing is known, and a note counts them."""
    _chain(repo, 12)
    monkeypatch.setattr(compare, "MOST_CHANGES", 5000)
    found = review.look(find_project(repo.path, os.environ))
    rows = {row.branch: row for row in found.rows}
    known = [name for name, row in rows.items() if row.files is not None]
    assert sorted(known) == [f"ralph/{one:04x}" for one in range(len(known))]
    assert 0 < len(known) < 12
    last = rows["ralph/000b"]
    assert (last.ahead, last.merged, last.touches, last.conflicts_main) == (12, None, None, None)
    assert f"the changes of {12 - len(known)} branches are unknown" in " ".join(found.notes)
