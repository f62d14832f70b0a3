"""``ralph-wrap review``: what each branch is against the main branch and the others, as git would say."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches import compare as comparing
from ralph_wrap.branches.temporary_objects import scratch_directory
from ralph_wrap.commands import review
from ralph_wrap.errors import NotARepositoryError, NotFoundError, UsageError
from ralph_wrap.interfaces.cli.review import table
from ralph_wrap.state import check_results, project
from ralph_wrap.system import files, process
from tests.support.grown import Grown, grow, grow_all, record
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.commands.review import Review, ReviewRow

TEXT = "".join(f"line {number}\n" for number in range(30))


def _look(repo: Repo) -> Review:
    return review.look(project.find_project(repo.path, os.environ))


def _rows(repo: Repo) -> dict[str, ReviewRow]:
    return {row.id or row.branch: row for row in _look(repo).rows}


def _changed(number: int, words: str = "changed") -> str:
    return TEXT.replace(f"line {number}\n", f"{words} {number}\n")


# One row


def test_a_row_tells_everything_of_a_branch(repo: Repo) -> None:
    """What its session has recorded, and what git knows."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", base, {"file.txt": _changed(3)}, {"new": "one\ntwo\n"})
    grow(repo, "ralph/a3f2-wip", "ralph/a3f2", {"more": "more\n"})
    grow(repo, "main", "main", {"other": "other\n"})
    record(repo, "a3f2", base, ended_by="max-cost")
    tip = repo.git("rev-parse", "ralph/a3f2")
    run = repo.path / ".ralph" / "run"
    check_results.keep(
        run, tip, check_results.CheckResult(1, "main", "0" * 40, "2026-01-02T03:04:05+00:00", "hash")
    )
    assert [row._asdict() for row in _look(repo).rows] == [
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
            "no_commits": False,
            "saved_open": False,
            "belongs_to": None,
        }
    ]


def test_the_newest_comes_first(repo: Repo) -> None:
    """By the end of its session, or by its last commit if that is not known."""
    for name in ("0001", "0002", "0003"):
        repo.git("branch", f"ralph/{name}")
    record(repo, "0001", repo.head, ended="2026-03-01T00:00:00+00:00")
    record(repo, "0003", repo.head, ended="2026-02-01T00:00:00+00:00")
    assert [*_rows(repo)] == ["0001", "0003", "0002"]


def test_a_renamed_file_is_one_file(repo: Repo) -> None:
    """As git diff --stat has it; lines of binary files do not count."""
    grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", "main", {"file.txt": None, "renamed": _changed(2), "picture": b"\0\1"})
    row = _rows(repo)["a3f2"]
    assert (row.files, row.insertions, row.deletions) == (2, 1, 1)


@pytest.mark.parametrize("ended", [7, None, "yesterday", "9999-99-99T00:00:00+00:00x", "\x1b[2J"])
def test_a_report_that_somebody_has_written_does_no_harm(repo: Repo, ended: object) -> None:
    """What is no time is none, what is no word is none."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, ended=ended, ended_by=["x"], agent={"a": 1})
    row = _rows(repo)["a3f2"]
    assert (row.ended, row.ended_by, row.agent, row.recorded) == (None, None, None, True)


# Merged


def _landing(repo: Repo) -> str:
    """Make a branch of two commits, and let the main branch go on; return where the branch started."""
    base = grow(repo, "main", "main", {"file.txt": TEXT, "other": TEXT})
    grow(repo, "ralph/a3f2", base, {"file.txt": _changed(3)}, {"other": _changed(20), "new": "new\n"})
    grow(repo, "main", "main", {"file.txt": _changed(28, "meanwhile")})
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
    assert _rows(repo)["a3f2"].merged is False
    repo.git(*how)
    repo.commit("landed")
    assert _rows(repo)["a3f2"].merged is True
    grow(repo, "main", "main", {"file.txt": TEXT.replace("line 3\n", "later\n"), "new": "later\n"})
    row = _rows(repo)["a3f2"]
    assert (row.merged, row.conflicts_main, row.conflicts, row.overlaps) == (True, False, (), ())


def test_a_branch_without_commits_of_its_own_is_merged(repo: Repo) -> None:
    """The main branch has all of it."""
    repo.git("branch", "ralph/a3f2")
    repo.commit("later")
    row = _rows(repo)["a3f2"]
    assert (row.merged, row.ahead, row.behind, row.files) == (True, 0, 1, 0)


def _unmerged(repo: Repo) -> list[str]:
    return [row.branch for row in review.limited(_look(repo).rows, "unmerged")]


def _main_column(repo: Repo) -> dict[str, str]:
    names, *lines = [line.split("  ") for line in table(_look(repo).rows, NOW).split("\n")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (names, *lines)]
    return {line[0]: line[cells[0].index("MAIN")] for line in cells[1:]}


def test_a_branch_that_got_no_commit_is_not_called_merged(repo: Repo) -> None:
    """As far as its session has recorded where it began, whether that still runs or not."""
    first = repo.head
    grow(repo, "ralph/0001", "main", {"new": "new\n"})
    repo.git("branch", "ralph/0002")
    repo.git("branch", "ralph/0003")
    record(repo, "0001", first)
    record(repo, "0002", first)
    repo.git("merge", "--quiet", "ralph/0001")
    assert _main_column(repo) == {"ralph/0001": "merged", "ralph/0002": "no commits", "ralph/0003": "merged"}
    assert {row.merged for row in _look(repo).rows} == {True}
    live = ROW._replace(verdict="live", merged=True, no_commits=True, ahead=0)
    assert "  no commits  " in table([live], NOW)


def test_saved_work_without_commits_is_not_merged(repo: Repo) -> None:
    """It is listed as long as something of it is not on the main branch."""
    grow(repo, "main", "main", {"file.txt": TEXT})
    repo.git("branch", "ralph/0001")
    grow(repo, "index", "main", {})
    grow(repo, "ralph/0001-wip", "main", {"new": "new\n"}, merging=["index"])
    repo.git("branch", "ralph/0002")
    assert _unmerged(repo) == ["ralph/0001"]
    grow(repo, "main", "main", {"file.txt": _changed(3)}, {"new": "new\n"})
    assert _unmerged(repo) == []


def test_saved_work_of_a_branch_that_has_landed_is_not_merged(repo: Repo) -> None:
    """However it has landed; what differs in nothing from its branch is no work."""
    _landing(repo)
    grow(repo, "ralph/a3f2-wip", "ralph/a3f2", {"more": "more\n"})
    grow(repo, "ralph/0001", "main", {"one": "one\n"})
    grow(repo, "ralph/0001-wip", "ralph/0001", {})
    repo.git("merge", "--squash", "--quiet", "ralph/a3f2")
    repo.commit("landed")
    repo.git("cherry-pick", "ralph/0001")
    assert {row.merged for row in _look(repo).rows} == {True}
    assert _unmerged(repo) == ["ralph/a3f2"]


def test_what_was_staged_besides_is_saved_work_of_its_own(repo: Repo) -> None:
    """The main branch has the files, but not what is on the second parent alone."""
    base = repo.head
    for name, staged in (("0001", "other\n"), ("0002", "new\n")):
        repo.git("branch", f"ralph/{name}")
        grow(repo, f"index-{name}", base, {"new": staged})
        grow(repo, f"ralph/{name}-wip", base, {"new": "new\n", "file": "x\n"}, merging=[f"index-{name}"])
    grow(repo, "main", "main", {"new": "new\n", "file": "x\n"})
    assert _unmerged(repo) == ["ralph/0001"]


def test_a_change_that_the_main_branch_has_anyhow_is_merged(repo: Repo) -> None:
    """Merging would change nothing, though no patch is like another."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    both = TEXT.replace("line 3\n", "three\n").replace("line 20\n", "twenty\n")
    grow(repo, "ralph/a3f2", base, {"file.txt": TEXT.replace("line 3\n", "three\n")})
    grow(repo, "main", "main", {"file.txt": both})
    assert _rows(repo)["a3f2"].merged is True


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"file.txt": _changed(3)}, {"file.txt": _changed(3, "other")}),
        (
            {"file.txt": TEXT.replace("line 3\n", "  line 3\n")},
            {"file.txt": TEXT.replace("line 3\n", "line  3\n")},
        ),
        ({"picture": b"\0one"}, {"picture": b"\0two"}),
        ({"file.txt": _changed(3), "new": "new\n"}, {"file.txt": _changed(3)}),
        ({"file.txt": _changed(3)}, {"file.txt": None}),
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
    assert _rows(repo)["a3f2"].merged is False


def test_a_patch_that_was_there_before_the_branch_does_not_make_it_merged(repo: Repo) -> None:
    """The main branch has taken it back since: the branch is about doing it again."""
    grow(repo, "main", "main", {"file.txt": TEXT}, {"file.txt": _changed(3)}, {"file.txt": TEXT})
    grow(repo, "ralph/a3f2", "main", {"file.txt": _changed(3)})
    grow(repo, "main", "main", {"other": "later\n"})
    assert _rows(repo)["a3f2"].merged is False


def test_commits_that_come_to_nothing_are_not_merged(repo: Repo) -> None:
    """Nobody else has them, and nothing else is like them."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"}, {"new": None})
    grow(repo, "ralph/09be", "main", {})
    grow(repo, "main", "main", {"other": "later\n"}, {})
    assert [row.merged for row in _rows(repo).values()] == [False, False]


# Conflicts


def test_conflicts_and_overlaps_are_between_branches_that_are_not_merged(repo: Repo) -> None:
    """An overlap is a file that both change; it need not be a conflict."""
    base = grow(repo, "main", "main", {"file.txt": TEXT, "other": TEXT})
    grow(repo, "ralph/0001", base, {"file.txt": _changed(3)})
    grow(repo, "ralph/0002", base, {"file.txt": _changed(3, "otherwise")})
    grow(repo, "ralph/0003", base, {"file.txt": _changed(20)})
    grow(repo, "ralph/0004", base, {"new": "new\n"})
    grow(repo, "ralph/foo", base, {"new": "other\n"})
    grow(repo, "ralph/0005", base, {"other": _changed(5)})
    grow(repo, "main", "main", {"other": _changed(5)}, {"file.txt": _changed(20, "main")})
    found = {
        name: (row.conflicts_main, row.conflicts, row.overlaps) for name, row in sorted(_rows(repo).items())
    }
    assert found == {
        "0001": (False, ("0002",), ("0002", "0003")),
        "0002": (False, ("0001",), ("0001", "0003")),
        "0003": (True, (), ("0001", "0002")),
        "0004": (False, ("ralph/foo",), ("ralph/foo",)),
        "0005": (False, (), ()),
        "ralph/foo": (False, ("0004",), ("0004",)),
    }


def test_two_branches_of_one_tip_overlap_and_do_not_conflict(repo: Repo) -> None:
    """They are the same."""
    grow(repo, "ralph/0001", "main", {"new": "new\n"})
    repo.git("branch", "ralph/0002", "ralph/0001")
    rows = _rows(repo)
    assert [(rows[name].conflicts, rows[name].overlaps) for name in ("0001", "0002")] == [
        ((), ("0002",)),
        ((), ("0001",)),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_conflicts_are_what_git_says_of_every_pair(repo: Repo, seed: int) -> None:
    """Also where one has a file and the other a directory, or renames what the other one adds to."""
    random = Random(seed)  # noqa: S311 -- the same repository each time
    paths = [f"{top}/{below}/{name}" for top in "ab" for below in "xy" for name in ("one", "two")]
    base = grow(repo, "main", "main", {path: f"{path}\n{TEXT}" for path in paths})
    commits = []
    for name in ("main", *(f"ralph/{number:04x}" for number in range(9))):
        files: dict[str, str | bytes | None] = {}
        for _ in range(random.randrange(1, 3)):
            path = random.choice(paths)
            match random.randrange(5):
                case 0:
                    files[path] = f"{path}\n{_changed(random.randrange(3), name)}"
                case 1:
                    files[path] = None
                case 2:
                    files[f"{path.rpartition('/')[0]}/new-{random.randrange(2)}"] = f"{name}\n"
                case 3:
                    files[random.choice(("a", "a/x", "new"))] = f"{name}\n"
                case _:
                    old = path.rpartition("/")[0]
                    files |= {other: None for other in paths if other.startswith(old)}
                    files |= {
                        f"moved/{other}": f"{other}\n{TEXT}" for other in paths if other.startswith(old)
                    }
        commits.append(Grown(name, [base], files))
    tips = dict(zip((one.branch for one in commits), grow_all(repo, commits), strict=True))

    def clash(one: str, other: str) -> bool:
        merged = repo.git("merge-tree", "--write-tree", "--name-only", tips[one], tips[other], check=False)
        return "\n" in merged

    rows = {row.branch: row for row in _look(repo).rows}
    open_ones = sorted(name for name, row in rows.items() if not row.merged)
    assert {name: (rows[name].conflicts_main, sorted(rows[name].conflicts or ())) for name in open_ones} == {
        name: (
            clash("main", name),
            [
                other.removeprefix("ralph/")
                for other in open_ones
                if other != name and tips[other] != tips[name] and clash(name, other)
            ],
        )
        for name in open_ones
    }


def test_a_review_leaves_nothing_behind(repo: Repo) -> None:
    """Merges are tried outside the repository."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    grow(repo, "ralph/0001", base, {"file.txt": _changed(3)})
    grow(repo, "ralph/0002", base, {"file.txt": _changed(20)})
    grow(repo, "main", "main", {"file.txt": _changed(12)})
    before = (repo.git("count-objects", "-v"), repo.fingerprint())
    assert _rows(repo)["0001"].conflicts_main is False
    assert (repo.git("count-objects", "-v"), repo.fingerprint()) == before


def test_what_a_killed_review_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """Not what somebody still holds, has just made, or what only looks like it."""
    old, held, young, link = (tmp_path / f"ralph-wrap-merges-{name}" for name in ("a", "b", "c", "d"))
    other = tmp_path / "other"
    for directory in (old, held, young, other):
        directory.mkdir()
        (directory / "file").touch()
        if directory != young:
            os.utime(directory, (0, 0))
    link.symlink_to(other)
    lock = files.try_lock(held)
    assert lock is not None
    with scratch_directory(tmp_path) as made:
        assert {path.name for path in tmp_path.glob("ralph-wrap-*")} == {
            held.name,
            young.name,
            link.name,
            made.name,
        }
    lock.release()
    assert (other / "file").exists()
    assert not made.exists()


def test_the_number_of_git_processes_does_not_grow_with_the_branches(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question is asked once for all of them."""
    base = grow(repo, "main", "main", {"file.txt": TEXT})
    started = 0
    start = process.RunningCommand.__init__

    def counted(*arguments: object, **named: object) -> None:
        nonlocal started
        started += 1
        start(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(process.RunningCommand, "__init__", counted)
    numbers = []
    grow(repo, "main", "main", {"file.txt": _changed(1)}, {"file.txt": _changed(2)})
    for first in (11, 22, 44):  # more than the few pairs that are tried before the others, each time
        some = range(first, first * 2)
        commits = [
            Grown(f"ralph/{number:04x}", [base if number % 2 else "main"], {"file.txt": _changed(number)})
            for number in some
        ]
        grow_all(repo, commits)
        started = 0
        _look(repo)
        numbers.append(started)
    assert numbers == [numbers[0]] * 3
    assert numbers[0] < 20


def test_without_a_git_that_can_tell_conflicts_are_unknown(repo: Repo) -> None:
    """Everything else is told, and that is said once."""
    grow(repo, "ralph/0001", "main", {"file.txt": "one\n"})
    place = project.find_project(repo.path, os.environ)
    assert place.repository is not None
    older = place._replace(repository=place.repository._replace(git_version=(2, 38, 5)))
    found = review.look(older)
    assert [(row.ahead, row.conflicts_main, row.conflicts, row.overlaps) for row in found.rows] == [
        (1, None, None, ())
    ]
    assert found.notes == ("conflicts are unknown: git before 2.39 cannot try merges without a checkout",)


def test_too_many_pairs_are_not_tried(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whom not all were tried nothing is said."""
    monkeypatch.setattr(comparing, "MOST_PAIRS", 1)
    for number in range(3):
        grow(repo, f"ralph/{number:04x}", "main", {"new": f"{number}\n"})
    grow(repo, "ralph/0004", "main", {"else": "else\n"})
    found = _look(repo)
    assert {row.id: row.conflicts for row in found.rows} == {
        **dict.fromkeys(("0000", "0001", "0002")),
        "0004": (),
    }
    assert found.notes == (
        "conflicts of 3 branches are unknown: more than 1 pairs of branches touch the same files",
    )


# Bad input


def test_a_branch_with_a_root_of_its_own_has_no_merge_base(repo: Repo) -> None:
    """It is shown; what would need one is not known."""
    grow(repo, "ralph/a3f2", None, {"new": "new\n"}, {"new": "more\n"})
    grow(repo, "ralph/0001", "main", {"new": "other\n"})
    rows = _rows(repo)
    assert rows["a3f2"][5:16] == (None, 2, None, None, None, None, None, False, None, None, None)
    assert (rows["0001"].conflicts, rows["0001"].overlaps) == ((), ())


def test_an_octopus_is_a_branch_like_any_other(repo: Repo) -> None:
    """Its commits are counted once each."""
    tips = [grow(repo, f"side-{number}", "main", {f"{number}": "x\n"}) for number in range(3)]
    grow(repo, "ralph/a3f2", tips[0], {"more": "x\n"}, merging=tips[1:])
    row = _rows(repo)["a3f2"]
    assert (row.ahead, row.files, row.merged, row.conflicts_main) == (4, 2, False, False)


def test_a_base_that_is_gone_is_replaced_by_the_merge_base(repo: Repo) -> None:
    """As if nothing had been recorded."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    record(repo, "a3f2", "1" * 40)
    assert _rows(repo)["a3f2"].base == repo.head


def test_without_a_main_branch_all_branches_are_shown(repo: Repo) -> None:
    """What depends on it is not known, and that is said once."""
    repo.git("checkout", "--quiet", "-b", "ralph/a3f2")
    repo.git("branch", "-D", "main")
    found = _look(repo)
    assert [row[5:16] for row in found.rows] == [(None,) * 6 + (None,) * 5]
    assert (found.main, len(found.notes)) == (None, 1)


def test_a_configured_main_branch_is_used(repo: Repo) -> None:
    """And missed, if it is not there."""
    (repo.path / ".ralph").mkdir()
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    (repo.path / ".ralph" / "config.toml").write_text('main = "ralph/a3f2"\n')
    assert _rows(repo)["a3f2"].merged is True
    (repo.path / ".ralph" / "config.toml").write_text('main = "elsewhere"\n')
    with pytest.raises(NotFoundError, match="elsewhere"):
        _look(repo)


def test_a_branch_whose_commit_is_missing_is_shown(repo: Repo) -> None:
    """Nothing but its name is known; the others are as they are."""
    grow(repo, "ralph/0001", "main", {"new": "new\n"})
    (repo.path / ".git" / "refs" / "heads" / "ralph" / "a3f2").write_text("1" * 40 + "\n")
    rows = _rows(repo)
    assert (rows["a3f2"].ahead, rows["a3f2"].merged, rows["a3f2"].committed) == (None, None, None)
    assert (rows["0001"].ahead, rows["0001"].merged) == (1, False)


@pytest.mark.parametrize("missing", ["ralph/0001-wip", "ralph/0001-wip^2"])
def test_saved_work_whose_commit_is_missing_is_left(repo: Repo, missing: str) -> None:
    """Nobody knows what was in it."""
    repo.git("branch", "ralph/0001")
    grow(repo, "index", "main", {})
    grow(repo, "ralph/0001-wip", "main", {"new": "new\n"}, merging=["index"])
    gone = repo.git("rev-parse", missing)
    repo.git("branch", "-D", "index")
    (repo.path / ".git" / "objects" / gone[:2] / gone[2:]).unlink()
    assert _unmerged(repo) == ["ralph/0001"]


def test_names_in_any_script_are_shown(repo: Repo) -> None:
    """Of branches and of files; bytes that are no text, too."""
    for name in ("ralph/työ", "ralph/作業", "ralph/عمل"):
        grow(repo, name, "main", {"日本語/ü.txt": name, "tab\there": name})
    os.sync()
    packed = repo.path / ".git" / "packed-refs"
    packed.write_bytes(f"{repo.head} ".encode() + b"refs/heads/ralph/\xff\n")
    rows = _rows(repo)
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
    row = _rows(repo)["a3f2"]
    assert (row.ahead, row.behind, row.files, row.insertions) == (10_000, 0, 1, 1)


def test_without_a_repository_there_is_no_review(tmp_path: Path) -> None:
    """That is told by its own status."""
    with pytest.raises(NotARepositoryError):
        review.look(project.find_project(tmp_path, os.environ))


# Limits, order, print


ROW = review.ReviewRow(
    id="a3f2",
    branch="ralph/a3f2",
    agent="claude",
    ended_by="promise",
    ended="2026-01-02T03:04:05+00:00",
    base="1" * 40,
    ahead=2,
    behind=1,
    files=3,
    insertions=30,
    deletions=4,
    saved=None,
    merged=False,
    conflicts_main=False,
    conflicts=(),
    overlaps=("09be",),
    recorded=True,
)


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (None, ["live", "merged", "main", "pair", "none"]),
        ("live", ["live"]),
        ("unmerged", ["live", "main", "pair", "none"]),
        ("conflicting", ["main", "pair"]),
    ],
)
def test_a_list_is_limited(only: str | None, found: list[str]) -> None:
    """To what is worked on, what is to land, what needs a hand."""
    rows = [
        ROW._replace(branch="live", verdict="live"),
        ROW._replace(branch="merged", merged=True),
        ROW._replace(branch="main", conflicts_main=True),
        ROW._replace(branch="pair", conflicts=("09be",)),
        ROW._replace(branch="none", merged=None, conflicts_main=None, conflicts=None),
    ]
    assert [row.branch for row in review.limited(rows, only)] == found


@pytest.mark.parametrize(
    ("field", "found"),
    [
        (None, "abc"),
        ("ahead", "cab"),
        ("-ahead", "acb"),
        ("overlaps", "bac"),
        ("branch", "abc"),
        ("-branch", "cba"),
    ],
)
def test_a_list_is_sorted(field: str | None, found: str) -> None:
    """By any field, lists by their length; what is not known comes last."""
    rows = [
        ROW._replace(branch="a", ahead=10, overlaps=("x",)),
        ROW._replace(branch="b", ahead=None, overlaps=()),
        ROW._replace(branch="c", ahead=9, overlaps=("x", "y")),
    ]
    assert "".join(row.branch for row in review.ordered(rows, field)) == found


@pytest.mark.parametrize(("only", "sort"), [("merged", None), (None, "size"), (None, "--ahead"), (None, "")])
def test_a_mistake_is_told(only: str | None, sort: str | None) -> None:
    """With what there is to choose from."""
    with pytest.raises(UsageError):
        review.ordered(review.limited([ROW], only), sort)


NOW = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


def test_a_table_is_columns() -> None:
    """Which a pipe can take: nothing but text."""
    rows = [
        ROW,
        ROW._replace(branch="ralph/作業", agent=None, recorded=False, conflicts_main=True),
        ROW._replace(branch="ralph/0001", verdict="live", merged=True, saved="ralph/0001-wip", overlaps=()),
        ROW._replace(branch="ralph/0002", ended=None, conflicts=None, conflicts_main=None, files=None),
    ]
    assert table(rows, NOW).split("\n") == [
        (
            "BRANCH      AGENT         STATE    AGE  AHEAD  BEHIND  FILES  LINES   "
            "SAVED  MAIN      CONFLICTS  OVERLAPS"
        ),
        (
            "ralph/a3f2  claude        promise  2h   2      1       3      +30 -4  "
            "no     clean     -          09be"
        ),
        (
            "ralph/作業  not recorded  promise  2h   2      1       3      +30 -4  no"
            "     conflict  -          09be"
        ),
        (
            "ralph/0001  claude        live     2h   2      1       3      +30 -4  "
            "yes    merged    -          -"
        ),
        (
            "ralph/0002  claude        promise  -    2      1       -      -       "
            "no     -         -          09be"
        ),
    ]


def test_lists_give_way_on_a_narrow_terminal() -> None:
    """Lines are cut where that is not enough, and coloured."""
    wide = ROW._replace(overlaps=tuple(f"{number:04x}" for number in range(100)), conflicts_main=True)
    assert table([wide], NOW, width=120, colour=True).split("\n") == [
        (
            "BRANCH      AGENT   STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED "
            " MAIN      CONFLICTS  OVERLAPS"
        ),
        (
            "\x1b[31mralph/a3f2  claude  promise  2h   2      1       3      +30 -4"
            "  no     conflict  -          0000,0001,0002,0003,0004,00…\x1b[0m"
        ),
    ]
    assert table([wide], NOW, width=80).split("\n") == [
        "BRANCH      AGENT  STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED  MAIN     …",
        "ralph/a3f2  clau…  promise  2h   2      1       3      +30 -4  no     conflict …",
    ]


def test_a_long_command_gives_way_before_lists() -> None:
    """Cut by what its letters take; without a terminal it is whole."""
    rows = [ROW._replace(agent="./作業.sh 作業 " * 8), ROW]
    assert table(rows, NOW, width=101).split("\n") == [
        (
            "BRANCH      AGENT         STATE    AGE  AHEAD  BEHIND  FILES  LINES   SAVED  MAIN   "
            "CONFLICTS  OVERL…"
        ),
        "ralph/a3f2  ./作業.sh …   promise  2h   2      1       3      +30 -4  no     clean  -          09be",
        "ralph/a3f2  claude        promise  2h   2      1       3      +30 -4  no     clean  -          09be",
    ]
    assert table(rows, NOW).split("\n")[1].count("./作業.sh 作業 ") == 8


def test_the_branch_that_saved_work_belongs_to_has_a_column() -> None:
    """Where there is such a branch."""
    row = ROW._replace(branch="ralph/6732-wip", belongs_to="ralph/a587\n")
    assert [line.partition("OVERLAPS  ")[2] or line[-19:] for line in table([row, ROW], NOW).split("\n")] == [
        "BELONGS TO",
        "be      ralph/a587?",
        "        09be      -",
    ]
    assert "BELONGS TO" not in table([ROW], NOW)


def test_what_agents_write_does_nothing_to_a_terminal() -> None:
    """Nor does it begin a line."""
    shown = table([ROW._replace(agent="\x1b[2J\n", branch="ralph/\u202efoo", overlaps=("ralph/\x9b",))], NOW)
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert shown.count("\n") == 1


def test_the_command_prints_an_envelope(repo: Repo) -> None:
    """Its data is the list."""
    grow(repo, "ralph/a3f2", "main", {"new": "new\n"})
    done = command("review", "--json", "--only", "unmerged", "--sort=-ahead", cwd=repo.path)
    answer = json.loads(done.stdout)
    assert (done.status, answer["success"], answer["tool"]) == (0, True, "review")
    assert [(row["id"], row["ahead"], row["conflicts"]) for row in answer["data"]] == [("a3f2", 1, [])]


def test_a_terminal_gets_colours_and_no_line_that_is_too_long(repo: Repo) -> None:
    """Unless it is told otherwise."""
    grow_all(repo, [Grown(f"ralph/{number:04x}", ["main"], {"new": "1\n"}) for number in range(20)])
    with Terminal(PROGRAM, "review", "--sort=id", cwd=repo.path, size=(24, 100)) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    assert (len(lines), {len(line) <= 100 for line in lines}) == (21, {True})
    piped = command("review", "--sort=id", cwd=repo.path, env={"COLUMNS": "40"})
    assert max(map(len, piped.stdout.decode().splitlines())) > 100
    plain = {"NO_COLOR": "1"}
    repo.git("branch", "ralph/merged")
    with Terminal(PROGRAM, "review", cwd=repo.path, env=plain) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b" not in terminal.screen
    with Terminal(PROGRAM, "review", cwd=repo.path) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b[2mralph/merged " in terminal.screen


def test_the_command_refuses_what_it_does_not_know(repo: Repo) -> None:
    """Before it looks at anything."""
    done = command("review", "--json", "--only", "merged", cwd=repo.path)
    assert (done.status, json.loads(done.stdout)["error"]["code"]) == (2, "usage")
