"""The pool: what no warm worktree may show or lose."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system.files import try_lock
from tests.support.git_shim import shim_git
from tests.support.repo import make_repo
from tests.support.sessions import command
from tests.support.submodules import ALLOWED

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.worktree.pool.filling import configure, fill, run, settle, warm

pytestmark = pytest.mark.usefixtures("trusted")

# -- nothing of the session before --


def test_a_warm_worktree_shows_nothing_of_the_session_before(project: Repo, tmp_path: Path) -> None:
    """Neither files, nor ignored files, nor commits."""
    run(
        project,
        "echo work > work; mkdir build; echo x > build/x; echo y > a.log; git commit -qam x --allow-empty",
    )
    settle(tmp_path)
    result = run(project, "ls -A; git status --porcelain --ignored; git log --format=%s")
    names = [".git", ".gitignore", "changed", "dir", "file.txt", "removed", "same"]
    assert result.stdout.decode().splitlines() == [*names, "files", "first"]


def test_directories_are_kept_that_the_configuration_names(project: Repo, tmp_path: Path) -> None:
    """The next session finds what the one before has built, and nothing else of it."""
    configure(project, "pool = 1", 'pool_keep = ["build", "deep/build"]')
    run(project, "mkdir -p build deep/build; echo built > build/x; echo y > deep/build/y; echo z > a.log")
    settle(tmp_path)
    result = run(project, "cat build/x; ls -A . ; git status --porcelain")
    names = [".git", ".gitignore", "build", "changed", "dir", "file.txt", "removed", "same"]
    assert result.stdout.decode().splitlines() == ["built", *names]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        ("mkdir build; echo x > build/x", ""),
        ("mkdir elsewhere; echo x > elsewhere/x; ln -s elsewhere build", "build\nelsewhere/\n"),
    ],
    ids=["not ignored", "a link"],
)
def test_only_ignored_directories_are_kept(project: Repo, tmp_path: Path, make: str, rule: str) -> None:
    """What git does not ignore is work, which is saved; and no link is followed."""
    project.write(".gitignore", f".ralph/\n{rule}")
    project.commit("rule")
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    assert run(project, make).status == 0
    settle(tmp_path)
    assert b"build" not in run(project, "ls").stdout


def test_kept_directories_are_never_committed(project: Repo, tmp_path: Path) -> None:
    """A commit that does not ignore the directory any more gets none."""
    configure(project, "pool = 1", 'pool_keep = ["build"]')
    run(project, "mkdir build; echo x > build/x")
    project.write(".gitignore", ".ralph/\n")
    project.commit("no rule")
    settle(tmp_path)
    for path in warm(project):
        project.git("worktree", "remove", "--force", "--force", path)
    fill(project)
    assert run(project, "ls build").status != 0


# -- nothing is lost --

CHANGES = {
    "a file was changed": "echo mine >> same",
    "a file was added": "echo mine > mine",
    "a file was removed": "rm same",
    "a change was staged": "echo mine >> same; git add same",
    "a commit was made": "echo mine >> same; git commit -qam mine",
    "a commit was made and left": "git commit -q --allow-empty -m mine; git checkout -q --detach HEAD^",
    "a branch was checked out": "git checkout -q -b mine",
    "a bisection goes on": "git bisect start -q",
    "a hidden file was changed": "git update-index --assume-unchanged same; echo mine > same",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_one_is_neither_taken_nor_removed(project: Repo, what: str, tmp_path: Path) -> None:
    """A user has worked in it: it stays as it is, and the next fill says so."""
    (there,) = warm(project)
    subprocess.run(("sh", "-ec", CHANGES[what]), cwd=there, check=True, capture_output=True)
    before = {path.name: path.read_bytes() for path in there.iterdir() if path.is_file()}
    head = project.git("rev-parse", "HEAD", cwd=there)
    assert run(project, "pwd").status == 0
    settle(tmp_path)
    configure(project, "pool = 0")
    emptied = command("pool", "--fill", cwd=project.path)
    assert emptied.status == 0
    assert "is kept, and no session gets it" in emptied.stderr
    assert {path.name: path.read_bytes() for path in there.iterdir() if path.is_file()} == before
    assert project.git("rev-parse", "HEAD", cwd=there) == head


def test_its_index_is_read_only_if_it_was_written(project: Repo, tmp_path: Path) -> None:
    """The one that was written when it was filled lists nothing that git overlooks."""
    project.git("config", "index.version", "4")  # git alone reads it
    listed = tmp_path / "listed"
    path = shim_git(tmp_path / "bin", f'*" ls-files -v "*) pwd >> {listed} ;;')
    agent = ("run", "--isolation", "require", "-n", "1", "--", "sh", "-c", "stat -c %i .")

    def taken(**env: str) -> bool:
        (there,) = warm(project)
        inode = there.stat().st_ino
        result = command(*agent, cwd=project.path, env=env)
        settle(tmp_path)
        return result.stdout == f"{inode}\n".encode()

    def of_the_pool() -> list[str]:
        return (
            [line for line in listed.read_text().splitlines() if "/warm-" in line] if listed.exists() else []
        )

    configure(project, "pool = 1")
    assert taken(PATH=path)
    filled = of_the_pool()
    assert len(filled) == 1  # of the one that was made afterwards
    (there,) = warm(project)
    (there / "same").touch()
    project.git("status", cwd=there)  # a git that may writes the new time of the file to the index
    assert taken(PATH=path)
    assert of_the_pool()[1:2] == [os.fspath(there)]


def test_a_file_in_the_place_of_a_submodule_is_seen(project: Repo, tmp_path: Path) -> None:
    """Git does not look there while the submodule is not initialised."""
    upstream = make_repo(tmp_path / "upstream")
    upstream.commit("first")
    project.git(*ALLOWED, "submodule", "--quiet", "add", upstream.path, "sub")
    project.commit("submodule")
    for path in warm(project):
        project.git("worktree", "remove", "--force", "--force", path)
    fill(project)
    (there,) = warm(project)
    (there / "sub" / "mine").write_text("mine\n")
    assert run(project, "pwd").stdout.decode().strip() != ""
    settle(tmp_path)
    assert (there / "sub" / "mine").read_text() == "mine\n"


def test_an_untouched_one_is_taken_and_removed(project: Repo) -> None:
    """So that the test above can fail."""
    (there,) = warm(project)
    configure(project, "pool = 0")
    assert fill(project) == []
    assert not there.exists()
    assert project.worktrees() == []


def test_a_directory_that_git_does_not_know_is_left(project: Repo) -> None:
    """Its content is unknown."""
    (there,) = warm(project)
    stranger = there.with_name("warm-00000000")
    stranger.mkdir()
    (stranger / "mine").write_text("mine\n")
    result = command("pool", "--fill", cwd=project.path)
    assert result.status == 0
    assert f"ralph-wrap did not make {stranger}" in result.stderr
    assert (stranger / "mine").read_text() == "mine\n"


def test_a_broken_one_costs_no_isolation(project: Repo) -> None:
    """The session says so, and makes a worktree of its own."""
    (there,) = warm(project)
    registration = project.path / ".git/worktrees" / there.name
    project.write("changed", "by now\n")
    project.commit("moved on")
    (registration / "index").write_bytes(b"no index")
    result = run(project, "cat changed; git status --porcelain")
    assert (result.status, result.stdout) == (0, b"by now\n")


def test_one_at_a_time_fills(project: Repo) -> None:
    """A second one says so and does nothing."""
    configure(project, "pool = 2")
    lock = try_lock(project.path / ".ralph/run/pool")
    assert lock
    result = command("pool", "--fill", cwd=project.path)
    lock.release()
    assert (result.status, len(warm(project))) == (0, 1)
    assert "another process is filling the pool" in result.stderr


def test_a_pool_that_is_a_link_is_not_followed(project: Repo, tmp_path: Path) -> None:
    """The process that put it there could have us write and delete anywhere."""
    (there,) = warm(project)
    pool = there.parent
    elsewhere = tmp_path / "elsewhere"
    pool.rename(elsewhere)
    pool.symlink_to(elsewhere)
    assert run(project, "true").status == 0
    result = command("pool", "--fill", cwd=project.path)
    assert result.status == 125
    assert [path.name for path in elsewhere.iterdir()] == [there.name]


@pytest.mark.parametrize(
    "line",
    [
        "pool = -1",
        'pool = "many"',
        "pool = true",
        'pool_keep = ["../x"]',
        'pool_keep = ["/x"]',
        'pool_keep = [".git"]',
    ],
)
def test_mistakes_in_the_configuration(project: Repo, line: str) -> None:
    """The key is named, and nothing is done."""
    configure(project, line)
    result = command("pool", "--fill", cwd=project.path)
    assert result.status == 2
    assert f"config.toml: {line.split(maxsplit=1)[0]}: " in result.stderr


def test_list_for_people(project: Repo) -> None:
    """One line each."""
    (there,) = warm(project)
    result = command("pool", cwd=project.path)
    assert (result.status, result.stdout.decode()) == (0, f"{there}  ready\n")


def test_without_a_repository(tmp_path: Path) -> None:
    """It is said with the status of the table."""
    directory = tmp_path / "plain"
    directory.mkdir()
    result = command("pool", "--json", cwd=directory)
    assert (result.status, json.loads(result.stdout)["error"]["code"]) == (3, "not_a_repository")
