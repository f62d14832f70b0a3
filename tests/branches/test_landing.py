"""Where a merge lands, as ``review`` and ``merge`` say it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import branches
from ralph_wrap.branches import landing
from ralph_wrap.commands.merge import target_of
from ralph_wrap.errors import NotFoundError
from ralph_wrap.state import project
from ralph_wrap.system.log import lines_of
from tests.commands.review.reviewing import look_at
from tests.support.repo import make_repo

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")


def _notes(repo: Repo) -> list[str]:
    found = project.find_project(repo.path, os.environ)
    return landing.notes(found, branches.main_branch(found, None))


def _set_head(repo: Repo, name: str) -> None:
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{name}")


def test_a_branch_beside_main_is_named(repo: Repo) -> None:
    """A merge lands on what the main checkout has, which may be a feature branch."""
    repo.git("checkout", "-q", "-b", "feature")
    why = "which the main checkout has checked out, and branches are compared with it"
    note = f"a merge lands on feature, {why}; to land on main: ralph-wrap merge ID --into main"
    assert _notes(repo) == [note]
    assert note in look_at(repo).notes


def test_the_main_branch_needs_no_words(repo: Repo) -> None:
    """Neither main, nor the only branch, nor the one that the remote calls so."""
    assert _notes(repo) == []
    repo.git("branch", "-m", "trunk")
    assert _notes(repo) == []
    repo.git("branch", "main")
    repo.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
    _set_head(repo, "trunk")
    assert _notes(repo) == []


def test_a_configured_main_branch_needs_no_words(repo: Repo) -> None:
    """Its user has named it."""
    repo.git("checkout", "-q", "-b", "feature")
    repo.write(".ralph/config.toml", 'main = "feature"\n')
    assert look_at(repo).notes == ()


def test_a_branch_that_only_the_remote_has_is_told_with_the_ways_on(repo: Repo) -> None:
    """The local branch was renamed, or the remote's main branch."""
    repo.git("update-ref", "refs/remotes/origin/main", "HEAD")
    _set_head(repo, "main")
    repo.git("branch", "-m", "trunk")
    repo.git("checkout", "-q", "--detach")
    ways = [
        "if the remote has renamed its main branch: git remote set-head origin --auto",
        "to have it here: git branch main origin/main",
    ]
    why = "origin/HEAD names origin/main, and there is no local branch of this name"
    assert _notes(repo) == ["; ".join([f"a merge has no branch to land on: {why}", *ways])]
    with pytest.raises(NotFoundError, match="which is what origin/HEAD names") as caught:
        target_of(project.find_project(repo.path, os.environ), None, None)
    assert lines_of(caught.value.hint)[:2] == ways
    repo.git("branch", "main", "origin/main")  # the second way
    assert _notes(repo) == []


def test_a_remote_head_whose_branch_is_gone_is_named(repo: Repo) -> None:
    """As after git fetch --prune, when the remote has renamed its main branch."""
    _set_head(repo, "old")
    repo.git("checkout", "-q", "--detach")
    command = "git remote set-head origin --auto"
    assert _notes(repo) == [f"origin/HEAD names origin/old, which does not exist; to mend that: {command}"]
    repo.git("branch", "-m", "main", "trunk")
    with pytest.raises(NotFoundError, match="there is no main branch") as caught:
        _notes(repo)
    assert lines_of(caught.value.hint)[0] == f"if origin/HEAD is out of date (old): {command}"


def test_a_stale_remote_head_is_named_on_any_branch(repo: Repo) -> None:
    """Not on a detached HEAD alone: on the main branch, and on a feature branch beside it."""
    _set_head(repo, "old")
    stale = (
        "origin/HEAD names origin/old, which does not exist; to mend that: git remote set-head origin --auto"
    )
    assert _notes(repo) == [stale]
    repo.git("checkout", "-q", "-b", "feature")
    lands, named = _notes(repo)
    assert (lands.startswith("a merge lands on feature"), named) == (True, stale)


def test_a_remote_branch_with_the_name_of_an_option_can_be_had(repo: Repo) -> None:
    """``git branch`` refuses the name."""
    repo.git("update-ref", "refs/remotes/origin/-M", "HEAD")
    _set_head(repo, "-M")
    repo.git("branch", "-m", "trunk")
    repo.git("checkout", "-q", "--detach")
    way = _notes(repo)[0].partition("to have it here: ")[2]
    subprocess.run(("sh", "-c", way), cwd=repo.path, check=True)
    assert repo.git("rev-parse", "refs/heads/-M") == repo.head


def test_without_a_commit_the_first_one_is_missing(tmp_path: Path) -> None:
    """Not the name of a main branch."""
    repo = make_repo(tmp_path / "empty", empty=True)
    with pytest.raises(NotFoundError, match="has no commit yet"):
        _notes(repo)


def test_the_command_mends_a_stale_remote_head(repo: Repo, tmp_path: Path) -> None:
    """It asks the remote."""
    upstream = tmp_path / "upstream.git"
    repo.git("init", "-q", "--bare", str(upstream))
    repo.git("remote", "add", "origin", str(upstream))
    repo.git("branch", "-m", "trunk")
    repo.git("push", "-q", "origin", "trunk")
    repo.git("symbolic-ref", "HEAD", "refs/heads/trunk", cwd=upstream)
    _set_head(repo, "main")
    repo.git("checkout", "-q", "--detach")
    repo.git(*branches.SET_HEAD.split(" ")[1:])
    assert _notes(repo) == []
