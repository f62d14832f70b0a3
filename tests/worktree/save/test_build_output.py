"""Un-ignored output of a build is recognised, by directory."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save.build_output import MOST_BYTES, MOST_FILES, BuildOutput, find_build_output
from tests.git.repositories import git_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

MANY = MOST_FILES + 1


def _make(repo: Repo, directory: str, count: int) -> list[str]:
    """Make empty files in a few directories, and return their paths."""
    paths = [f"{directory}/{number % 7}/{number}" for number in range(count)]
    for number in range(7):
        (repo.path / directory / str(number)).mkdir(parents=True, exist_ok=True)
    for path in paths:
        (repo.path / path).touch()
    return paths


TABLE = {
    "one directory": ({"build/classes/main": MANY, "other": 1}, ["/build/"]),
    "below a tracked one": ({"src/node_modules": MANY, "src/new": 2}, ["/src/node_modules/"]),
    "two": ({"a": 3000, "b/out": 2500}, ["/a/", "/b/"]),
    "special characters": ({"[x]*": MANY}, ["/\\[x]\\*/"]),
    "not many": ({"build": MOST_FILES}, None),
}


@pytest.mark.parametrize("case", TABLE)
def test_many_files_are_named_by_directory(repo: Repo, case: str) -> None:
    """The highest one that has no tracked file."""
    made, rules = TABLE[case]
    repo.write("src/main.c", "x\n")
    repo.commit("tracked")
    new = [path for directory, count in made.items() for path in _make(repo, directory, count)]
    found = find_build_output(git_in(repo.path), new)
    assert (found and [*found.rules]) == rules


@pytest.mark.parametrize(("size", "rules"), [(MOST_BYTES, None), (MOST_BYTES + 1, ["/data/dump.sql"])])
def test_a_large_file_is_named(repo: Repo, size: int, rules: list[str] | None) -> None:
    """Its size counts, not the number of files beside it."""
    for name in ("data/small", "empty"):
        repo.write(name, "")
    repo.git("add", "data/small")
    with (repo.path / "data" / "dump.sql").open("wb") as file:
        os.truncate(file.fileno(), size)
    found = find_build_output(git_in(repo.path), ["empty", "data/dump.sql"])
    assert (found and [*found.rules]) == rules


@pytest.mark.parametrize("name", ["build", "[x]*", "!a", "#a", "a b", "b\\c", "ends "])
def test_git_obeys_the_line(repo: Repo, name: str) -> None:
    """Whatever the directory is called."""
    found = BuildOutput(MANY, 0, (f"{name}/",))
    repo.write(".gitignore", "\n".join(found.rules) + "\n")
    repo.write(f"{name}/file", "x\n")
    asked = subprocess.run(("git", "check-ignore", "-q", f"{name}/file"), cwd=repo.path, check=False)
    assert asked.returncode == 0


def test_files_that_git_cannot_list_are_no_reason_to_fail(repo: Repo, tmp_path: Path) -> None:
    """It only informs: what is wrong, the snapshot says."""
    elsewhere = git_in(repo.path)._replace(git_dir=tmp_path / "none")
    assert find_build_output(elsewhere, [f"out/{number}" for number in range(MANY)]) is None
