"""Reading branches: refs say which exist, records add to them, and git's own answers are the measure."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import branches
from ralph_wrap.branches import positions as positioning
from ralph_wrap.branches.ancestry import ancestry, members, numbered
from ralph_wrap.branches.positions import positions
from ralph_wrap.errors import NotARepositoryError, NotFoundError
from ralph_wrap.git.compare import facts_of
from ralph_wrap.state import project
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import files, liveness
from tests.support.histories import Grown, grow_all, record
from tests.support.repo import Repo, make_repo

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.branches import Branch, MainBranch


def _read(repo: Repo) -> list[Branch]:
    return branches.read(project.find_project(repo.path, os.environ))


def _main(repo: Repo, configured: str | None = None) -> MainBranch:
    found_project = project.find_project(repo.path, os.environ)
    return branches.main_branch(found_project, configured)


# Rows


def test_saved_work_goes_with_its_branch(repo: Repo) -> None:
    """A branch of saved work alone has its own row. For a name that is no id, -wip means nothing."""
    for name in ("a3f2", "a3f2-wip", "09be-wip", "foo", "foo-wip", "a3f2-wip-wip", "nested/a3f2", "A3F2"):
        repo.git("branch", f"ralph/{name}")
    repo.git("branch", "elsewhere")
    assert [(one.name, one.id, one.saved_name, one.only_saved) for one in _read(repo)] == [
        ("ralph/09be-wip", "09be", "ralph/09be-wip", True),
        ("ralph/A3F2", None, None, False),
        ("ralph/a3f2", "a3f2", "ralph/a3f2-wip", False),
        ("ralph/a3f2-wip-wip", None, None, False),
        ("ralph/foo", None, None, False),
        ("ralph/foo-wip", None, None, False),
        ("ralph/nested/a3f2", None, None, False),
    ]


def test_a_branch_without_a_record_is_what_git_knows_of_it(repo: Repo) -> None:
    """Nothing else is made up."""
    repo.git("branch", "ralph/a3f2")
    assert _read(repo) == [branches.Branch("ralph/a3f2", "a3f2", repo.head, None, None, None, None)]


def test_a_record_tells_of_its_branch(repo: Repo) -> None:
    """With the report over it."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, ended_by="max-cost", cost_usd=1.5)
    (one,) = _read(repo)
    printed = one.record or {}
    names = ("id", "agent", "ended_by", "ended", "cost_usd", "iteration", "branch", "state")
    assert [printed[name] for name in names] == [
        *("a3f2", "claude", "max-cost", "2026-01-02T04:05:06+00:00", 1.5, 3, "ralph/a3f2", "finished")
    ]
    assert (one.base, one.verdict) == (repo.head, None)


def test_a_session_that_went_on_with_a_branch_does_not_move_its_base(repo: Repo) -> None:
    """The branch began with the session of its own id; the row shows the newest session."""
    first = repo.head
    repo.commit("second")
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", first)
    record(repo, "09be", repo.head, branch="ralph/a3f2", began=datetime(2026, 1, 3, tzinfo=UTC))
    (one,) = _read(repo)
    assert ((one.record or {})["id"], one.base) == ("09be", first)


def test_an_id_that_came_back_has_its_own_base(repo: Repo) -> None:
    """An earlier session of the same id had another branch of the same name."""
    first = repo.head
    repo.commit("second")
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", first)
    record(repo, "a3f2", repo.head, began=datetime(2026, 1, 3, tzinfo=UTC))
    assert _read(repo)[0].base == repo.head


def test_a_record_that_names_another_branch_is_not_of_this_one(repo: Repo) -> None:
    """Not even if it has the id of this one."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, branch="main")
    assert [(one.name, one.id, one.record is None) for one in _read(repo)] == [
        ("main", None, False),
        ("ralph/a3f2", "a3f2", True),
    ]


@pytest.mark.parametrize("base", ["--output=/tmp/x", "HEAD", "a3f2", "", "g" * 40])
def test_a_base_that_is_no_object_id_is_none(repo: Repo, base: str) -> None:
    """It comes from a file that an agent can write."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", base)
    assert _read(repo)[0].base is None


def test_saved_work_of_a_session_that_went_on_with_a_branch_is_recorded(repo: Repo) -> None:
    """It is named by that session, which has recorded the other branch."""
    for name in ("a587", "6732-wip"):
        repo.git("branch", f"ralph/{name}")
    record(repo, "a587", repo.head)
    record(
        repo,
        "6732",
        repo.head,
        branch="ralph/a587",
        began=datetime(2026, 1, 3, tzinfo=UTC),
        saved="ralph/6732-wip",
        ended_by="stop",
    )
    assert [
        (one.name, one.belongs_to, *((one.record or {}).get(name) for name in ("id", "branch", "ended_by")))
        for one in _read(repo)
    ] == [
        ("ralph/6732-wip", "ralph/a587", "6732", "ralph/a587", "stop"),
        ("ralph/a587", None, "6732", "ralph/a587", "stop"),
    ]


@pytest.mark.parametrize(
    ("names", "saved"), [(["6732-wip"], "ralph/09be-wip"), (["6732", "6732-wip"], "ralph/6732-wip")]
)
def test_a_session_that_has_not_saved_it_does_not_record_it(repo: Repo, names: list[str], saved: str) -> None:
    """Its id alone says nothing, nor does what it saved of a branch that is there."""
    for name in names:
        repo.git("branch", f"ralph/{name}")
    record(repo, "6732", repo.head, branch="ralph/a587", saved=saved)
    assert [(one.record, one.belongs_to, one.base) for one in _read(repo)] == [(None, None, None)]


def test_the_newest_session_of_an_id_has_saved_the_work(repo: Repo) -> None:
    """Ids come back: an earlier session with this id had a branch of the same name, which is gone."""
    repo.git("branch", "ralph/6732-wip")
    record(repo, "6732", repo.head, saved="ralph/6732-wip")
    later = datetime(2026, 1, 3, tzinfo=UTC)
    record(repo, "6732", repo.head, branch="topic", began=later, saved="ralph/6732-wip")
    assert [one.belongs_to for one in _read(repo)] == ["topic"]


def test_a_branch_of_a_live_session_is_live(repo: Repo) -> None:
    """Its record is not finished, and its lock is held."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    repo.git("branch", "ralph/foo")
    lock = files.try_lock(home.agents / "a3f2.lock")
    assert lock is not None
    live = SessionRecord(
        id="a3f2",
        session="20260102T030405Z-a3f2",
        **liveness.myself()._asdict(),
        branch="ralph/foo",
        lock_inode=lock.inode,
    )
    (home.agents / "a3f2.json").write_bytes(live.to_json())
    try:
        assert [(one.verdict, (one.record or {})["id"]) for one in _read(repo)] == [("live", "a3f2")]
        repo.git("branch", "ralph/a3f2-wip")
        assert [(one.name, one.saved_name, one.verdict) for one in _read(repo)] == [
            ("ralph/foo", "ralph/a3f2-wip", "live")
        ]
    finally:
        lock.release()


def test_an_unreadable_record_makes_its_branch_unknown(repo: Repo) -> None:
    """The record does not say whose branch it is, so every command leaves it alone."""
    home = Registry(repo.path / ".ralph" / "run")
    home.prepare()
    (home.agents / "a3f2.json").write_text("{")
    repo.git("branch", "ralph/a3f2")
    assert [(one.verdict, one.record) for one in _read(repo)] == [("unknown", None)]


def test_without_a_repository_there_are_no_branches(tmp_path: Path) -> None:
    """And that is said."""
    with pytest.raises(NotARepositoryError):
        branches.read(project.find_project(tmp_path, os.environ))


# Names


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("a3f2", "ralph/a3f2"),
        ("ralph/a3f2", "ralph/a3f2"),
        ("refs/heads/ralph/a3f2", "ralph/a3f2"),
        ("ralph/a3f2-wip", "ralph/a3f2"),
        ("09be", "ralph/09be-wip"),
        ("foo", "ralph/foo"),
        ("ralph/foo", "ralph/foo"),
    ],
)
def test_a_branch_is_found_by_id_and_by_name(repo: Repo, wanted: str, found: str) -> None:
    """As people type it."""
    for name in ("a3f2", "a3f2-wip", "09be-wip", "foo"):
        repo.git("branch", f"ralph/{name}")
    assert branches.named(_read(repo), wanted).name == found


@pytest.mark.parametrize("wanted", ["beef", "main", "refs/heads/main", "", "a3f", "../main", "ralph/"])
def test_a_branch_outside_ralph_is_not_found(repo: Repo, wanted: str) -> None:
    """Whatever else git would make of it."""
    repo.git("branch", "ralph/a3f2")
    with pytest.raises(NotFoundError):
        branches.named(_read(repo), wanted)


# The main branch


def test_the_main_branch_is_the_one_that_is_checked_out(repo: Repo) -> None:
    """In the main checkout, whatever a linked one has."""
    repo.git("checkout", "--quiet", "-b", "trunk")
    repo.git("worktree", "add", "--quiet", "-b", "other", "../other")
    found_project = project.find_project(repo.path.parent / "other", os.environ)
    assert branches.main_branch(found_project, None).name == "trunk"


def test_a_configured_main_branch_comes_first(repo: Repo) -> None:
    """A remote one, too."""
    repo.git("branch", "release")
    repo.git("update-ref", "refs/remotes/origin/next", "HEAD")
    assert _main(repo, "release") == branches.MainBranch("release", repo.head, "refs/heads/release")
    assert _main(repo, "origin/next") == branches.MainBranch(
        "origin/next", repo.head, "refs/remotes/origin/next"
    )


def test_a_configured_main_branch_that_is_not_there_is_an_error(repo: Repo) -> None:
    """Nothing else is taken for it."""
    with pytest.raises(NotFoundError, match="there is no branch 'release'"):
        _main(repo, "release")


def test_a_branch_of_ours_that_is_checked_out_is_not_the_main_branch(repo: Repo) -> None:
    """Then it is origin/HEAD, main, master, in this order."""
    repo.git("checkout", "--quiet", "-b", "ralph/a3f2")
    repo.git("branch", "master")
    repo.git("branch", "next")
    assert _main(repo).name == "main"
    repo.git("update-ref", "refs/remotes/origin/next", "HEAD")
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/next")
    assert _main(repo).name == "next"
    repo.git("branch", "-D", "next")
    assert _main(repo).name == "origin/next"
    repo.git("symbolic-ref", "--delete", "refs/remotes/origin/HEAD")
    repo.git("branch", "-D", "main")
    assert _main(repo).name == "master"
    repo.git("branch", "-D", "master")
    with pytest.raises(NotFoundError, match="there is no main branch"):
        _main(repo)


def test_a_detached_checkout_leaves_main(repo: Repo) -> None:
    """A detached HEAD is no branch."""
    repo.git("checkout", "--quiet", "--detach")
    assert _main(repo).name == "main"


def test_a_branch_before_its_first_commit_is_no_main_branch(tmp_path: Path) -> None:
    """There is nothing to compare others with."""
    with pytest.raises(NotFoundError):
        _main(make_repo(tmp_path / "empty", empty=True))


# History


def test_sets_of_commits_are_bits() -> None:
    """Sets that are no longer needed are forgotten on the way."""
    parents = {"a": ("edge",), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}
    bits = numbered(parents)
    found = ancestry(parents, bits, ["b", "d", "e", "elsewhere"])
    names = [*parents]
    assert {commit: [names[bit] for bit in members(row)] for commit, row in found.items()} == {
        "b": ["a", "b"],
        "d": ["a", "b", "c", "d"],
        "e": ["e"],
    }
    assert ancestry(parents, {"edge": 0}, ["d", "e"]) == {"d": 1, "e": 0}


def test_a_position_holds_no_set_of_commits(repo: Repo) -> None:
    """With 30,000 different merge bases, a set of 30,000 bits each would take 100 MB."""
    rows: list[Grown] = []
    for number in range(100):
        start: list[str | int] = [2 * number - 2] if number else [repo.head]
        rows += [
            Grown("main", start, {"file": f"{number}\n"}),
            Grown(f"ralph/{number:04x}", start, {"a": "a\n"}),
        ]
    main, *_ = grow_all(repo, rows)[-2:]
    tips = {one.tip for one in _read(repo)}
    git = project.find_project(repo.path, os.environ).git
    found = positions(git, main, tips, facts_of(git, [*tips, main]))
    assert sorted(position.behind or 0 for position in found.of.values()) == [*range(1, 101)]
    assert {found.missed(tip).bit_count() for tip in tips} == {*range(1, 101)}
    assert max(value for position in found.of.values() for value in position if isinstance(value, int)) <= 100


@pytest.mark.parametrize("seed", range(6))
def test_positions_are_what_git_says(repo: Repo, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ahead, behind and merge base, in histories with merges, criss-cross ones, and roots of their own."""
    random = Random(seed)  # noqa: S311 -- the same history each time
    names = ["main", *(f"ralph/{name:04x}" for name in range(6))]
    commits = []
    for number in range(40):
        earlier: list[str | int] = [repo.head, *range(number)]
        parents = random.sample(earlier, min(number + 1, random.choice((1, 1, 1, 2, 3))))
        own_root = random.random() < 0.05
        files = {f"file-{number}": f"{number}\n"}
        commits.append(Grown(random.choice(names[seed % 2 :]), [] if own_root else parents, files))
    grow_all(repo, commits)
    tips = {one.tip for one in _read(repo)}
    found_project = project.find_project(repo.path, os.environ)
    git = found_project.git
    main = repo.git("rev-parse", "main")
    facts = facts_of(git, [*tips, main])
    found = positions(git, main, tips, facts)
    monkeypatch.setattr(positioning, "_MOST_STEPS", 0)
    without_lists = positions(git, main, tips, facts)
    for tip in tips:
        assert without_lists.of[tip] == found.of[tip]._replace(commits=None)
        at = found.of[tip]
        behind, ahead = repo.git("rev-list", "--count", "--left-right", f"{main}...{tip}").split("\t")
        bases = repo.git("merge-base", "--all", main, tip, check=False).split("\n")
        assert (at.ahead, len(at.commits or ())) == (int(ahead), int(ahead))
        assert at.behind == (int(behind) if bases != [""] else None)
        assert at.base in (bases if bases != [""] else [None])
