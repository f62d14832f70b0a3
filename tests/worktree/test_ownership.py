"""A worktree is a session's by its registration alone; what a user puts at its path is never touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.needs import needs_pid_namespaces
from tests.support.orphans import Orphan, orphan, sweep
from tests.support.pid1 import NAMESPACE
from tests.support.sessions import PROGRAM, command, run
from tests.support.user_worktrees import CASES, KINDS, REGISTRATIONS, WAYS, Stranger, stranger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
from tests.worktree.sessions import moved_away

MARK = "ralph-wrap-session"  # the file in a registration

pytestmark = pytest.mark.usefixtures("ended")


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_sweep_touches_nothing_that_is_in_the_place_of_a_worktree(
    repo: Repo, tmp_path: Path, kind: str, way: str
) -> None:
    """Neither saved nor removed, and said. Once the worktree is back, the sweep finishes it."""
    left = orphan(repo)
    found = stranger(kind, repo, tmp_path / "theirs")
    for registration in REGISTRATIONS:
        with moved_away(left, tmp_path / "away", registration, found, way):
            before = found.contents(left.worktree), listing(tmp_path / "away")
            swept = sweep(repo)
            assert (found.contents(left.worktree), listing(tmp_path / "away")) == before, registration
            assert (swept.status, left.wip in repo.branches()) == (5, False), registration
            assert "its worktree was moved or replaced: " in swept.stdout.decode(), registration
            assert left.record.exists(), registration
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert not left.worktree.exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_sweep_touches_no_worktree_of_another_session(repo: Repo, tmp_path: Path, way: str) -> None:
    """In the place of a dead one. That one's is kept by its user."""
    kept = run(repo.path, "-n", "1", "--keep-worktree", "--", "sh", "-c", "echo other > other")
    assert kept.directory is not None
    left = orphan(repo)
    other = Stranger(left.worktree.with_name(kept.directory.name), repo)
    left.worktree.rename(tmp_path / "away")
    own = listing(tmp_path / "away")
    with other.put(left.worktree, way):
        before = other.contents(left.worktree)
        swept = sweep(repo)
        assert other.contents(left.worktree) == before
    assert swept.status == 5
    assert "its worktree was moved or replaced: " in swept.stdout.decode()
    assert listing(tmp_path / "away") == own


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_rm_touches_nothing_that_is_in_the_place_of_a_worktree(
    repo: Repo, tmp_path: Path, kind: str, way: str
) -> None:
    """The same of a session that has ended and kept its worktree."""
    ended = run(repo.path, "-n", "1", "--keep-worktree", "--", "sh", "-c", "echo new > new")
    assert ended.directory is not None
    left = Orphan(repo, ended.directory.name)
    found = stranger(kind, repo, tmp_path / "theirs")
    for registration in REGISTRATIONS:
        with moved_away(left, tmp_path / "away", registration, found, way):
            before = found.contents(left.worktree), listing(tmp_path / "away")
            removed = command("rm", left.id, cwd=repo.path)
            assert (found.contents(left.worktree), listing(tmp_path / "away")) == before, registration
            assert (removed.status, left.wip in repo.branches()) == (5, False), removed.stderr
            assert "its worktree was moved or replaced: " in removed.stderr, registration
    assert command("rm", left.id, cwd=repo.path).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_session_touches_nothing_that_is_in_the_place_of_its_own_worktree(
    repo: Repo, tmp_path: Path, script: Callable[[str], str], kind: str, way: str
) -> None:
    """A user has put it there while the agent worked."""
    found = stranger(kind, repo, tmp_path / "theirs")
    away = tmp_path / "away"
    put = {
        "mv": f'mv {found.path} "$RALPH_WORKSPACE"',
        "git worktree move": f"git -C {found.repo.path if found.repo else ''} worktree move -f -f "
        f'{found.path} "$RALPH_WORKSPACE"',
        "bind mount": f'mkdir "$RALPH_WORKSPACE" && mount --bind {found.path} "$RALPH_WORKSPACE"',
        "symlink": f'ln -s {found.path} "$RALPH_WORKSPACE"',
    }[way]
    before = found.contents(found.path)
    agent = script(f'echo new > new; cd /; mv "$RALPH_WORKSPACE" {away}; {put}')
    ended = run(repo.path, "-n", "1", "--", agent)
    assert ended.directory is not None
    left = Orphan(repo, ended.directory.name)
    try:
        assert found.contents(left.worktree) == before
        assert (away / "new").read_text() == "new\n"
        assert left.wip not in repo.branches()
        assert "its worktree was moved or replaced: " in ended.report["kept"]
    finally:
        if way == "bind mount":
            subprocess.run(("umount", left.worktree), check=True)


@needs_pid_namespaces
@pytest.mark.parametrize("kind", KINDS)
def test_an_init_touches_nothing_at_its_start_that_is_in_the_place_of_a_worktree(
    repo: Repo, tmp_path: Path, kind: str
) -> None:
    """Its sweep follows the same rules."""
    left = orphan(repo)
    found = stranger(kind, repo, tmp_path / "theirs")
    with moved_away(left, tmp_path / "away", "as it was", found, "mv"):
        before = found.contents(left.worktree)
        left.change(pid_namespace="pid:[1]", host="a container", boot_id="a boot before this one")
        left.change(host=os.uname().nodename)
        # The sweep runs beside the command, which ends with the sweep.
        waits = "until [ -e swept ]; do sleep 0.05; done"
        with subprocess.Popen(
            (*NAMESPACE, PROGRAM, "init", "--", "sh", "-c", waits), cwd=repo.path, stderr=subprocess.PIPE
        ) as init:
            assert init.stderr is not None
            printed = b""
            while b"the sweep ended with status 5" not in printed:
                line = init.stderr.readline()
                assert line, printed
                printed += line
            repo.write("swept")
        assert b"its worktree was moved or replaced: " in printed
        assert found.contents(left.worktree) == before
        assert left.wip not in repo.branches()


def test_the_start_of_a_session_touches_nothing_in_the_place_of_a_dead_one(
    repo: Repo, tmp_path: Path
) -> None:
    """Its own sweep, which says so and stops nothing."""
    left = orphan(repo)
    found = stranger(KINDS[0], repo, tmp_path / "theirs")
    with moved_away(left, tmp_path / "away", "as it was", found, "git worktree move"):
        before = found.contents(left.worktree)
        ended = run(repo.path, "-n", "1", "--", "true")
        assert found.contents(left.worktree) == before
        (printed,) = [
            printed["message"] for printed in ended.warnings if printed["event"] == "sweep.incomplete"
        ]
        assert "its worktree was moved or replaced: " in printed


# -- the registration's own name --


def test_a_registration_that_the_user_made_at_the_path_of_a_dead_session(repo: Repo) -> None:
    """It has the session's id for its name, as git names it by the path, but no mark."""
    left = orphan(repo)
    repo.git("worktree", "remove", "-f", "-f", left.worktree)
    repo.git("worktree", "add", "-q", left.worktree, left.branch)  # goes on with the branch
    (left.worktree / "mine").write_text("the user's own\n")
    before = listing(left.worktree), listing(left.registration)
    swept = sweep(repo)
    assert (swept.status, "its worktree was moved or replaced: " in swept.stdout.decode()) == (5, True)
    assert (listing(left.worktree), listing(left.registration)) == before


@pytest.mark.parametrize("options", [["--no-checkout"], ["--no-checkout", "--lock"]])
def test_an_empty_worktree_of_the_user_at_the_path_of_a_session_that_died_early(
    repo: Repo, options: list[str]
) -> None:
    """It looks like a checkout that was never begun, on a branch that is not the session's."""
    left = orphan(repo)
    repo.git("worktree", "remove", "-f", "-f", left.worktree)
    repo.git("worktree", "add", "-q", "-b", "mine", *options, left.worktree)
    left.change(state="starting")
    before = listing(left.worktree), listing(left.registration)
    assert sweep(repo).status == 5
    assert (listing(left.worktree), listing(left.registration)) == before


@pytest.mark.parametrize("content", ["", '{"version": 2}', '{"version": 1, "session": 1}', "[]", "garbage"])
def test_a_mark_that_cannot_be_read_is_no_sessions(repo: Repo, content: str) -> None:
    """Never a reason to remove anything."""
    left = orphan(repo)
    (left.registration / MARK).write_text(content)
    before = listing(left.worktree)
    assert sweep(repo).status == 5
    assert listing(left.worktree) == before


def test_a_second_registration_of_the_same_directory(repo: Repo, tmp_path: Path) -> None:
    """Git would take the first one that names a path, which is the user's: neither is dropped."""
    left = orphan(repo)
    repo.git("worktree", "add", "-q", "-b", "aaa", tmp_path / "0-mine")
    theirs = repo.path / ".git" / "worktrees" / "0-mine"
    (theirs / "gitdir").write_text(f"{left.worktree}/.git\n")
    before = listing(theirs)
    swept = sweep(repo)
    assert (swept.status, "0-mine is registered in its place too" in swept.stdout.decode()) == (5, True)
    assert listing(theirs) == before
    assert left.worktree.exists()
    assert repo.show(f"{left.wip}:new") == b"new\n"


# -- a session that was killed while git added its worktree --

ZEROS = "0" * 40

BEGUN: dict[str, dict[str, str]] = {
    "an empty lock": {"locked": ""},
    "a lock that was cut short": {"locked": "ralph-wrap sess"},
    "the lock that git writes first": {"locked": "initializing"},
    "no branch yet": {
        "locked": "added with --lock",
        "HEAD": ZEROS,
        "gitdir": "{path}/.git",
        "commondir": "../..",
    },
    "HEAD is still detached": {
        "locked": "added with --lock",
        "HEAD": "{base}\n",
        "gitdir": "{path}/.git",
        "commondir": "../..",
    },
    "half a branch": {"locked": "added with --lock", "HEAD": "ref: refs/heads/ra", "commondir": "../.."},
    "everything empty": {"locked": "", "HEAD": "", "gitdir": "", "commondir": "", "ralph-wrap-session": ""},
    "an empty mark": {
        "locked": "added with --lock",
        "HEAD": "ref: refs/heads/{branch}",
        "gitdir": "{path}/.git",
        "commondir": "../..",
        "ralph-wrap-session": "",
    },
}
"""What git's registration may hold then, by file."""


@pytest.mark.parametrize("state", BEGUN)
@pytest.mark.parametrize("pointer", [None, "", "gitdir: ", "gitdir: {registration}\n"])
def test_a_worktree_that_was_never_finished_is_taken_apart(
    repo: Repo, state: str, pointer: str | None
) -> None:
    """Nothing of it is left, and the session is finished."""
    left = orphan(repo)
    repo.git("worktree", "remove", "-f", "-f", left.worktree)
    names = {
        "path": left.worktree,
        "branch": left.branch,
        "base": repo.head,
        "registration": left.registration,
    }
    left.registration.mkdir(parents=True)
    for name, content in BEGUN[state].items():
        (left.registration / name).write_text(content.format(**names))
    left.worktree.mkdir()
    if pointer is not None:
        (left.worktree / ".git").write_text(pointer.format(**names))
    left.change(state="starting")
    swept = sweep(repo)
    assert swept.status == 0, swept.stdout
    assert not left.worktree.exists()
    assert not left.registration.exists()
    assert not left.record.exists()


def test_a_worktree_that_git_has_forgotten_is_named(repo: Repo, tmp_path: Path) -> None:
    """At its place, or gone from there."""
    left = orphan(repo)
    shutil.rmtree(left.registration)
    before = listing(left.worktree)
    swept = sweep(repo)
    assert (swept.status, f"git has forgotten {left.worktree}" in swept.stdout.decode()) == (5, True)
    assert listing(left.worktree) == before
    left.worktree.rename(tmp_path / "away")
    swept = sweep(repo)
    assert (swept.status, f"nothing is at {left.worktree}" in swept.stdout.decode()) == (0, True)
    assert listing(tmp_path / "away") == before


def test_a_long_pointer_delays_no_sweep(repo: Repo) -> None:
    """Of another registration: no more is read of it than a path may be long."""
    left = orphan(repo)
    other = left.registration.with_name("other")
    other.mkdir()
    (other / "gitdir").write_text("/" + "a/" * 500_000)
    assert sweep(repo).status == 0
    assert not left.worktree.exists()
