"""Row 24 of the attacks: a FIFO or a device in the place of a file that git opens."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import BlockingFileError, GitError
from ralph_wrap.git import (
    Git,
    command,
    git_environment,
    list_refs,
    list_worktrees,
    locate_repository,
    run_git,
)
from ralph_wrap.git.safe import blocking_files
from tests.support.merging import branch
from tests.support.sessions import command as ralph_wrap
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

OPENED_BY_ALL = (
    *("HEAD", "config", "packed-refs", "index", "shallow", "commondir"),
    *("info/attributes", "info/exclude", "objects/info/alternates", "objects/pack/multi-pack-index"),
)
FOUND_BY_A_SEARCH = ("refs/heads/agent", "refs/remotes/origin/main", "worktrees/one/HEAD")


def _replace(path: Path, make: Callable[[Path], object] = os.mkfifo) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    return path


def _use(git: Git) -> None:
    """Have git open what most commands open."""
    run_git(git, "status")
    run_git(git, "log", "--all", "--patch")


@pytest.mark.parametrize("name", OPENED_BY_ALL)
def test_a_file_that_many_commands_open_is_named(repo: Repo, name: str) -> None:
    """A walk finds it once a command runs longer than usual; with its directory unknown, too."""
    git = Git(repo.path, git_environment(os.environ))
    known = locate_repository(git).checkout(git)
    path = _replace(repo.path / ".git" / name)
    for asked in (git, known):
        with pytest.raises(BlockingFileError) as caught:
            _use(asked)
        assert (str(path) in caught.value.message, caught.value.hint.endswith(f"rm {path}")) == (True, True)


@pytest.mark.parametrize("name", FOUND_BY_A_SEARCH)
def test_a_command_that_hangs_is_ended_and_the_file_is_named(repo: Repo, name: str) -> None:
    """Git waits for the FIFO; the search, which comes after two seconds, finds it."""
    repo.git("worktree", "add", "-q", repo.path.parent / "one")
    path = _replace(repo.path / ".git" / name)
    git = Git(repo.path, git_environment(os.environ))
    with pytest.raises(BlockingFileError, match=str(path)):
        list_worktrees(git) if name.startswith("worktrees") else list_refs(git)


@pytest.mark.parametrize("key", ["include.path", "includeIf.onbranch:main.path", "core.excludesFile"])
def test_a_file_outside_the_repository_that_its_configuration_names(
    repo: Repo, tmp_path: Path, key: str
) -> None:
    """Git opens it in each command, or when it looks for files."""
    repo.git("config", key, str(tmp_path / "outside"))
    os.mkfifo(tmp_path / "outside")
    with pytest.raises(BlockingFileError, match=str(tmp_path / "outside")):
        run_git(Git(repo.path, git_environment(os.environ)), "status")


def test_a_borrowed_object_directory_is_searched(repo: Repo, tmp_path: Path) -> None:
    """Git opens each index of a pack there."""
    repo.write(".git/objects/info/alternates", f"{tmp_path}/others\n")
    path = _replace(tmp_path / "others/pack/pack-1.idx")
    places = blocking_files.places_of(repo.path)
    assert places is not None
    assert blocking_files.search(places) == str(path)


@pytest.mark.parametrize("name", ["packed-refs", "refs/heads/agent"])
def test_without_the_look_git_hangs(repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The defence is off: git ends only by the limit."""
    _replace(repo.path / ".git" / name)
    monkeypatch.setattr(blocking_files, "search", lambda _: None)
    monkeypatch.setattr(command, "PATIENCE", 3.0)
    with pytest.raises(GitError, match="no end after 3 s"):
        list_refs(Git(repo.path, git_environment(os.environ)))


@pytest.mark.parametrize("listing", [list_refs, list_worktrees])
def test_a_list_has_a_short_limit(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, listing: Callable[[Git], object]
) -> None:
    """If no search finds the FIFO, a list ends long before the limit of other commands, and only once."""
    repo.git("worktree", "add", "-q", repo.path.parent / "one")
    _replace(repo.path / ".git" / ("packed-refs" if listing is list_refs else "worktrees/one/HEAD"))
    monkeypatch.setattr(blocking_files, "search", lambda _: None)
    monkeypatch.setattr(command, "_LIST_PATIENCE", 0.5)
    begun = time.monotonic()
    with pytest.raises(GitError, match="no end after"):
        listing(Git(repo.path, git_environment(os.environ)))
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_a_worktree_with_such_rules_is_kept_and_the_file_is_named(repo: Repo, name: str) -> None:
    """Git status would hang at the save; the session ends within seconds, and its work stays."""
    script = f"echo work > work; mkfifo {name}"
    begun = time.monotonic()
    ended = ralph_wrap("run", "-n", "1", "--", "sh", "-c", script, cwd=repo.path)
    [worktree] = (repo.path / ".ralph/worktrees").iterdir()
    assert f"{worktree / name} is a FIFO" in ended.stderr
    assert (worktree / "work").read_text() == "work\n"
    for reader in ("sweep", "review"):
        assert ralph_wrap(reader, cwd=repo.path).status == 0
    refused = ralph_wrap("rm", worktree.name[-4:], cwd=repo.path)
    assert (refused.status, f"{worktree / name} is a FIFO" in refused.stderr) == (5, True)
    assert f"when this reason is gone: ralph-wrap rm {worktree.name[-4:]}" in refused.stderr
    assert time.monotonic() - begun < 3 * CAP
    (worktree / name).unlink()
    assert ralph_wrap("rm", worktree.name[-4:], cwd=repo.path).status == 0
    assert repo.git("show", f"ralph/{worktree.name[-4:]}-wip:work") == "work"


def test_a_device_blocks_and_the_null_device_does_not(tmp_path: Path) -> None:
    """A sandbox masks files by ``/dev/null``; a terminal would wait for its user."""
    places = blocking_files.GitPlaces(tmp_path, tmp_path, tmp_path, None)
    path = tmp_path / "packed-refs"
    path.symlink_to("/dev/null")
    assert blocking_files.search(places) is None
    _replace(path, lambda path: path.symlink_to("/dev/zero"))
    assert stat.S_ISCHR(path.stat().st_mode)
    assert blocking_files.search(places) == str(path)


def test_hooks_and_files_of_the_project_may_be_fifos(repo: Repo) -> None:
    """Git opens neither; it opens the rules in each directory, and what is below a nested ``.git``."""
    _replace(repo.path / ".git/hooks/pre-commit")
    _replace(repo.path / "pipe")
    places = blocking_files.places_of(repo.path)
    assert places is not None
    assert blocking_files.search(places) is None
    for name in ("below/.gitignore", "nested/.git/HEAD"):
        path = _replace(repo.path / name)
        assert blocking_files.search(places) == str(path)
        shutil.rmtree(path.parent)


COMMANDS = ("run -n 1 -- true", "review", "diff aaaa", "merge aaaa", "drop aaaa")


@pytest.mark.parametrize("name", ["packed-refs", "refs/heads/ralph/bbbb"])
@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_names_the_file(repo: Repo, words: str, name: str) -> None:
    """The file is named as it has to be typed to take it away."""
    branch(repo, "aaaa", {"new.txt": "new\n"})
    path = _replace(repo.path / ".git" / name)
    ended = ralph_wrap(*words.split(), cwd=repo.path)
    assert (ended.status, f"rm {path}" in ended.stderr) == (125, True), ended.stderr
