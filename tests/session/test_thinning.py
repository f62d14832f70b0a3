"""Snapshots that newer ones have replaced go, and nothing that only they hold."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git.transaction import change_refs
from ralph_wrap.state.project import find_project
from ralph_wrap.worktree import thinning
from ralph_wrap.worktree.save.trees import AWAY_TITLE, SNAPSHOT_TITLE
from ralph_wrap.worktree.thinning import superseded, superseded_at_end, thin_snapshots
from tests.support.histories import grow
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")

SESSION = "20260102T030405Z-aaaa"
PREFIX = "refs/ralph/snapshots/aaaa/"


def test_the_last_fifty_stay_then_one_of_ten_and_one_of_a_hundred() -> None:
    """Of 3,000 snapshots, one each iteration."""
    kept = {*range(1, 3001)} - superseded(range(1, 3001))
    assert {*range(2951, 3001)} <= kept
    assert sorted(kept - {*range(2951, 3001)})[-2:] == [2949, 2950]
    assert sorted(kept)[:3] == [99, 199, 299]
    assert len(kept) < 130


def test_thinning_again_and_again_leaves_one_of_each_hundred() -> None:
    """It runs every ten iterations; the last fifty are there each time, and never more than 140."""
    numbers: set[int] = set()
    for number in range(1, 3001):
        numbers.add(number)
        if number % 10 == 0:
            numbers -= superseded(numbers)
        assert len(numbers) <= 140
        assert {*range(max(1, number - 49), number + 1)} <= numbers
    assert {number // 100 for number in numbers if number < 2400} == {*range(24)}


def test_few_snapshots_stay_whatever_their_numbers() -> None:
    """Most iterations were clean."""
    assert superseded([7, 1000, 100_000]) == set()
    assert superseded_at_end(range(1, 21)) == set()
    assert superseded_at_end(range(1, 31)) == {*range(1, 11)}


def _snapshot(repo: Repo, number: int, title: str = SNAPSHOT_TITLE, session: str = SESSION) -> str:
    """Make a snapshot of an iteration on top of HEAD, and return its commit."""
    tree = repo.git("rev-parse", "HEAD^{tree}")
    message = f"{title}{number} of session {session}"
    commit = repo.git("commit-tree", tree, "-p", "HEAD", "-m", message)
    repo.git("update-ref", f"{PREFIX}{number}", commit)
    return commit


def _thin(repo: Repo, branch: str = "main") -> list[str]:
    git = find_project(repo.path, os.environ).git

    def choose(numbers: Collection[int]) -> set[int]:
        return {*numbers} - {max(numbers)}

    return thin_snapshots(git, "aaaa", SESSION, time.time(), choose, branch)


def _left(repo: Repo) -> list[str]:
    refs = repo.git("for-each-ref", "--format=%(refname)", PREFIX).split()
    return [ref.removeprefix(PREFIX) for ref in refs]


def test_what_newer_ones_have_replaced_goes(repo: Repo) -> None:
    """The newest one stays."""
    for number in (1, 2, 3):
        _snapshot(repo, number)
    assert _thin(repo) == [f"{PREFIX}1", f"{PREFIX}2"]
    assert _left(repo) == ["3"]


def test_a_snapshot_of_another_session_stays(repo: Repo) -> None:
    """A resumed one has the same id, and counts from one again; so does a snapshot away from the branch."""
    _snapshot(repo, 1)
    _snapshot(repo, 2, session="20260101T030405Z-aaaa")
    _snapshot(repo, 3, AWAY_TITLE)
    _snapshot(repo, 4)
    repo.git("update-ref", f"{PREFIX}commit-1", "HEAD")
    assert _thin(repo) == [f"{PREFIX}1"]
    assert _left(repo) == ["2", "3", "4", "commit-1"]


def test_a_commit_that_only_a_snapshot_holds_gets_a_ref_first(repo: Repo) -> None:
    """The agent has committed, and has reset its branch after the iteration."""
    base = repo.head
    lone = grow(repo, "gone", "main", {"new": "new\n"})
    repo.git("checkout", "--quiet", "--detach", lone)
    _snapshot(repo, 1)
    repo.git("checkout", "--quiet", "--detach", base)
    repo.git("branch", "-D", "gone")
    _snapshot(repo, 2)
    assert _thin(repo) == [f"{PREFIX}1"]
    assert _left(repo) == ["2", "commit-1"]
    assert repo.git("rev-parse", f"{PREFIX}commit-1") == lone


@pytest.mark.parametrize("name", ["refs/heads/topic", "refs/tags/topic", "refs/remotes/origin/topic"])
def test_what_only_another_ref_holds_gets_a_ref_first(repo: Repo, name: str) -> None:
    """Anybody may delete that one meanwhile; nothing more is made by the next thinning."""
    base = repo.head
    lone = grow(repo, "gone", "main", {"new": "new\n"})
    repo.git("update-ref", name, lone)
    repo.git("checkout", "--quiet", "--detach", lone)
    _snapshot(repo, 1)
    _snapshot(repo, 2)
    repo.git("checkout", "--quiet", "--detach", base)
    repo.git("branch", "-D", "gone")
    _snapshot(repo, 3)
    assert _thin(repo) == [f"{PREFIX}1", f"{PREFIX}2"]
    assert _left(repo) == ["3", "commit-1"]
    assert repo.git("rev-parse", f"{PREFIX}commit-1") == lone
    repo.git("checkout", "--quiet", "--detach", lone)
    _snapshot(repo, 4)
    _snapshot(repo, 5)
    assert _thin(repo) == [f"{PREFIX}3", f"{PREFIX}4"]
    assert _left(repo) == ["5", "commit-1"]


def test_a_branch_that_is_a_symbolic_ref_holds_nothing(repo: Repo) -> None:
    """An agent has let its branch lead to a ref that goes."""
    lone = grow(repo, "gone", "main", {"new": "new\n"})
    repo.git("checkout", "--quiet", "--detach", lone)
    _snapshot(repo, 1)
    _snapshot(repo, 2)
    repo.git("branch", "-D", "gone")
    repo.git("symbolic-ref", "refs/heads/ralph/aaaa", f"{PREFIX}1")
    assert _thin(repo, "ralph/aaaa") == [f"{PREFIX}1"]
    assert repo.git("rev-parse", f"{PREFIX}commit-1") == lone


def test_a_branch_that_moves_meanwhile_keeps_all(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the proof: a process that the agent has left resets it, and nothing has gone."""
    lone = grow(repo, "ralph/aaaa", "main", {"new": "new\n"})
    repo.git("checkout", "--quiet", "--detach", lone)
    _snapshot(repo, 1)
    _snapshot(repo, 2)

    def change(*arguments: object) -> None:
        repo.git("branch", "--force", "ralph/aaaa", "main")
        change_refs(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(thinning, "change_refs", change)
    with pytest.raises(GitError):
        _thin(repo, "ralph/aaaa")
    assert _left(repo) == ["1", "2"]


def test_an_orderly_end_leaves_twenty(repo: Repo) -> None:
    """The last ones; the work itself is on its branch."""
    ended = run(repo.path, "-n", "24", "--", "sh", "-c", "echo $RALPH_ITERATION > new")
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/snapshots").split()
    assert sorted(int(ref.rpartition("/")[2]) for ref in refs) == [*range(4, 24)]
    assert repo.git("show", f"{ended.report['saved']}:new") == "24"
