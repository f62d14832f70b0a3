"""``ralph-wrap review``: which branches are in conflict."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches import compare as comparing
from ralph_wrap.commands import review
from ralph_wrap.git.scratch import scratch_directory
from ralph_wrap.state import project
from ralph_wrap.system import files, process
from tests.support.histories import Grown, grow, grow_all
from tests.support.repo import Repo

if TYPE_CHECKING:
    from pathlib import Path

from tests.commands.review.reviewing import TEXT, changed, look_at, rows_of


def test_conflicts_and_overlaps_are_between_branches_that_are_not_merged(repo: Repo) -> None:
    """An overlap is a file that both change; it need not be a conflict."""
    base = grow(repo, "main", "main", {"file.txt": TEXT, "other": TEXT})
    grow(repo, "ralph/0001", base, {"file.txt": changed(3)})
    grow(repo, "ralph/0002", base, {"file.txt": changed(3, "otherwise")})
    grow(repo, "ralph/0003", base, {"file.txt": changed(20)})
    grow(repo, "ralph/0004", base, {"new": "new\n"})
    grow(repo, "ralph/foo", base, {"new": "other\n"})
    grow(repo, "ralph/0005", base, {"other": changed(5)})
    grow(repo, "main", "main", {"other": changed(5)}, {"file.txt": changed(20, "main")})
    found = {
        name: (row.conflicts_main, row.conflicts, row.overlaps) for name, row in sorted(rows_of(repo).items())
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
    rows = rows_of(repo)
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
                    files[path] = f"{path}\n{changed(random.randrange(3), name)}"
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

    def clash(branch: str, other: str) -> bool:
        merged = repo.git("merge-tree", "--write-tree", "--name-only", tips[branch], tips[other], check=False)
        return "\n" in merged

    rows = {row.branch: row for row in look_at(repo).rows}
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
    grow(repo, "ralph/0001", base, {"file.txt": changed(3)})
    grow(repo, "ralph/0002", base, {"file.txt": changed(20)})
    grow(repo, "main", "main", {"file.txt": changed(12)})
    before = (repo.git("count-objects", "-v"), repo.fingerprint())
    assert rows_of(repo)["0001"].conflicts_main is False
    assert (repo.git("count-objects", "-v"), repo.fingerprint()) == before


def test_what_a_killed_review_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """Not what a live review holds or has just made, nor what only looks like it."""
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
    with scratch_directory(tmp_path, "ralph-wrap-merges-") as made:
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
    grow(repo, "main", "main", {"file.txt": changed(1)}, {"file.txt": changed(2)})
    for first in (11, 22, 44):  # more than the few pairs that are tried before the others, each time
        some = range(first, first * 2)
        commits = [
            Grown(f"ralph/{number:04x}", [base if number % 2 else "main"], {"file.txt": changed(number)})
            for number in some
        ]
        grow_all(repo, commits)
        started = 0
        look_at(repo)
        numbers.append(started)
    assert numbers == [numbers[0]] * 3
    assert numbers[0] < 25


def test_without_a_git_that_can_tell_conflicts_are_unknown(repo: Repo) -> None:
    """The rest of the review is there, and one note says what is missing."""
    grow(repo, "ralph/0001", "main", {"file.txt": "one\n"})
    found_project = project.find_project(repo.path, os.environ)
    assert found_project.repository is not None
    older = found_project._replace(repository=found_project.repository._replace(git_version=(2, 38, 5)))
    found = review.look(older)
    assert [(row.ahead, row.conflicts_main, row.conflicts, row.overlaps) for row in found.rows] == [
        (1, None, None, ())
    ]
    assert found.notes == ("conflicts are unknown: git before 2.39 cannot try merges without a checkout",)


def test_too_many_pairs_are_not_tried(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """If some pairs of a branch were not tried, its row says nothing about conflicts."""
    monkeypatch.setattr(comparing, "MOST_PAIRS", 1)
    for number in range(3):
        grow(repo, f"ralph/{number:04x}", "main", {"new": f"{number}\n"})
    grow(repo, "ralph/0004", "main", {"else": "else\n"})
    found = look_at(repo)
    assert {row.id: row.conflicts for row in found.rows} == {
        **dict.fromkeys(("0000", "0001", "0002")),
        "0004": (),
    }
    assert found.notes == (
        "conflicts of 3 branches are unknown: more than 1 pairs of branches touch the same files",
    )
