"""``ralph-wrap review``: what each branch is, as git would say."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import review
from ralph_wrap.errors import NotARepositoryError, NotFoundError
from ralph_wrap.state import check_results, project
from tests.support.histories import Grown, grow, grow_all, record
from tests.support.repo import Repo

if TYPE_CHECKING:
    from pathlib import Path

from tests.commands.review.reviewing import TEXT, changed, look_at, rows_of, unmerged

pytestmark = pytest.mark.usefixtures("trusted")

# One row


def test_a_row_tells_everything_of_a_branch(repo: Repo) -> None:
    """What its session has recorded, and what git knows."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", base, {"file.txt": changed(3)}, {"new": "one\ntwo\n"})
    grow(repo, "ralph/a3f2-wip", "ralph/a3f2", {"more": "more\n"})
    grow(repo, "main", "main", {"other": "other\n"})
    record(repo, "a3f2", base, ended_by="max-cost")
    tip = repo.git("rev-parse", "ralph/a3f2")
    check_results.keep(
        project.find_project(repo.path, os.environ),
        tip,
        check_results.CheckResult(1, "main", "0" * 40, "2026-01-02T03:04:05+00:00", "hash"),
    )
    assert [row._asdict() for row in look_at(repo).rows] == [
        {
            "id": "a3f2",
            "branch": "ralph/a3f2",
            "agent": "claude",
            "ended_by": "max-cost",
            "ended": "2026-01-02T04:05:06+00:00",
            "base": base,
            "ahead": 2,
            "behind": 1,
            "files": 2,
            "insertions": 3,
            "deletions": 1,
            "saved": "ralph/a3f2-wip",
            "merged": False,
            "conflicts_main": False,
            "conflicts": (),
            "overlaps": (),
            "recorded": True,
            "verdict": None,
            "committed": "2026-01-02T03:04:05+00:00",
            "check": "failed",
            "question": None,
            "verify": None,
            "no_commits": False,
            "waits_until": None,
            "waits_for_room": False,
            "saved_open": False,
            "belongs_to": None,
            "title": "",
            "subject": "work",
            "touches": (),
            "damage": None,
            "saved_commits": 1,
            "kept": None,
            "clones_removed": (),
        }
    ]


def test_the_newest_comes_first(repo: Repo) -> None:
    """By the end of its session, or by its last commit if that is not known."""
    for name in ("0001", "0002", "0003"):
        repo.git("branch", f"ralph/{name}")
    record(repo, "0001", repo.head, ended="2026-03-01T00:00:00+00:00")
    record(repo, "0003", repo.head, ended="2026-02-01T00:00:00+00:00")
    assert [*rows_of(repo)] == ["0001", "0003", "0002"]


def test_a_renamed_file_is_one_file(repo: Repo) -> None:
    """As git diff --stat has it; lines of binary files do not count."""
    grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", "main", {"file.txt": None, "renamed": changed(2), "picture": b"\0\1"})
    row = rows_of(repo)["a3f2"]
    assert (row.files, row.insertions, row.deletions) == (2, 1, 1)


@pytest.mark.parametrize("ended", [7, None, "yesterday", "9999-99-99T00:00:00+00:00x", "\x1b[2J"])
def test_a_report_with_wrong_values_does_no_harm(repo: Repo, ended: object) -> None:
    """A value of the wrong kind counts as missing; the record has the agent."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, ended=ended, ended_by=["x"], agent={"a": 1})
    row = rows_of(repo)["a3f2"]
    assert (row.ended, row.ended_by, row.agent, row.recorded) == (None, None, "claude", True)


# Bad input


def test_a_branch_with_a_root_of_its_own_has_no_merge_base(repo: Repo) -> None:
    """It is shown; what would need one is not known."""
    grow(repo, "ralph/a3f2", None, {"new": "new\n"}, {"new": "more\n"})
    grow(repo, "ralph/0001", "main", {"new": "other\n"})
    rows = rows_of(repo)
    assert rows["a3f2"][5:16] == (None, 2, None, None, None, None, None, False, None, None, None)
    assert (rows["0001"].conflicts, rows["0001"].overlaps) == ((), ())


def test_an_octopus_is_a_branch_like_any_other(repo: Repo) -> None:
    """Its commits are counted once each."""
    tips = [grow(repo, f"side-{number}", "main", {f"{number}": "x\n"}) for number in range(3)]
    grow(repo, "ralph/a3f2", tips[0], {"more": "x\n"}, merging=tips[1:])
    row = rows_of(repo)["a3f2"]
    assert (row.ahead, row.files, row.merged, row.conflicts_main) == (4, 2, False, False)


def test_a_base_that_is_gone_is_replaced_by_the_merge_base(repo: Repo) -> None:
    """As if nothing had been recorded."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    record(repo, "a3f2", "1" * 40)
    assert rows_of(repo)["a3f2"].base == repo.head


def test_without_a_main_branch_all_branches_are_shown(repo: Repo) -> None:
    """What depends on it is not known, and that is said once."""
    repo.git("checkout", "--quiet", "-b", "ralph/a3f2")
    repo.git("branch", "-D", "main")
    found = look_at(repo)
    assert [row[5:16] for row in found.rows] == [(None,) * 6 + (None,) * 5]
    assert (found.main, len(found.notes)) == (None, 1)


def test_a_configured_main_branch_is_used(repo: Repo) -> None:
    """And missed, if it is not there."""
    (repo.path / ".ralph").mkdir()
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    (repo.path / ".ralph" / "config.toml").write_text('main = "ralph/a3f2"\n')
    assert rows_of(repo)["a3f2"].merged is True
    (repo.path / ".ralph" / "config.toml").write_text('main = "elsewhere"\n')
    with pytest.raises(NotFoundError, match="elsewhere"):
        look_at(repo)


def test_a_branch_whose_commit_is_missing_is_shown(repo: Repo) -> None:
    """Nothing but its name is known; the others are as they are."""
    grow(repo, "ralph/0001", "main", {"new": "new\n"})
    (repo.path / ".git" / "refs" / "heads" / "ralph" / "a3f2").write_text("1" * 40 + "\n")
    rows = rows_of(repo)
    assert (rows["a3f2"].ahead, rows["a3f2"].merged, rows["a3f2"].committed) == (None, None, None)
    assert (rows["0001"].ahead, rows["0001"].merged) == (1, False)


@pytest.mark.parametrize("missing", ["ralph/0001-wip", "ralph/0001-wip^2"])
def test_saved_work_whose_commit_is_missing_is_left(repo: Repo, missing: str) -> None:
    """Its content is unknown."""
    repo.git("branch", "ralph/0001")
    grow(repo, "index", "main", {})
    grow(repo, "ralph/0001-wip", "main", {"new": "new\n"}, merging=["index"])
    gone = repo.git("rev-parse", missing)
    repo.git("branch", "-D", "index")
    (repo.path / ".git" / "objects" / gone[:2] / gone[2:]).unlink()
    assert unmerged(repo) == ["ralph/0001"]


def test_names_in_any_script_are_shown(repo: Repo) -> None:
    """Of branches and of files; bytes that are no text, too."""
    for name in ("ralph/työ", "ralph/作業", "ralph/عمل"):
        grow(repo, name, "main", {"日本語/ü.txt": name, "tab\there": name})
    os.sync()
    packed = repo.path / ".git" / "packed-refs"
    packed.write_bytes(f"{repo.head} ".encode() + b"refs/heads/ralph/\xff\n")
    rows = rows_of(repo)
    assert rows["ralph/\udcff"].merged is True
    assert sorted(rows["ralph/työ"].conflicts or ()) == sorted(["ralph/作業", "ralph/عمل"])
    assert '"ralph/\\udcff"' in json.dumps([row._asdict() for row in rows.values()])


def test_ten_thousand_commits_are_counted(repo: Repo) -> None:
    """Without a process, or a set, for each of them."""
    commits = [
        Grown("ralph/a3f2", [number - 1] if number else ["main"], {"n": f"{number}\n"})
        for number in range(10_000)
    ]
    grow_all(repo, commits)
    row = rows_of(repo)["a3f2"]
    assert (row.ahead, row.behind, row.files, row.insertions) == (10_000, 0, 1, 1)


def test_without_a_repository_there_is_no_review(tmp_path: Path) -> None:
    """The exit status says so."""
    with pytest.raises(NotARepositoryError):
        review.look(project.find_project(tmp_path, os.environ))
