"""Commits that an agent made on a detached HEAD: report, review and merge count and name them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.state import report
from tests.commands.review.reviewing import rows_of
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")

_COMMITS = """
    git checkout -q --detach
    echo 1 >> file.txt; git commit -qam one
    echo 2 >> file.txt; git commit -qam two
"""


def _session(repo: Repo, script: str) -> dict[str, Any]:
    done = run(repo.path, "-n", "1", "-p", "x", "--", "sh", "-c", script)
    assert done.status == 0
    return done.report


def _rows(found: dict[str, Any]) -> list[str]:
    """Return the rows of the exit report that name the work, and the commands."""
    read = report.SessionReport(**{name: value for name, value in found.items() if name != "version"})
    return report.summary(read, Path("output.log")).split("\n")[4:]


def test_commits_and_files_are_counted(repo: Repo) -> None:
    """The branch has none of them, and the commands lead to them."""
    found = _session(repo, f"{_COMMITS}echo 3 >> file.txt")
    name = found["id"]
    assert (found["commits"], found["saved_commits"], found["saved_paths"]) == (0, 2, ["file.txt"])
    rows = _rows(found)
    assert f"  saved      ralph/{name}-wip, 2 commits of a detached HEAD, 1 path not committed" in rows
    assert rows_of(repo)[name].saved_commits == 2


def test_commits_alone_are_counted(repo: Repo) -> None:
    """Without a file that is not committed, the saved work is the last commit itself."""
    found = _session(repo, _COMMITS)
    name = found["id"]
    assert (found["saved_commits"], found["saved_paths"]) == (2, [])
    rows = _rows(found)
    assert f"  saved      ralph/{name}-wip, 2 commits of a detached HEAD" in rows
    assert f"  next       ralph-wrap diff --saved {name}" in rows
    assert rows_of(repo)[name].saved_commits == 2


def test_saved_files_alone_have_no_commits(repo: Repo) -> None:
    """The branch has all commits."""
    found = _session(repo, "echo 1 >> file.txt; git commit -qam one; echo 2 >> file.txt")
    assert (found["commits"], found["saved_commits"]) == (1, 0)
    assert rows_of(repo)[found["id"]].saved_commits == 0


@pytest.mark.parametrize("left", ["", "echo 3 >> file.txt"])
def test_merge_names_them_and_how_to_land_them(repo: Repo, left: str) -> None:
    """The command lands the commits, and none of the files that were not committed."""
    found = _session(repo, f"{_COMMITS}{left}")
    merged = command("merge", found["id"], cwd=repo.path).stderr
    assert f"ralph/{found['id']}-wip holds 2 commits of a detached HEAD, not landed" in merged
    last = repo.git("rev-parse", f"ralph/{found['id']}-wip{'^' if left else ''}")
    assert f"to land the commits, on main: git merge {last[:12]}" in merged
    again = command("merge", found["id"], cwd=repo.path).stdout.decode()
    assert "nothing to do  main has the branch, but not 2 commits of a detached HEAD, already" in again
    repo.git("merge", "-q", last[:12])
    assert repo.git("log", "-1", "--format=%s") == "two"
    assert rows_of(repo)[found["id"]].saved_open is bool(left)
