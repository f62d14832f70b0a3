"""What a user puts into the trash stays, and a deletion deletes nothing else."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.orphans import orphan, sweep
from tests.support.processes import is_deleting
from tests.support.sessions import command, run
from tests.support.user_worktrees import CASES, WAYS, Stranger, stranger
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.worktree.user_directories import in_place_of

SESSION = "20260102T030405Z-beef"

RUN = Path(".ralph/run")

pytestmark = pytest.mark.usefixtures("ended", "trusted")


# -- the trash --


@pytest.mark.parametrize("name", [SESSION, f"{SESSION}.leaving", "mine"])
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_the_trash(repo: Repo, tmp_path: Path, home: Path, kind: str, way: str, name: str) -> None:
    """It is deleted by no start and no end, and a sweep names what looks like one of ours."""
    run(repo.path, "-n", "1", "--", "true")
    directory = repo.path / RUN / "trash" / name
    found = stranger(kind, repo, tmp_path / "theirs")
    with in_place_of(directory, tmp_path / "away", found, way):
        swept = sweep(repo)
        run(repo.path, "-n", "1", "--", "true")
        eventually(lambda: not is_deleting(home), "every deletion to end")
        assert (f"ralph-wrap did not put {directory} there" in swept.stderr) == (name == SESSION)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "bind mount"])
def test_the_worktree_of_a_session_in_the_trash(repo: Repo, tmp_path: Path, home: Path, way: str) -> None:
    """Put there by hand, it is not deleted."""
    kept = run(repo.path, "-n", "1", "--keep-worktree", "--", "sh", "-c", "echo new > new")
    assert kept.directory is not None
    directory = repo.path / RUN / "trash" / SESSION
    found = Stranger(repo.path / ".ralph/worktrees" / kept.directory.name, repo)
    with in_place_of(directory, tmp_path / "away", found, way):
        sweep(repo)
        eventually(lambda: not is_deleting(home), "every deletion to end")


def test_a_worktree_that_was_to_come_back_is_not_taken_for_another_one(repo: Repo, tmp_path: Path) -> None:
    """A session died with its worktree in the trash; a user has put another directory there."""
    left_over = orphan(repo)
    trash = repo.path / RUN / "trash"
    leaving = trash / f"{left_over.session}.leaving"
    left_over.worktree.rename(tmp_path / "away")
    shutil.rmtree(left_over.registration)
    found = stranger("a directory", repo, tmp_path / "theirs")
    with in_place_of(leaving, tmp_path / "nothing", found, "mv"):
        assert sweep(repo).status == 0
        assert not left_over.worktree.exists()
    assert (tmp_path / "away" / "new").read_text() == "new\n"


def discarded(trash: Path, name: str = SESSION) -> Path:
    """Make a directory that a session has given up, as it is until it is deleted."""
    directory = trash / name
    for path in ("file", "deep/file", "deep/er/file"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text("ours\n")
    (directory / ".ralph-wrap-trash").write_text(name)
    return directory


def test_a_deletion_that_was_cut_short_is_reported_and_goes_on(repo: Repo, home: Path) -> None:
    """By the next start."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / RUN / "trash")
    started = run(repo.path, "-n", "1", "--", "true")
    assert "trash.resumed" in [printed["event"] for printed in started.narration]
    eventually(lambda: not is_deleting(home), "the deletion to end")
    assert not directory.exists()


def test_a_deletion_that_runs_is_not_reported(repo: Repo) -> None:
    """Another process is at it, and holds the lock."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / RUN / "trash")
    with subprocess.Popen(("flock", directory, "cat"), stdin=subprocess.PIPE) as holder:
        eventually(lambda: b"cat" in _children_of(holder.pid), "the lock")
        swept = sweep(repo)
        assert (swept.status, "warning" in swept.stderr) == (0, False)
        assert directory.exists()


def _children_of(pid: int) -> bytes:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return b" ".join(Path(f"/proc/{child}/cmdline").read_bytes() for child in children)


@pytest.mark.parametrize("token", [None, "", "another name", f"{SESSION}x"])
def test_a_directory_without_its_own_token_stays(repo: Repo, token: str | None) -> None:
    """A token names the directory that it is in; a former worktree of ours needs one, too."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / RUN / "trash")
    (directory / ".git").write_text(f"gitdir: ../../../.git/worktrees/{SESSION}\n")
    (directory / ".ralph-wrap-trash").unlink()
    if token is not None:
        (directory / ".ralph-wrap-trash").write_text(token)
    before = listing(directory)
    sweep(repo)
    assert listing(directory) == before


@needs_mounts
def test_a_mount_in_the_trash_is_not_emptied(repo: Repo, tmp_path: Path, home: Path) -> None:
    """A bind mount of the same file system, made after the worktree was given up."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / RUN / "trash")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("precious\n")
    with mounted(directory / "deep" / "mount", "--bind", os.fspath(mine)):
        sweep(repo)
        eventually(lambda: not is_deleting(home), "the deletion to end")
        assert (mine / "precious").read_text() == "precious\n"
        assert not (directory / "file").exists()
    sweep(repo)
    eventually(lambda: not is_deleting(home), "the deletion to end")
    assert not directory.exists()
    assert (mine / "precious").read_text() == "precious\n"


def test_many_deletions_that_were_cut_short_go_on(repo: Repo, home: Path) -> None:
    """More than a process may have open files."""
    run(repo.path, "-n", "1", "--", "true")
    trash = repo.path / RUN / "trash"
    for number in range(600):
        directory = trash / f"20260102T030405Z-{number:04x}"
        directory.mkdir()
        (directory / ".ralph-wrap-trash").write_text(directory.name)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        sweep(repo)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    eventually(lambda: not is_deleting(home) and not [*trash.iterdir()], "the trash to be empty", 30)


def test_a_deletion_that_was_killed_at_its_last_step(repo: Repo) -> None:
    """An empty directory is left, of which nothing says any more whose it is."""
    run(repo.path, "-n", "1", "--", "true")
    (repo.path / RUN / "trash" / SESSION).mkdir()
    swept = sweep(repo)
    assert (swept.status, "warning" in swept.stderr) == (0, False)
    assert not (repo.path / RUN / "trash" / SESSION).exists()


def test_an_agent_that_makes_a_directory_by_the_name_of_the_token(repo: Repo, home: Path) -> None:
    """It is deleted as everything else."""
    work = "mkdir .ralph-wrap-trash && echo x > .ralph-wrap-trash/x.log"
    repo.write(".gitignore", ".ralph/\n*.log\n")
    repo.commit("rule")
    run(repo.path, "-n", "1", "--", "sh", "-c", work)
    eventually(lambda: not is_deleting(home), "the deletion to end")
    assert [*(repo.path / RUN / "trash").iterdir()] == []


def test_a_start_that_only_reports_dead_sessions_goes_on_with_deletions(repo: Repo, home: Path) -> None:
    """No session needs them any more."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / RUN / "trash")
    repo.write(".ralph/config.toml", 'orphans = "report"\n')
    run(repo.path, "-n", "1", "--", "true")
    eventually(lambda: not is_deleting(home) and not directory.exists(), "the deletion to end")


def test_a_deletion_beside_the_worktrees_goes_on_at_the_next_start(repo: Repo, home: Path) -> None:
    """Where the trash is on another file system."""
    run(repo.path, "-n", "1", "--", "true")
    directory = discarded(repo.path / ".ralph/worktrees", f"{SESSION}.leaving")
    run(repo.path, "-n", "1", "--", "true")
    eventually(lambda: not is_deleting(home) and not directory.exists(), "the deletion to end")


def test_a_directory_that_is_exchanged_for_a_worktree_during_its_removal(repo: Repo) -> None:
    """After the look at its owner, and before it is moved aside: what was moved is looked at once more."""
    created = command("worktree", "create", "task", cwd=repo.path)
    path = Path(json.loads(created.stdout)["data"]["path"])
    mine = path.with_name("mine")
    mine.mkdir()
    (mine / "precious").write_text("precious\n")
    words = (sys.executable, "-c", _EXCHANGING, mine, "worktree", "cleanup", path, "--force")
    done = subprocess.run(words, cwd=repo.path, capture_output=True, check=False)
    assert b"its worktree was moved or replaced: " in done.stdout
    assert (path / "precious").read_text() == "precious\n"
    assert [*(repo.path / RUN / "trash").iterdir()] == []


_EXCHANGING = """
import sys
from pathlib import Path
from ralph_wrap.worktree import remove
mine, move = Path(sys.argv.pop(1)), remove._move

def exchanged(path, *places):
    path.rename(path.with_name("aside"))
    mine.rename(path)
    return move(path, *places)

remove._move = exchanged
sys.argv[0] = "ralph-wrap"
from ralph_wrap.__main__ import main
main()
"""

_DELETING = """
import os, sys
from pathlib import Path
from ralph_wrap.worktree import trash as module
from tests.support.user_worktrees import exchange_until_killed

trash, calls, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
directory = os.open(trash, os.O_RDONLY | os.O_DIRECTORY)  # whatever its name is later
exchanging = exchange_until_killed(trash, trash.with_name("link"))
module.deletion.start = lambda entries, token: [
    module.delete_tree.TreeDeletion(*entry, token).run() for entry in entries
]
deleted = 0
for _ in range(calls):
    os.mkdir(name, dir_fd=directory)
    inner = os.open(name, os.O_RDONLY, dir_fd=directory)
    for file in ("one", "two"):
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=inner))
    module.delete_tree.write_new(module.TOKEN, inner, name.encode())
    os.close(inner)
    try:
        module.empty_trash(trash)
    except OSError:
        pass  # at this moment it was the symlink
    for name_of_file in ("one", "two", module.TOKEN):
        try:
            os.unlink(f"{name}/{name_of_file}", dir_fd=directory)
        except OSError:
            deleted += 1
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        pass
exchanging.kill()
exchanging.wait()
print(deleted)
"""


@pytest.mark.parametrize("calls", [2_000, pytest.param(100_000, marks=pytest.mark.matrix)])
def test_a_trash_that_is_exchanged_for_a_symlink_deletes_nothing_elsewhere(
    tmp_path: Path, calls: int
) -> None:
    """Again and again, in the middle of each deletion."""
    victim = tmp_path / "victim"
    (discarded(victim) / ".ralph-wrap-trash").unlink()
    for name in ("one", "two"):
        (victim / SESSION / name).write_text("precious\n")
    before = listing(victim)
    run_ = tmp_path / "project" / ".ralph" / "run"
    (run_ / "trash").mkdir(parents=True)
    (run_ / "link").symlink_to(victim)
    program = (sys.executable, "-c", _DELETING, run_ / "trash", str(calls), SESSION)
    done = subprocess.run(program, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    assert int(done.stdout) > calls // 4, "nothing was deleted"
    assert listing(victim) == before
