"""``ralph-wrap review``: which branches are merged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ralph_wrap.interfaces.cli.review import table
from tests.commands.review.reviewing import ROW, TEXT, changed, look_at, rows_of, unmerged
from tests.support.histories import grow, record
from tests.support.repo import Repo

NOW = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


# Merged


def _landing(repo: Repo) -> str:
    """Make a branch of two commits, and let the main branch go on; return where the branch started."""
    base = grow(repo, "main", "main", {"file.txt": TEXT, "other": TEXT})
    grow(repo, "ralph/a3f2", base, {"file.txt": changed(3)}, {"other": changed(20), "new": "new\n"})
    grow(repo, "main", "main", {"file.txt": changed(28, "meanwhile")})
    return base


@pytest.mark.parametrize(
    "how",
    [
        ("merge", "--no-ff", "--quiet", "-m", "merged", "ralph/a3f2"),
        ("cherry-pick", "main..ralph/a3f2"),
        ("merge", "--squash", "--quiet", "ralph/a3f2"),
    ],
    ids=lambda how: f"{how[0]} {how[1]}",
)
def test_what_has_landed_is_merged(repo: Repo, how: tuple[str, ...]) -> None:
    """By a merge, rebased, or squashed; also when the main branch has gone on since in the same lines."""
    _landing(repo)
    assert rows_of(repo)["a3f2"].merged is False
    repo.git(*how)
    repo.commit("landed")
    assert rows_of(repo)["a3f2"].merged is True
    grow(repo, "main", "main", {"file.txt": TEXT.replace("line 3\n", "later\n"), "new": "later\n"})
    row = rows_of(repo)["a3f2"]
    assert (row.merged, row.conflicts_main, row.conflicts, row.overlaps) == (True, False, (), ())


def test_a_branch_without_commits_of_its_own_is_merged(repo: Repo) -> None:
    """The main branch has all of it."""
    repo.git("branch", "ralph/a3f2")
    repo.commit("later")
    row = rows_of(repo)["a3f2"]
    assert (row.merged, row.ahead, row.behind, row.files) == (True, 0, 1, 0)


def _main_column(repo: Repo) -> dict[str, str]:
    names, *lines = [line.split("  ") for line in table(look_at(repo).rows, NOW).split("\n")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (names, *lines)]
    return {line[cells[0].index("BRANCH")]: line[cells[0].index("MAIN")] for line in cells[1:]}


def test_a_branch_that_got_no_commit_is_not_called_merged(repo: Repo) -> None:
    """As far as its session has recorded where it began, whether that still runs or not."""
    first = repo.head
    grow(repo, "ralph/0001", "main", {"new": "new\n"})
    repo.git("branch", "ralph/0002")
    repo.git("branch", "ralph/0003")
    record(repo, "0001", first)
    record(repo, "0002", first)
    repo.git("merge", "--quiet", "ralph/0001")
    assert _main_column(repo) == {
        "ralph/0001": "merged",
        "ralph/0002": "nothing to merge",
        "ralph/0003": "merged",
    }
    assert {row.merged for row in look_at(repo).rows} == {True}
    live = ROW._replace(verdict="live", merged=True, no_commits=True, ahead=0)
    assert "  nothing to merge  " in table([live], NOW)


def test_saved_work_without_commits_is_not_merged(repo: Repo) -> None:
    """It is listed as long as something of it is not on the main branch."""
    grow(repo, "main", "main", {"file.txt": TEXT})
    repo.git("branch", "ralph/0001")
    grow(repo, "index", "main", {})
    grow(repo, "ralph/0001-wip", "main", {"new": "new\n"}, merging=["index"])
    repo.git("branch", "ralph/0002")
    assert unmerged(repo) == ["ralph/0001"]
    grow(repo, "main", "main", {"file.txt": changed(3)}, {"new": "new\n"})
    assert unmerged(repo) == []


def test_saved_work_of_a_branch_that_has_landed_is_not_merged(repo: Repo) -> None:
    """However it has landed; what differs in nothing from its branch is no work."""
    _landing(repo)
    grow(repo, "ralph/a3f2-wip", "ralph/a3f2", {"more": "more\n"})
    grow(repo, "ralph/0001", "main", {"one": "one\n"})
    grow(repo, "ralph/0001-wip", "ralph/0001", {})
    repo.git("merge", "--squash", "--quiet", "ralph/a3f2")
    repo.commit("landed")
    repo.git("cherry-pick", "ralph/0001")
    assert {row.merged for row in look_at(repo).rows} == {True}
    assert unmerged(repo) == ["ralph/a3f2"]


def test_what_was_staged_besides_is_saved_work_of_its_own(repo: Repo) -> None:
    """The main branch has the files, but not what is on the second parent alone."""
    base = repo.head
    for name, staged in (("0001", "other\n"), ("0002", "new\n")):
        repo.git("branch", f"ralph/{name}")
        grow(repo, f"index-{name}", base, {"new": staged})
        grow(repo, f"ralph/{name}-wip", base, {"new": "new\n", "file": "x\n"}, merging=[f"index-{name}"])
    grow(repo, "main", "main", {"new": "new\n", "file": "x\n"})
    assert unmerged(repo) == ["ralph/0001"]


def test_a_change_that_the_main_branch_has_anyhow_is_merged(repo: Repo) -> None:
    """Merging would change nothing, though no patch is like another."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    both = TEXT.replace("line 3\n", "three\n").replace("line 20\n", "twenty\n")
    grow(repo, "ralph/a3f2", base, {"file.txt": TEXT.replace("line 3\n", "three\n")})
    grow(repo, "main", "main", {"file.txt": both})
    assert rows_of(repo)["a3f2"].merged is True


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"file.txt": changed(3)}, {"file.txt": changed(3, "other")}),
        (
            {"file.txt": TEXT.replace("line 3\n", "  line 3\n")},
            {"file.txt": TEXT.replace("line 3\n", "line  3\n")},
        ),
        ({"picture": b"\0one"}, {"picture": b"\0two"}),
        ({"file.txt": changed(3), "new": "new\n"}, {"file.txt": changed(3)}),
        ({"file.txt": changed(3)}, {"file.txt": None}),
    ],
    ids=["other lines", "white space", "binary", "a part", "deleted"],
)
def test_what_only_looks_alike_is_not_merged(
    repo: Repo, ours: dict[str, str | bytes | None], theirs: dict[str, str | bytes | None]
) -> None:
    """A branch that counts as merged can be dropped."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", base, ours)
    grow(repo, "main", "main", theirs)
    assert rows_of(repo)["a3f2"].merged is False


def test_a_patch_that_was_there_before_the_branch_does_not_make_it_merged(repo: Repo) -> None:
    """The main branch has taken it back since: the branch is about doing it again."""
    grow(repo, "main", "main", {"file.txt": TEXT}, {"file.txt": changed(3)}, {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", "main", {"file.txt": changed(3)})
    grow(repo, "main", "main", {"other": "later\n"})
    assert rows_of(repo)["a3f2"].merged is False


def test_commits_that_come_to_nothing_are_not_merged(repo: Repo) -> None:
    """No other branch has them, and nothing else is like them."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"}, {"new": None})
    grow(repo, "ralph/09be", "main", {})
    grow(repo, "main", "main", {"other": "later\n"}, {})
    assert [row.merged for row in rows_of(repo).values()] == [False, False]
