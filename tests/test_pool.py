"""The pool: sessions that start in a warm worktree, and what no warm worktree may show or lose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.system.files import try_lock
from tests.support.pid1 import Container
from tests.support.processes import left
from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM, command
from tests.support.shim import shim_git
from tests.support.submodules import ALLOWED
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo
    from tests.support.sessions import Result


@pytest.fixture
def project(repo: Repo, tmp_path: Path) -> Iterator[Repo]:
    """Return a repository with a pool of one, filled, and wait in the end until nobody fills it any more."""
    repo.write(".gitignore", ".ralph/\nbuild/\n*.log\n")
    for name in ("same", "changed", "removed", "dir/inner"):
        repo.write(name, f"{name}\n")
    repo.commit("files")
    (repo.path / ".ralph").mkdir()
    configure(repo, "pool = 1")
    fill(repo)
    yield repo
    settle(tmp_path)


def configure(repo: Repo, *lines: str) -> None:
    """Write the configuration."""
    (repo.path / ".ralph" / "config.toml").write_text("".join(f"{line}\n" for line in lines))


def settle(tmp_path: Path) -> None:
    """Wait until nothing runs that was started in the background."""
    eventually(lambda: left(tmp_path / "home") == {}, "the pool to be filled", 30)


def fill(repo: Repo) -> list[dict[str, Any]]:
    """Fill the pool, and return what is in it."""
    result = command("pool", "--fill", "--json", cwd=repo.path)
    assert result.status == 0, result.stderr
    entries: list[dict[str, Any]] = json.loads(result.stdout)["data"]
    return entries


def warm(repo: Repo) -> list[Path]:
    """Return the directories in the pool."""
    return sorted((repo.path / ".ralph/run/pool").glob("warm-*"))


def run(repo: Repo, script: str, *options: str) -> Result:
    """Run one iteration of a script in a session that must be isolated."""
    return command(
        "run", "--isolation", "require", "-n", "1", *options, "--", "sh", "-c", script, cwd=repo.path
    )


# -- what a session gets --


def test_a_session_starts_in_a_warm_worktree(project: Repo) -> None:
    """The very directory, under the session's name, as a worktree that was made for it would be."""
    (there,) = warm(project)
    inode, file = there.stat().st_ino, (there / "same").stat().st_ino
    script = """
stat -c %i . same; cat .git; git symbolic-ref HEAD; git status --porcelain --ignored
git worktree list --porcelain | grep locked; cat "$(git rev-parse --git-dir)/gitdir"
"""
    result = run(project, script)
    (report,) = project.path.glob(".ralph/run/sessions/*/report.json")
    told = json.loads(report.read_text())
    session = told["session"]
    assert result.stdout.decode().splitlines() == [
        str(inode),
        str(file),
        f"gitdir: ../../../.git/worktrees/{session}",
        f"refs/heads/{told['branch']}",
        f"locked ralph-wrap session {session}",
        f"{project.path}/.ralph/worktrees/{session}/.git",
    ]
    assert told["base"] == project.git("rev-parse", "HEAD")


def test_only_the_difference_is_checked_out(project: Repo) -> None:
    """Where the base has moved on, what is the same stays the same file."""
    (there,) = warm(project)
    kept = (there / "same").stat().st_ino
    project.write("changed", "by now\n")
    project.write("new", "new\n")
    project.git("rm", "-q", "removed")
    project.commit("moved on")
    result = run(project, "stat -c %i same; ls; cat changed; git status --porcelain; git log -1 --format=%s")
    same, *rest = result.stdout.decode().splitlines()
    assert int(same) == kept
    assert rest == ["changed", "dir", "file.txt", "new", "same", "by now", "moved on"]


def test_a_branch_is_continued_in_a_warm_worktree(project: Repo) -> None:
    """Whatever commit it is at."""
    project.git("branch", "topic", "HEAD^")
    (there,) = warm(project)
    inode = there.stat().st_ino
    result = run(project, "stat -c %i .; ls; git symbolic-ref HEAD", "--branch", "topic")
    assert result.stdout.decode().splitlines() == [str(inode), "file.txt", "refs/heads/topic"]


@pytest.mark.parametrize("options", [("--sparse", "dir"), ("--base", "fresh")])
def test_a_sparse_session_takes_none(project: Repo, options: tuple[str, ...]) -> None:
    """It wants less than what is there."""
    there = warm(project)
    assert run(project, "true", *options).status == 0
    assert warm(project) == there


def test_sessions_at_once_take_each_its_own(project: Repo, tmp_path: Path) -> None:
    """And who finds none left makes a worktree as ever."""
    configure(project, "pool = 2")
    inodes = {Path(entry["path"]).stat().st_ino for entry in fill(project)}
    assert len(inodes) == 2
    words = (PROGRAM, "run", "--isolation", "require", "-n", "1", "--", "sh", "-c", "stat -c %i .; sleep 0.5")
    sessions = [
        subprocess.Popen(words, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    answers = [session.communicate()[0] for session in sessions]
    assert [session.returncode for session in sessions] == [0] * 4
    found = {int(answer) for answer in answers}
    assert len(found) == 4
    settle(tmp_path)


def test_it_is_filled_again_after_a_session(project: Repo, tmp_path: Path) -> None:
    """In the background: nobody waits for it."""
    before = warm(project)
    assert run(project, "true").status == 0
    settle(tmp_path)
    after = warm(project)
    assert len(after) == 1
    assert after != before


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_it_is_filled_at_the_start_of_a_container(project: Repo) -> None:
    """PID 1 has it done with its sweep, and reaps it."""
    configure(project, "pool = 2")
    with Container(project.path) as container:
        eventually(lambda: len(warm(project)) == 2, "the pool to be filled", 30)
        container.rest()
        assert [entry["ready"] for entry in json.loads(_listed(project))["data"]] == [True, True]


def _listed(repo: Repo) -> bytes:
    return command("pool", "--json", cwd=repo.path).stdout


def test_who_is_ended_by_term_fills_nothing(
    project: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """Somebody wants everything to end."""
    result = command(
        "run", "--isolation", "require", "--", script("kill -TERM $PPID; sleep 60"), cwd=project.path
    )
    assert result.status == 128 + signal.SIGTERM
    settle(tmp_path)
    assert warm(project) == []


def test_without_a_pool_none_is_made(repo: Repo, tmp_path: Path) -> None:
    """It is off by default."""
    assert run(repo, "true").status == 0
    settle(tmp_path)
    assert not (repo.path / ".ralph/run/pool").exists()


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


def test_what_is_kept_is_never_committed(project: Repo, tmp_path: Path) -> None:
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
    """Somebody has worked in it: it stays as it is, and the next fill says so."""
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


def test_its_index_is_read_only_if_somebody_has_written_it(project: Repo, tmp_path: Path) -> None:
    """The one that was written when it was filled lists nothing that git overlooks."""
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


def test_what_is_in_the_place_of_a_submodule_is_seen(project: Repo, tmp_path: Path) -> None:
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
    """Nobody can tell what is in it."""
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
    assert "somebody else is filling the pool" in result.stderr


def test_a_pool_that_is_a_link_is_not_followed(project: Repo, tmp_path: Path) -> None:
    """Whoever put it there could have us write and delete anywhere."""
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
    assert f"key {line.split(maxsplit=1)[0]}" in result.stderr


def test_list_for_people(project: Repo) -> None:
    """One line each."""
    (there,) = warm(project)
    result = command("pool", cwd=project.path)
    assert (result.status, result.stdout.decode()) == (0, f"{there}  ready\n")


def test_without_a_repository(tmp_path: Path) -> None:
    """It is said with the status of the table."""
    place = tmp_path / "plain"
    place.mkdir()
    result = command("pool", "--json", cwd=place)
    assert (result.status, json.loads(result.stdout)["error"]["code"]) == (3, "not_a_repository")
