"""``ralph-wrap drop``: nothing goes that nothing else holds."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.drop import DroppedBranch
from ralph_wrap.commands.drop.safety import DropSafety
from ralph_wrap.errors import ConflictError, NotFoundError, RefusedError
from ralph_wrap.git import transaction
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import files, liveness
from tests.support.histories import grow, record
from tests.support.orphans import orphan

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.branches import Branch
    from tests.support.repo import Repo
from tests.commands.drop.dropping import drop_some, dropped_and_error, refs, restore_one

pytestmark = pytest.mark.usefixtures("trusted")

# What would be lost


def test_unmerged_work_is_refused(repo: Repo) -> None:
    """The message lists commits and saved work; nothing has moved."""
    one = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="the first")
    two = grow(repo, "ralph/a3f2", one, {"new": "2\n"}, message="the second")
    grow(repo, "ralph/a3f2-wip", two, {"more": "x\n", "most": "x\n"})
    before = refs(repo)
    rows, error = dropped_and_error(repo, "a3f2")
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
    assert (error.message, refs(repo)) == (message, before)


def test_force_drops_unmerged_work(repo: Repo) -> None:
    """And is named all the same."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="the first")
    rows, error = dropped_and_error(repo, "a3f2", force=True)
    assert [(row.dropped, row.lost, row.kept) for row in rows] == [(True, (f"{tip[:12]} the first",), None)]
    assert (error, refs(repo)) == (None, {"ralph/dropped/a3f2": tip})


def test_saved_work_of_a_merged_branch_is_refused(repo: Repo) -> None:
    """The main branch has the commits, not that."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    grow(repo, "ralph/a3f2-wip", tip, {"more": "x\n"})
    repo.git("merge", "--quiet", "ralph/a3f2")
    assert dropped_and_error(repo, merged=True)[0][0].lost == ("more in ralph/a3f2-wip",)
    assert "heads/ralph/a3f2" in refs(repo)


def test_saved_work_that_was_applied_and_committed_is_not_lost(repo: Repo) -> None:
    """The main branch has the same files."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    grow(repo, "ralph/a3f2-wip", tip, {"more": "x\n"})
    repo.git("merge", "--quiet", "--squash", "ralph/a3f2")
    repo.write("more", "x\n")
    repo.commit("all of it")
    assert drop_some(repo, "a3f2") is None


def test_what_was_staged_besides_the_files_is_lost(repo: Repo) -> None:
    """The second parent of saved work is on no other branch, whatever became of the files."""
    index = grow(repo, "index", "main", {"more": "staged\n"})
    grow(repo, "ralph/a3f2-wip", "main", {"more": "x\n"}, merging=[index])
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "-D", "index")
    repo.write("more", "x\n")
    repo.commit("applied")
    assert dropped_and_error(repo, "a3f2")[0][0].lost == ("more in ralph/a3f2-wip",)


def test_an_index_as_it_was_at_head_is_nothing(repo: Repo) -> None:
    """It is the second parent of saved work as well, where nothing was staged."""
    index = grow(repo, "index", "main", {})
    grow(repo, "ralph/a3f2-wip", "main", {"more": "x\n"}, merging=[index])
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "-D", "index")
    repo.write("more", "x\n")
    repo.commit("applied")
    assert dropped_and_error(repo, "a3f2")[0][0].lost == ()


def test_two_branches_do_not_hold_each_others_commits(repo: Repo) -> None:
    """Dropped together, both would be gone."""
    grow(repo, "ralph/0001", "main", {"new": "1\n"})
    repo.git("branch", "ralph/0002", "ralph/0001")
    record(repo, "0002", repo.git("rev-parse", "ralph/0001"))
    rows, error = dropped_and_error(repo, "0001", "0002")
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
    rows, error = dropped_and_error(repo, empty=True)
    assert ([row.id for row in rows if row.dropped], error) == (["0001", "0003"], None)
    repo.git("update-ref", "-d", "refs/heads/feature")
    assert isinstance(drop_some(repo, "0004", force=False), RefusedError)
    restore_one(repo, "0001")
    assert [row.dropped for row in dropped_and_error(repo, empty=True)[0]] == [False]


def test_commits_of_a_branch_whose_base_moved_on_are_lost(repo: Repo) -> None:
    """A record that claims a base at the tip does not make commits worthless."""
    tip = grow(repo, "ralph/a3f2", "main", {"new": "1\n"}, message="work")
    record(repo, "a3f2", tip)
    assert dropped_and_error(repo, "a3f2", force=False)[0][0].lost == (f"{tip[:12]} work",)


def test_many_commits_are_counted(repo: Repo) -> None:
    """The message stays readable."""
    grow(repo, "ralph/a3f2", "main", *({"new": f"{number}\n"} for number in range(12)))
    lost = dropped_and_error(repo, "a3f2")[0][0].lost
    assert (len(lost), lost[-1]) == (11, "and 2 more commits")


def test_without_a_main_branch_nothing_is_merged(repo: Repo) -> None:
    """What no other branch holds would be lost."""
    repo.git("checkout", "--quiet", "-b", "topic")
    repo.git("branch", "-D", "main")
    repo.git("checkout", "--quiet", "--detach")
    grow(repo, "ralph/a3f2", "topic", {"new": "1\n"})
    repo.git("branch", "ralph/0001", "topic")
    assert dropped_and_error(repo, merged=True) == ([], None)
    assert isinstance(drop_some(repo, "a3f2"), RefusedError)
    assert drop_some(repo, "0001") is None


def test_a_root_of_its_own_is_not_merged(repo: Repo) -> None:
    """There is nothing to compare it with."""
    grow(repo, "ralph/a3f2", None, {"new": "1\n"})
    assert isinstance(drop_some(repo, "a3f2"), RefusedError)


# What drop leaves alone


@pytest.mark.parametrize("name", ["a3f2", "a3f2-wip"])
@pytest.mark.parametrize("force", [False, True])
def test_a_branch_that_is_checked_out_stays(repo: Repo, name: str, force: bool) -> None:
    """Anywhere, forced or not; among many it is passed over."""
    repo.git("branch", "ralph/a3f2")
    repo.git("branch", "ralph/a3f2-wip")
    repo.git("worktree", "add", "--quiet", "../elsewhere", f"ralph/{name}")
    before = refs(repo)
    error = drop_some(repo, "a3f2", force=force)
    assert isinstance(error, ConflictError)
    assert f"ralph/{name} is checked out in {repo.path.parent / 'elsewhere'}" in error.message
    assert dropped_and_error(repo, merged=True, force=force) == ([], None)
    assert refs(repo) == before


def test_a_branch_stays_that_a_worktree_is_on_and_only_stands_for_another_one(repo: Repo) -> None:
    """Git lists the other one; without this one that worktree would have no commit."""
    repo.git("branch", "ralph/09be")
    repo.git("symbolic-ref", "refs/heads/ralph/a3f2", "refs/heads/ralph/09be")
    repo.git("worktree", "add", "--quiet", "../elsewhere", "ralph/a3f2")
    for name in ("a3f2", "09be"):
        assert isinstance(drop_some(repo, name, force=True), ConflictError)
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
    rows, error = dropped_and_error(repo, "0001", "0002")
    assert ([row.dropped for row in rows], type(error)) == ([False, True], ConflictError)
    assert repo.branches() == ["main", "ralph/0001"]


def test_a_branch_that_is_being_rebased_stays(repo: Repo) -> None:
    """Its worktree's HEAD is detached meanwhile."""
    base = grow(repo, "main", "main", {"file.txt": "2\n"})
    grow(repo, "ralph/a3f2", base, {"file.txt": "3\n"})
    grow(repo, "main", "main", {"file.txt": "4\n"})
    repo.git("worktree", "add", "--quiet", "../elsewhere", "ralph/a3f2")
    repo.git("rebase", "main", cwd=repo.path.parent / "elsewhere", check=False)
    assert isinstance(drop_some(repo, "a3f2", force=True), ConflictError)
    repo.git("rebase", "--abort", cwd=repo.path.parent / "elsewhere")
    shutil.rmtree(repo.path.parent / "elsewhere")
    repo.git("worktree", "prune")
    assert drop_some(repo, "a3f2", force=True) is None


def test_a_rebase_counts_without_the_path_of_its_worktree(repo: Repo) -> None:
    """The file ``gitdir`` of the registration is gone; the hint gives it back."""
    base = grow(repo, "main", "main", {"file.txt": "2\n"})
    grow(repo, "ralph/a3f2", base, {"file.txt": "3\n"})
    grow(repo, "main", "main", {"file.txt": "4\n"})
    repo.git("worktree", "add", "--quiet", "../elsewhere", "ralph/a3f2")
    elsewhere = repo.path.parent / "elsewhere"
    repo.git("rebase", "main", cwd=elsewhere, check=False)
    (repo.path / ".git/worktrees/elsewhere/gitdir").unlink()
    error = drop_some(repo, "a3f2", force=True)
    assert isinstance(error, ConflictError)
    assert str(error.hint).endswith(": git worktree repair PATH")
    repo.git("worktree", "repair", elsewhere)
    assert repo.worktrees() == [str(elsewhere)]


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
        error = drop_some(repo, "a3f2", force=True)
        assert isinstance(error, ConflictError)
        assert error.message == "the session of ralph/a3f2 is live: the branch stays"
        assert dropped_and_error(repo, merged=True, force=True) == ([], None)
    finally:
        lock.release()


def test_the_branch_of_a_session_on_another_machine_stays(repo: Repo) -> None:
    """The hint says how to end it there, or to adopt it."""
    left = orphan(repo)
    left.move_owner_away()
    error = drop_some(repo, left.id, force=True)
    assert error is not None
    assert error.hint == advice_for(Verdict.FOREIGN, left.id)


def test_a_branch_whose_record_cannot_be_read_stays(repo: Repo) -> None:
    """Its session may still be running."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    (home.agents / "a3f2.json").write_text("{")
    repo.git("branch", "ralph/a3f2")
    assert isinstance(drop_some(repo, "a3f2", force=True), ConflictError)


def test_a_branch_that_no_session_recorded_is_not_dropped(repo: Repo) -> None:
    """With whatever option; and an id names the branch with this id before any other one."""
    repo.git("branch", "topic")
    with pytest.raises(NotFoundError):
        drop_some(repo, "topic", force=True)
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, branch="topic")
    assert drop_some(repo, "a3f2") is None
    assert repo.branches() == ["main", "topic"]


@pytest.mark.parametrize("target", ["refs/heads/main", "refs/heads/topic"])
def test_what_a_branch_only_stands_for_stays(repo: Repo, target: str) -> None:
    """An agent can make its branch a symbolic ref to another one."""
    repo.git("branch", "topic")
    repo.git("symbolic-ref", "refs/heads/ralph/a3f2", target)
    assert drop_some(repo, "a3f2") is None
    assert repo.branches() == ["main", "topic"]
    assert refs(repo) == {"ralph/dropped/a3f2": repo.head}
    restore_one(repo, "a3f2")
    repo.git("update-ref", "refs/heads/ralph/a3f2", grow(repo, "ralph/09be", "main", {"new": "1\n"}))
    assert repo.git("rev-parse", "main", "topic").split() == [repo.head] * 2


def test_the_main_branch_stays(repo: Repo) -> None:
    """Also if the configuration names one of ours."""
    (repo.path / ".ralph").mkdir()
    (repo.path / ".ralph" / "config.toml").write_text('main = "ralph/a3f2"\n')
    repo.git("branch", "ralph/a3f2")
    assert isinstance(drop_some(repo, "a3f2", force=True), ConflictError)


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
    rows, error = dropped_and_error(repo, "0001", "0002")
    assert ([row.dropped for row in rows], type(error)) == ([False, True], ConflictError)
    assert refs(repo) == {"heads/ralph/0001": tip, "ralph/dropped/0002": repo.head}


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
    assert isinstance(drop_some(repo, "a3f2"), ConflictError)
    assert refs(repo) == {"heads/ralph/a3f2": tip, "ralph/dropped/a3f2": repo.head}


def test_what_was_dropped_before_under_the_same_name_is_not_overwritten(repo: Repo) -> None:
    """It can still be brought back."""
    first = repo.head
    repo.git("branch", "ralph/a3f2")
    assert drop_some(repo, "a3f2") is None
    grow(repo, "main", "main", {"new": "1\n"})
    repo.git("branch", "ralph/a3f2")
    assert isinstance(drop_some(repo, "a3f2", force=True), ConflictError)
    assert refs(repo) == {"heads/ralph/a3f2": repo.head, "ralph/dropped/a3f2": first}


def test_a_drop_that_was_killed_half_way_can_be_done_again(repo: Repo) -> None:
    """Then both refs are there, at the same commit."""
    repo.git("branch", "ralph/a3f2")
    repo.git("update-ref", "refs/ralph/dropped/a3f2", repo.head)
    assert drop_some(repo, "a3f2") is None
    assert refs(repo) == {"ralph/dropped/a3f2": repo.head}


HELD = {
    "a checkout of the user": ("switch -q ralph/a3f2", 1),
    "a rebase": ("switch -q ralph/a3f2; git rebase -q --exec false main", 2),
    "a bisection": ("switch -q ralph/a3f2; git bisect start -q; git switch -q --detach", 1),
}


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(("held", "steps"), HELD.values(), ids=HELD)
def test_the_hint_frees_a_branch_that_the_user_has_checked_out(
    repo: Repo, tmp_path: Path, held: str, steps: int, *, linked: bool
) -> None:
    """Typed as it is printed, from elsewhere, until the branch can go; no hint is the command just typed."""
    grow(repo, "ralph/a3f2", "main", {"new": "1\n"})
    record(repo, "a3f2", repo.head)
    place = repo.path
    if linked:
        place = tmp_path / "linked"
        repo.git("worktree", "add", "-q", "--detach", place, "main")
    os.system(f"cd {place} && git {held} 2> {os.devnull}")  # noqa: S605
    for _ in range(steps):
        rows, error = dropped_and_error(repo, "a3f2", force=True)
        assert isinstance(error, ConflictError)
        assert not rows[0].dropped
        _, _, line = error.hint.partition("to free the branch: ")
        assert line.startswith("git "), error.hint
        assert os.system(f"cd {tmp_path} && {line} > {os.devnull} 2>&1") == 0  # noqa: S605
    rows, error = dropped_and_error(repo, "a3f2", force=True)
    assert (error, rows[0].dropped) == (None, True)
