"""Directories that are nested deeper than Python can call itself: one command of an agent makes them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.safe import blocking_files
from ralph_wrap.system import files
from tests.support.sessions import command, run
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

LEVELS = 1500
"""Python allows 1,000 calls in each other; a path has 4,096 bytes."""

MAKE = "mkdir -p {}/$(printf 'a/%.0s' $(seq {}))"


@pytest.fixture(autouse=True)
def _without_leftovers(tmp_path: Path) -> Iterator[None]:
    """Delete what pytest could not delete, for the same reason."""
    yield
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=False)  # a session deletes in the background


def _deep(directory: Path) -> Path:
    deepest = directory.joinpath(*["a"] * LEVELS)
    subprocess.run(["mkdir", "-p", deepest], check=True)
    return deepest


def test_a_walk_reaches_every_level(tmp_path: Path) -> None:
    """It finds a file at the end, and passes symlinks that lead to themselves or upwards."""
    deepest = _deep(tmp_path / "top")
    (deepest / "file").write_text("")
    (deepest / "upwards").symlink_to("..")
    (tmp_path / "top/loop").symlink_to("loop")
    assert {*files.files_below(tmp_path / "top")} == {deepest / "file", tmp_path / "top/loop"}


def test_a_blocking_file_is_found_below_them(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git waits for the FIFO at any depth, and the search names it."""
    monkeypatch.setattr(blocking_files, "_LONGEST_WALK", CAP)  # of a busy machine
    path = _deep(repo.path / "deep") / ".gitignore"
    os.mkfifo(path)
    places = blocking_files.places_of(repo.path)
    assert places is not None
    assert blocking_files.search(places) == str(path)


@pytest.mark.parametrize("where", [".", '"$(git rev-parse --git-dir)/logs"'])
def test_a_session_that_leaves_them_is_saved_and_its_worktree_removed(repo: Repo, where: str) -> None:
    """They are in the worktree, or in its registration, where a save looks for commits."""
    script = f"echo work > work; {MAKE.format(where, LEVELS)}"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", script)
    assert (ended.status, ended.report["kept"], ended.report["lost"]) == (0, None, None), ended.stderr
    assert repo.git("show", f"{ended.report['branch']}-wip:work") == "work"


def test_an_audit_sees_everything_beside_them(repo: Repo) -> None:
    """They hid what else an agent did, and the report said that nothing was found."""
    repo.write("AGENT", "the agent's\n")
    deep = MAKE.format(f"{repo.path}/.git/refs/heads", LEVELS)
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", f"git config core.pager evil; {deep}")
    pager = ".git/config: core.pager: git runs a program that this key names"
    assert ended.report["tampering"] == [pager], ended.stderr
    refused = command("merge", ended.report["id"], cwd=repo.path)
    assert (refused.status, "core.pager" in refused.stderr) == (9, True), refused.stderr
