"""``ralph-wrap drop`` and ``restore``: nothing goes that nothing else holds, and what went comes back."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands.drop import DroppedBranch, DropSelection, RestoredBranch
from ralph_wrap.commands.drop.safety import DropSafety
from ralph_wrap.errors import ConflictError, NotFoundError, RefusedError, UsageError
from ralph_wrap.git import transaction
from ralph_wrap.session.preflight import taken_ids
from ralph_wrap.state import project
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import files, liveness
from tests.support.grown import grow, record
from tests.support.sessions import command

if TYPE_CHECKING:
    from ralph_wrap.branches import Branch
    from ralph_wrap.errors import RalphError
    from tests.support.repo import Repo

NOW = time.time()
DAY = 86400.0


def _drop(repo: Repo, *names: str, now: float = NOW, **options: bool | float) -> RalphError | None:
    return _dropped(repo, *names, now=now, **options)[1]


def _dropped(
    repo: Repo, *names: str, now: float = NOW, **options: bool | float
) -> tuple[list[DroppedBranch], RalphError | None]:
    place = project.find_project(repo.path, os.environ)
    rows, failures = dropping.drop(place, DropSelection(names, **options), now)  # type: ignore[arg-type]
    assert [failure.message for failure in failures] == [row.kept for row in rows if row.kept]
    return rows, failures[0] if failures else None


def _restore(repo: Repo, name: str) -> RestoredBranch:
    return dropping.restore(project.find_project(repo.path, os.environ), name, NOW)


def _expire(repo: Repo, keep: float, now: float) -> list[str]:
    return dropping.expire(project.find_project(repo.path, os.environ), keep, now)


def _refs(repo: Repo) -> dict[str, str]:
    """Return everything but the main branch, without ``refs/``."""
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/ralph", "refs/ralph")
    return dict(row.removeprefix("refs/").split(" ") for row in rows.split("\n") if row)


# Down and back


def test_a_merged_branch_goes_and_comes_back(repo: Repo) -> None:
    """With its saved work, which the main branch has, too."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    saved = grow(repo, "ralph/a3f2-wip", tip, {"more": "more\n"})
    before = _refs(repo)
    repo.git("merge", "--quiet", "ralph/a3f2-wip")
    assert _dropped(repo, "a3f2") == (
        [DroppedBranch("a3f2", "ralph/a3f2", tip, "ralph/a3f2-wip", dropped=True)],
        None,
    )
    assert _refs(repo) == {"ralph/dropped/a3f2": tip, "ralph/dropped/a3f2-wip": saved}
    assert _restore(repo, "a3f2") == RestoredBranch("a3f2", "ralph/a3f2", tip, "ralph/a3f2-wip")
    assert _refs(repo) == before


def test_a_branch_without_an_id_goes_by_its_name_alone(repo: Repo) -> None:
    """It is never one of many."""
    repo.git("branch", "ralph/foo")
    tip = repo.head
    assert _dropped(repo, merged=True) == ([], None)
    assert _dropped(repo, "ralph/foo")[0] == [DroppedBranch(None, "ralph/foo", tip, None, dropped=True)]
    assert _refs(repo) == {"ralph/dropped/foo": tip}
    assert _restore(repo, "ralph/foo") == RestoredBranch(None, "ralph/foo", tip, None)


def test_saved_work_that_is_alone_goes_and_comes_back(repo: Repo) -> None:
    """Its branch was deleted by somebody else."""
    saved = grow(repo, "ralph/a3f2-wip", "main", {"new": "new\n"})
    assert isinstance(_drop(repo, "a3f2"), RefusedError)
    assert _drop(repo, "a3f2", force=True) is None
    assert _refs(repo) == {"ralph/dropped/a3f2-wip": saved}
    assert _restore(repo, "a3f2") == RestoredBranch("a3f2", None, None, "ralph/a3f2-wip")


def test_a_branch_does_not_go_because_its_saved_work_was_named(repo: Repo) -> None:
    """Whoever says so means that alone, forced or not."""
    grow(repo, "ralph/a3f2-wip", grow(repo, "ralph/a3f2", "main", {"new": "new\n"}), {"more": "more\n"})
    before = _refs(repo)
    with pytest.raises(UsageError, match="ralph/a3f2-wip can only be dropped with ralph/a3f2"):
        _drop(repo, "ralph/a3f2-wip", force=True)
    assert _refs(repo) == before


# What would be lost


def test_what_is_not_merged_is_refused(repo: Repo) -> None:
    """The message lists commits and saved work; nothing has moved."""
    one = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="the first")
    two = grow(repo, "ralph/a3f2", one, {"new": "2\n"}, message="the second")
    grow(repo, "ralph/a3f2-wip", two, {"more": "x\n", "most": "x\n"})
    before = _refs(repo)
    rows, error = _dropped(repo, "a3f2")
    lost = (
        f"{two[:12]} the second",
        f"{one[:12]} the first",
        "more in ralph/a3f2-wip",
        "most in ralph/a3f2-wip",
    )
    message = f"ralph/a3f2 kept, this would be lost: {'; '.join(lost)}"
    assert rows == [
        DroppedBranch("a3f2", "ralph/a3f2", two, "ralph/a3f2-wip", dropped=False, lost=lost, kept=message)
    ]
    assert isinstance(error, RefusedError)
    assert (error.message, _refs(repo)) == (message, before)


def test_what_is_not_merged_goes_if_that_is_forced(repo: Repo) -> None:
    """And is named all the same."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="the first")
    rows, error = _dropped(repo, "a3f2", force=True)
    assert [(row.dropped, row.lost, row.kept) for row in rows] == [(True, (f"{tip[:12]} the first",), None)]
    assert (error, _refs(repo)) == (None, {"ralph/dropped/a3f2": tip})


def test_saved_work_of_a_merged_branch_is_refused(repo: Repo) -> None:
    """The main branch has the commits, not that."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    grow(repo, "ralph/a3f2-wip", tip, {"more": "x\n"})
    repo.git("merge", "--quiet", "ralph/a3f2")
    assert _dropped(repo, merged=True)[0][0].lost == ("more in ralph/a3f2-wip",)
    assert "heads/ralph/a3f2" in _refs(repo)


def test_saved_work_that_was_applied_and_committed_is_not_lost(repo: Repo) -> None:
    """The main branch has the same files."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    grow(repo, "ralph/a3f2-wip", tip, {"more": "x\n"})
    repo.git("merge", "--quiet", "--squash", "ralph/a3f2")
    repo.write("more", "x\n")
    repo.commit("all of it")
    assert _drop(repo, "a3f2") is None


def test_what_was_staged_besides_the_files_is_lost(repo: Repo) -> None:
    """The second parent of saved work is on no other branch, whatever became of the files."""
    index = grow(repo, "index", "main", {"more": "staged\n"})
    grow(repo, "ralph/a3f2-wip", "main", {"more": "x\n"}, merging=[index])
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "-D", "index")
    repo.write("more", "x\n")
    repo.commit("applied")
    assert _dropped(repo, "a3f2")[0][0].lost == ("more in ralph/a3f2-wip",)


def test_an_index_as_it_was_at_head_is_nothing(repo: Repo) -> None:
    """It is the second parent of saved work as well, where nothing was staged."""
    index = grow(repo, "index", "main", {})
    grow(repo, "ralph/a3f2-wip", "main", {"more": "x\n"}, merging=[index])
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "-D", "index")
    repo.write("more", "x\n")
    repo.commit("applied")
    assert _dropped(repo, "a3f2")[0][0].lost == ()


def test_two_branches_do_not_hold_each_others_commits(repo: Repo) -> None:
    """Dropped together, both would be gone."""
    grow(repo, "ralph/0001", "main", {"new": "1\n"})
    repo.git("branch", "ralph/0002", "ralph/0001")
    record(repo, "0002", repo.git("rev-parse", "ralph/0001"))
    rows, error = _dropped(repo, "0001", "0002")
    assert ([row.dropped for row in rows], type(error)) == ([False, False], RefusedError)


def test_a_branch_that_got_nothing_is_empty(repo: Repo) -> None:
    """Where it started from need not be the main branch, as long as something else is there."""
    feature = grow(repo, "feature", "main", {"new": "1\n"})
    repo.git("branch", "ralph/0001", feature)
    record(repo, "0001", feature)
    grow(repo, "ralph/0002", feature, {"more": "1\n"})
    record(repo, "0002", feature)
    repo.git("branch", "ralph/0003")
    repo.git("branch", "ralph/0004", feature)
    grow(repo, "ralph/0004-wip", feature, {"saved": "1\n"})
    record(repo, "0004", feature)
    rows, error = _dropped(repo, empty=True)
    assert ([row.id for row in rows if row.dropped], error) == (["0001", "0003"], None)
    repo.git("update-ref", "-d", "refs/heads/feature")
    assert isinstance(_drop(repo, "0004", force=False), RefusedError)
    _restore(repo, "0001")
    assert [row.dropped for row in _dropped(repo, empty=True)[0]] == [False]


def test_commits_of_a_branch_whose_base_moved_on_are_lost(repo: Repo) -> None:
    """A record that claims a base at the tip does not make commits worthless."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="work")
    record(repo, "a3f2", tip)
    assert _dropped(repo, "a3f2", force=False)[0][0].lost == (f"{tip[:12]} work",)


def test_many_commits_are_counted(repo: Repo) -> None:
    """The message stays readable."""
    grow(repo, "ralph/a3f2", "main", *({"new": f"{number}\n"} for number in range(12)))
    lost = _dropped(repo, "a3f2")[0][0].lost
    assert (len(lost), lost[-1]) == (11, "and 2 more commits")


def test_without_a_main_branch_nothing_is_merged(repo: Repo) -> None:
    """What no other branch holds would be lost."""
    repo.git("checkout", "--quiet", "-b", "topic")
    repo.git("branch", "-D", "main")
    repo.git("checkout", "--quiet", "--detach")
    grow(repo, "ralph/a3f2", "topic", {"new": "1\n"})
    repo.git("branch", "ralph/0001", "topic")
    assert _dropped(repo, merged=True) == ([], None)
    assert isinstance(_drop(repo, "a3f2"), RefusedError)
    assert _drop(repo, "0001") is None


def test_a_root_of_its_own_is_not_merged(repo: Repo) -> None:
    """There is nothing to compare it with."""
    grow(repo, "ralph/a3f2", None, {"new": "1\n"})
    assert isinstance(_drop(repo, "a3f2"), RefusedError)


# Who is left alone


@pytest.mark.parametrize("name", ["a3f2", "a3f2-wip"])
@pytest.mark.parametrize("force", [False, True])
def test_a_branch_that_is_checked_out_stays(repo: Repo, name: str, force: bool) -> None:
    """Anywhere, forced or not; among many it is passed over."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/a3f2-wip")
    repo.git("worktree", "add", "--quiet", "../elsewhere", f"ralph/{name}")
    before = _refs(repo)
    error = _drop(repo, "a3f2", force=force)
    assert isinstance(error, ConflictError)
    assert f"ralph/{name} is checked out in {repo.path.parent / 'elsewhere'}" in error.message
    assert _dropped(repo, merged=True, force=force) == ([], None)
    assert _refs(repo) == before


def test_a_branch_stays_that_a_worktree_is_on_and_only_stands_for_another_one(repo: Repo) -> None:
    """Git lists the other one; without this one that worktree would have no commit."""
    repo.git("branch", "ralph/09be")
    repo.git("symbolic-ref", "refs/heads/ralph/a3f2", "refs/heads/ralph/09be")
    repo.git("worktree", "add", "--quiet", "../elsewhere", "ralph/a3f2")
    for name in ("a3f2", "09be"):
        assert isinstance(_drop(repo, name, force=True), ConflictError)
    assert repo.git("rev-parse", "HEAD", cwd=repo.path.parent / "elsewhere") == repo.head


def test_a_branch_that_gets_a_worktree_meanwhile_stays(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session goes on with it; the others go all the same."""
    for name in ("0001", "0002"):
        repo.git("branch", f"ralph/{name}")
    lost = DropSafety.lost

    def late(judge: DropSafety, branch: Branch) -> tuple[str, ...]:
        if branch.id == "0001":
            repo.git("worktree", "add", "--quiet", "../elsewhere", branch.name)
        return lost(judge, branch)

    monkeypatch.setattr(DropSafety, "lost", late)
    rows, error = _dropped(repo, "0001", "0002")
    assert ([row.dropped for row in rows], type(error)) == ([False, True], ConflictError)
    assert repo.branches() == ["main", "ralph/0001"]


def test_a_branch_that_is_being_rebased_stays(repo: Repo) -> None:
    """Its worktree's HEAD is detached meanwhile."""
    base = grow(repo, "main", "main", {"file.txt": "2\n"})
    grow(repo, "ralph/a3f2", base, {"file.txt": "3\n"})
    grow(repo, "main", "main", {"file.txt": "4\n"})
    repo.git("worktree", "add", "--quiet", "../elsewhere", "ralph/a3f2")
    repo.git("rebase", "main", cwd=repo.path.parent / "elsewhere", check=False)
    assert isinstance(_drop(repo, "a3f2", force=True), ConflictError)
    repo.git("rebase", "--abort", cwd=repo.path.parent / "elsewhere")
    shutil.rmtree(repo.path.parent / "elsewhere")
    repo.git("worktree", "prune")
    assert _drop(repo, "a3f2", force=True) is None


def test_the_branch_of_a_live_session_stays(repo: Repo) -> None:
    """Whatever its worktree looks like at this moment."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    repo.git("branch", "ralph/a3f2")
    lock = files.try_lock(home.agents / "a3f2.lock")
    assert lock is not None
    identity = liveness.myself()._asdict()
    live = SessionRecord(
        id="a3f2", session="20260102T030405Z-a3f2", **identity, branch="ralph/a3f2", lock_inode=lock.inode
    )
    (home.agents / "a3f2.json").write_bytes(live.to_json())
    try:
        error = _drop(repo, "a3f2", force=True)
        assert isinstance(error, ConflictError)
        assert error.message == "the session of ralph/a3f2 is live: the branch stays"
        assert _dropped(repo, merged=True, force=True) == ([], None)
    finally:
        lock.release()


def test_a_branch_whose_record_cannot_be_read_stays(repo: Repo) -> None:
    """Nobody knows whose it is."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    (home.agents / "a3f2.json").write_text("{")
    repo.git("branch", "ralph/a3f2")
    assert isinstance(_drop(repo, "a3f2", force=True), ConflictError)


def test_only_branches_below_ralph_are_dropped(repo: Repo) -> None:
    """A record that names another one changes nothing."""
    repo.git("branch", "topic")
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, branch="topic")
    with pytest.raises(NotFoundError):
        _drop(repo, "topic", force=True)
    assert _drop(repo, "a3f2") is None
    assert "topic" in repo.branches()


@pytest.mark.parametrize("target", ["refs/heads/main", "refs/heads/topic"])
def test_what_a_branch_only_stands_for_stays(repo: Repo, target: str) -> None:
    """An agent can make its branch a symbolic ref to another one."""
    repo.git("branch", "topic")
    repo.git("symbolic-ref", "refs/heads/ralph/a3f2", target)
    assert _drop(repo, "a3f2") is None
    assert repo.branches() == ["main", "topic"]
    assert _refs(repo) == {"ralph/dropped/a3f2": repo.head}
    _restore(repo, "a3f2")
    repo.git("update-ref", "refs/heads/ralph/a3f2", grow(repo, "ralph/09be", "main", {"new": "1\n"}))
    assert repo.git("rev-parse", "main", "topic").split() == [repo.head] * 2


def test_the_main_branch_stays(repo: Repo) -> None:
    """Also if somebody has configured one of ours."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".ralph" / "config.toml").write_text('main = "ralph/a3f2"\n')
    repo.git("branch", "ralph/a3f2")
    assert isinstance(_drop(repo, "a3f2", force=True), ConflictError)


def test_a_branch_that_moves_meanwhile_stays(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare and swap; the others go all the same."""
    for name in ("0001", "0002"):
        repo.git("branch", f"ralph/{name}")
    change = transaction.change_refs

    def late(*arguments: object) -> None:
        repo.git("update-ref", "refs/heads/ralph/0001", tip)
        change(*arguments)  # type: ignore[arg-type]

    tip = grow(repo, "topic", "main", {"new": "1\n"})
    monkeypatch.setattr("ralph_wrap.commands.drop.refs.change_refs", late)
    rows, error = _dropped(repo, "0001", "0002")
    assert ([row.dropped for row in rows], type(error)) == ([False, True], ConflictError)
    assert _refs(repo) == {"heads/ralph/0001": tip, "ralph/dropped/0002": repo.head}


def test_what_was_dropped_before_stays_where_the_branch_moves_meanwhile(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the branch still holds is forgotten to be dropped anew."""
    repo.git("branch", "ralph/a3f2")
    repo.git("update-ref", "refs/ralph/dropped/a3f2", repo.head)
    tip = grow(repo, "topic", "main", {"new": "1\n"})
    change = transaction.change_refs

    def late(*arguments: object) -> None:
        repo.git("update-ref", "refs/heads/ralph/a3f2", tip)
        change(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("ralph_wrap.commands.drop.refs.change_refs", late)
    assert isinstance(_drop(repo, "a3f2"), ConflictError)
    assert _refs(repo) == {"heads/ralph/a3f2": tip, "ralph/dropped/a3f2": repo.head}


def test_what_was_dropped_before_under_the_same_name_is_not_overwritten(repo: Repo) -> None:
    """It can still be brought back."""
    first = repo.head
    repo.git("branch", "ralph/a3f2")
    assert _drop(repo, "a3f2") is None
    grow(repo, "main", "main", {"new": "1\n"})
    repo.git("branch", "ralph/a3f2")
    assert isinstance(_drop(repo, "a3f2", force=True), ConflictError)
    assert _refs(repo) == {"heads/ralph/a3f2": repo.head, "ralph/dropped/a3f2": first}


def test_a_drop_that_was_killed_half_way_can_be_done_again(repo: Repo) -> None:
    """Then both refs are there, at the same commit."""
    repo.git("branch", "ralph/a3f2")
    repo.git("update-ref", "refs/ralph/dropped/a3f2", repo.head)
    assert _drop(repo, "a3f2") is None
    assert _refs(repo) == {"ralph/dropped/a3f2": repo.head}


# Many at once


def test_all_that_are_merged_go(repo: Repo) -> None:
    """Also those that were squashed; the others are not even named."""
    base = repo.head
    grow(repo, "ralph/0001", base, {"one": "1\n"}, {"one": "2\n"})
    grow(repo, "ralph/0002", base, {"two": "1\n"})
    grow(repo, "ralph/0003", base, {"three": "1\n"})
    repo.git("merge", "--quiet", "--squash", "ralph/0001")
    repo.commit("squashed")
    repo.git("merge", "--quiet", "--no-edit", "ralph/0003")
    rows, error = _dropped(repo, merged=True)
    assert ([(row.id, row.dropped) for row in rows], error) == ([("0001", True), ("0003", True)], None)
    assert [*_refs(repo)] == ["heads/ralph/0002", "ralph/dropped/0001", "ralph/dropped/0003"]


def test_age_limits_what_goes(repo: Repo) -> None:
    """It counts from the end of the session, or from the last commit if that is later."""
    repo.git("branch", "ralph/0001")
    repo.git("branch", "ralph/0002")
    ended = 1767323045  # when everything here is committed
    record(repo, "0002", repo.head, ended="2026-01-12T03:04:05+00:00")
    assert _dropped(repo, merged=True, older_than=14 * DAY, now=ended + 13 * DAY) == ([], None)
    rows, _ = _dropped(repo, merged=True, older_than=14 * DAY, now=ended + 15 * DAY)
    assert [row.id for row in rows] == ["0001"]
    rows, _ = _dropped(repo, older_than=14 * DAY, now=ended + 25 * DAY)
    assert [row.id for row in rows] == ["0002"]


def test_age_alone_does_not_lose_anything(repo: Repo) -> None:
    """Old work is work."""
    grow(repo, "ralph/0001", "main", {"new": "1\n"})
    assert isinstance(_drop(repo, older_than=DAY), RefusedError)


@pytest.mark.parametrize(
    ("names", "options"), [((), {}), (("a3f2",), {"merged": True}), (("a3f2",), {"empty": True})]
)
def test_which_ones_must_be_said_in_one_way(
    repo: Repo, names: tuple[str, ...], options: dict[str, bool]
) -> None:
    """Nothing is guessed."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(UsageError):
        _drop(repo, *names, **options)


def test_a_name_that_is_not_there_stops_everything(repo: Repo) -> None:
    """Before anything is deleted."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(NotFoundError, match="beef"):
        _drop(repo, "a3f2", "beef")
    assert "heads/ralph/a3f2" in _refs(repo)


# Time


def test_what_was_dropped_is_forgotten_after_a_while(repo: Repo) -> None:
    """With the snapshots of its id; the clock of commits does not count."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/09be")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    repo.git("update-ref", "refs/ralph/snapshots/09be/1", repo.head)
    assert _drop(repo, "a3f2", now=NOW) is None
    assert _drop(repo, "09be", now=NOW + 20 * DAY) is None
    assert _expire(repo, 30 * DAY, NOW + 29 * DAY) == []
    assert _expire(repo, 0, NOW + 900 * DAY) == []
    assert _expire(repo, 30 * DAY, NOW + 31 * DAY) == ["ralph/a3f2"]
    assert [*_refs(repo)] == ["ralph/dropped/09be", "ralph/snapshots/09be/1"]


def test_snapshots_of_a_branch_that_is_there_again_stay(repo: Repo) -> None:
    """They are its own."""
    repo.git("branch", "ralph/a3f2")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    assert _drop(repo, "a3f2") is None
    repo.git("branch", "ralph/a3f2")
    assert _expire(repo, DAY, NOW + 2 * DAY) == ["ralph/a3f2"]
    assert [*_refs(repo)] == ["heads/ralph/a3f2", "ralph/snapshots/a3f2/1"]


def test_snapshots_of_a_session_that_is_not_finished_stay(repo: Repo) -> None:
    """Its branch has another name: ralph/a3f2 was made, and dropped, by somebody else."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    repo.git("branch", "ralph/a3f2")
    assert _drop(repo, "a3f2") is None
    (home.agents / "a3f2.json").write_text("{")
    repo.git("update-ref", "refs/ralph/snapshots/a3f2/1", repo.head)
    assert _expire(repo, DAY, NOW + 2 * DAY) == ["ralph/a3f2"]
    assert [*_refs(repo)] == ["ralph/snapshots/a3f2/1"]


def test_the_time_counts_from_the_last_time_that_something_was_dropped(repo: Repo) -> None:
    """Somebody has brought it back by hand, or a drop was killed half-way long ago."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/a3f2-wip")
    assert _drop(repo, "a3f2", now=NOW - 40 * DAY) is None
    repo.git("branch", "ralph/a3f2", "refs/ralph/dropped/a3f2")
    repo.git("branch", "ralph/a3f2-wip", "refs/ralph/dropped/a3f2")
    assert _drop(repo, "a3f2") is None
    assert _expire(repo, 30 * DAY, NOW + 29 * DAY) == []
    assert _refs(repo) == {"ralph/dropped/a3f2": repo.head, "ralph/dropped/a3f2-wip": repo.head}


def test_what_nobody_knows_the_time_of_is_kept(repo: Repo) -> None:
    """Somebody has deleted the reflog, or made the ref by hand."""
    repo.git("update-ref", "refs/ralph/dropped/a3f2", repo.head)
    assert _expire(repo, DAY, NOW + 900 * DAY) == []
    assert [*_refs(repo)] == ["ralph/dropped/a3f2"]


# Back


def test_nothing_is_brought_back_over_a_branch(repo: Repo) -> None:
    """Whatever is there under the name by now."""
    repo.git("branch", "ralph/a3f2")
    assert _drop(repo, "a3f2") is None
    later = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    with pytest.raises(ConflictError, match="branch ralph/a3f2 already exists"):
        _restore(repo, "a3f2")
    assert _refs(repo)["heads/ralph/a3f2"] == later


@pytest.mark.parametrize("name", ["a3f2", "ralph/a3f2", "", "../heads/main", "a3f2-wip", "*"])
def test_what_was_not_dropped_does_not_come_back(repo: Repo, name: str) -> None:
    """A name is no pattern, and no path."""
    with pytest.raises(NotFoundError):
        _restore(repo, name)


def test_an_id_is_not_given_away_while_it_can_come_back(repo: Repo) -> None:
    """Or its branch would be in the way."""
    repo.git("branch", "ralph/a3f2")
    assert _drop(repo, "a3f2") is None
    place = project.find_project(repo.path, os.environ)
    assert (taken_ids(place, "a3f2"), taken_ids(place)) == (
        {"a3f2"},
        {"a3f2"},
    )


@pytest.mark.parametrize("name", ["1", "commit-1"])
def test_an_id_is_not_given_away_while_there_are_snapshots_of_it(repo: Repo, name: str) -> None:
    """Those of two sessions could not be told apart."""
    repo.git("update-ref", f"refs/ralph/snapshots/a3f2/{name}", "HEAD")
    place = project.find_project(repo.path, os.environ)
    assert [taken_ids(place, *one) for one in [("a3f2",), ()]] == [{"a3f2"}] * 2


# The commands


def test_the_commands_answer_in_json(repo: Repo) -> None:
    """What was refused is in the answer, too."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="work")
    refused = command("drop", "a3f2", "--json", cwd=repo.path)
    answer = json.loads(refused.stdout)
    assert (refused.status, answer["success"], answer["error"]["code"]) == (5, False, "refused")
    assert answer["data"][0]["lost"] == [f"{tip[:12]} work"]
    forced = command("drop", "a3f2", "--json", "--force", cwd=repo.path)
    assert (forced.status, json.loads(forced.stdout)["data"][0]["dropped"]) == (0, True)
    back = command("restore", "a3f2", "--json", cwd=repo.path)
    assert json.loads(back.stdout) == {
        "version": 1,
        "success": True,
        "tool": "restore",
        "data": {"id": "a3f2", "branch": "ralph/a3f2", "tip": tip, "saved": None},
    }


def test_the_commands_answer_in_words(repo: Repo) -> None:
    """A line each; what has expired is told beside it."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".ralph" / "config.toml").write_text('keep_dropped = "1ms"\n')
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/09be")
    done = command("drop", "a3f2", cwd=repo.path)
    assert (done.status, done.stdout.decode()) == (0, f"ralph/a3f2  dropped at {repo.head[:12]}\n")
    done = command("drop", "--older-than", "1s", cwd=repo.path)
    assert done.stdout.decode() == f"ralph/09be  dropped at {repo.head[:12]}\n"
    told = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert "ralph/a3f2, dropped before, cannot be brought back any more" in told
    assert command("restore", "a3f2", cwd=repo.path).status == 4


def test_an_age_that_is_none_is_a_mistake(repo: Repo) -> None:
    """Nothing is dropped."""
    repo.git("branch", "ralph/a3f2")
    assert command("drop", "--older-than", "old", cwd=repo.path).status == 2
    assert repo.branches() == ["main", "ralph/a3f2"]


def test_each_that_is_kept_is_told_with_what_to_do(repo: Repo) -> None:
    """For people a line and a hint each, the others go; for programs one error."""
    for number in (1, 2, 3):
        grow(repo, f"ralph/000{number}", "main", {f"new-{number}": "1\n"})
    repo.git("merge", "-q", "--ff-only", "ralph/0003")
    refused = command("drop", "0001", "0002", "0003", cwd=repo.path)
    assert refused.status == RefusedError.exit_code
    assert refused.stdout.startswith(b"ralph/0003  dropped at ")
    for number in (1, 2):
        (line,) = [
            line
            for line in refused.stderr.splitlines()
            if f"ralph/000{number} kept, this would be lost: " in line
        ]
        assert "000" not in line.replace(f"000{number}", "")
        assert f"ralph-wrap drop --force 000{number}" in refused.stderr
    told = json.loads(command("drop", "0001", "0002", "--json", cwd=repo.path).stdout)
    assert told["error"]["message"] == "; ".join(row["kept"] for row in told["data"])
