"""``ralph-wrap sweep``: which sessions are left alone, until they are adopted."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from ralph_wrap.commands.sweep import sweep as sweep_now
from ralph_wrap.state.claim import claim_id
from ralph_wrap.state.project import find_project, registries
from ralph_wrap.system import liveness
from tests.commands.sweep.project import state
from tests.support.blocking_git import Gate
from tests.support.directory_listing import listing
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.orphans import orphan, orphans, sweep
from tests.support.repo import Repo
from tests.support.sessions import Session, run

# Sessions that a sweep leaves alone


def test_a_live_session_is_not_touched(repo: Repo) -> None:
    """It is not even mentioned."""
    with Session(repo.path, "--delay", "1h", "--", "sh", "-c", "echo new > new") as session:
        session.wait_until_kept()
        before = state(repo)
        swept = sweep(repo)
        assert (swept.status, swept.stdout, "no dead sessions" in swept.stderr) == (0, b"", True)
        assert state(repo) == before
        session.send(signal.SIGTERM)
        assert session.finish().report["saved"] is not None


def test_a_foreign_session_is_not_touched(repo: Repo) -> None:
    """It may be alive on another machine: said, and left."""
    left = orphan(repo)
    left.move_owner_away()
    before = state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  elsewhere  left\n")
    assert state(repo) == before


def test_a_record_copied_without_its_lock_is_not_touched(repo: Repo) -> None:
    """Without the lock nothing is proved."""
    left = orphan(repo)
    left.lock.unlink()
    before = state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  unreadable  left\n")
    assert state(repo) == before


def test_a_session_that_is_just_starting_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    """It goes on as if no sweep had run."""
    # Not while it holds the repository's lock: a sweep waits for that. Before, it has no worktree.
    with (
        Gate(tmp_path / "gate", "read-tree --reset") as gate,
        Session(repo.path, "-n", "1", "--", "sh", "-c", "echo new > new", env=gate.env) as session,
    ):
        gate.wait()
        before = listing(repo.path / ".ralph")
        swept = sweep(repo)
        assert (swept.status, swept.stdout, "no dead sessions" in swept.stderr) == (0, b"", True)
        assert listing(repo.path / ".ralph") == before
        gate.open()
        result = session.finish()
    assert (result.status, result.report["ended_by"]) == (0, "max-iterations")
    assert repo.show(f"{result.report['saved']}:new") == b"new\n"


@pytest.mark.parametrize("name", ["mine", "20260102T030405Z-beef"])
def test_a_users_own_worktree_is_not_touched(repo: Repo, name: str) -> None:
    """Wherever it is and whatever it is called."""
    orphan(repo)
    mine = repo.path / ".ralph" / "worktrees" / name
    repo.git("worktree", "add", "-q", "-b", "mine", mine)
    (mine / "dirty").write_text("dirty\n")
    before = listing(mine), listing(repo.path / ".git" / "worktrees" / name)
    assert sweep(repo).status == 0
    assert (listing(mine), listing(repo.path / ".git" / "worktrees" / name)) == before


def test_a_clone_in_place_of_the_worktree_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    """It names another repository: kept, and said."""
    left = orphan(repo)
    left.worktree.rename(tmp_path / "away")
    repo.git("clone", "-q", repo.path, left.worktree)
    (left.worktree / "dirty").write_text("dirty\n")
    before = listing(left.worktree)
    swept = sweep(repo)
    assert swept.status == 5
    assert "its worktree was moved or replaced" in swept.stdout.decode()
    assert listing(left.worktree) == before


def test_a_worktree_that_the_user_has_moved_away_stays_there(repo: Repo, tmp_path: Path) -> None:
    """By hand: its registration is left alone, so that ``git worktree repair`` finds it."""
    left = orphan(repo)
    away = tmp_path / "away"
    left.worktree.rename(away)
    before = listing(away)
    swept = sweep(repo)
    assert (swept.status, "its worktree was moved or replaced" in swept.stdout.decode()) == (5, True)
    assert listing(away) == before
    repo.git("worktree", "repair", away)
    assert repo.git("status", "--porcelain", cwd=away) == "?? new"


def test_a_worktree_moved_by_git_stays_there(repo: Repo, tmp_path: Path) -> None:
    """Its registration names another place by then."""
    left = orphan(repo)
    away = tmp_path / "away"
    repo.git("worktree", "move", "-f", "-f", left.worktree, away)
    before = listing(away)
    assert sweep(repo).status == 5
    assert listing(away) == before
    assert repo.worktrees() == [str(away)]


# Adoption


def test_a_foreign_session_can_be_adopted(repo: Repo) -> None:
    """On the user's word it is dead."""
    left = orphan(repo)
    left.move_owner_away()
    swept = sweep(repo, "--adopt", left.id)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  elsewhere  finished  {left.wip}\n")
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert not left.worktree.exists()


def test_only_the_one_that_is_named_is_adopted(repo: Repo) -> None:
    """Other foreign sessions stay what they are."""
    named, other = orphans(repo, "true", "true")
    named.move_owner_away()
    other.move_owner_away()
    assert sweep(repo, "--adopt", named.id).status == 0
    assert (named.is_there(), other.is_there()) == (False, True)


def test_a_dry_run_adopts_nothing(repo: Repo) -> None:
    """It tells that it would."""
    left = orphan(repo)
    left.move_owner_away()
    before = state(repo)
    swept = sweep(repo, "--dry-run", "--adopt", left.id)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  elsewhere  would finish\n")
    assert state(repo) == before


@pytest.mark.parametrize("name", ["beef", "../x", "", "-x", "20260102T030405Z-beef"])
def test_an_absent_session_cannot_be_adopted(repo: Repo, name: str) -> None:
    """Status 4, and nothing is swept."""
    left = orphan(repo)
    swept = sweep(repo, f"--adopt={name}")
    assert (swept.status, swept.stdout) == (4, b"")
    assert swept.narration[-1]["message"] == f"no unfinished session has the id {name}"
    assert left.is_there()


def test_a_finished_session_cannot_be_adopted(repo: Repo) -> None:
    """There is nothing left of it to adopt."""
    ended = run(repo.path, "-n", "1", "--", "true")
    assert sweep(repo, "--adopt", ended.report["id"]).status == 4


def test_a_live_session_cannot_be_adopted(repo: Repo) -> None:
    """Status 5: the kernel knows better than the user."""
    with Session(repo.path, "--delay", "1h", "--", "true") as session:
        session.wait_for("iteration.ended")
        agent_id = session.directory.name[-4:]
        swept = sweep(repo, "--adopt", agent_id)
        assert (swept.status, swept.narration[-1]["code"]) == (5, "refused")
        assert swept.narration[-1]["message"] == f"session {agent_id} is live: it cannot be adopted"
        assert session.process.poll() is None


def test_a_record_that_cannot_be_read_cannot_be_adopted(repo: Repo) -> None:
    """Status 5: the sweep cannot know what it would adopt."""
    left = orphan(repo)
    left.record.write_text("{")
    swept = sweep(repo, "--adopt", left.id)
    assert (swept.status, swept.narration[-1]["code"]) == (5, "refused")
    assert (left.worktree / "new").exists()


# The project under another path


def test_a_project_that_was_moved_is_swept(repo: Repo) -> None:
    """The record and the registration name a path that is not there any more; the work is saved."""
    left = orphan(repo)
    moved = Repo(repo.path.rename(repo.path.with_name("moved")))
    swept = sweep(moved)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  crashed  finished  {left.wip}\n")
    assert moved.show(f"{left.wip}:new") == b"new\n"
    assert (moved.worktrees(), [*(moved.path / ".ralph" / "worktrees").iterdir()]) == ([], [])


@needs_mounts
def test_a_worktree_made_under_another_mount_is_swept(repo: Repo, tmp_path: Path) -> None:
    """As on the host, after the container has died."""
    inside = tmp_path / "workspace" / "project"
    with mounted(inside, "--bind", str(repo.path)):
        left = orphan(Repo(inside))
        assert (repo.path / ".git" / "worktrees" / left.session).exists()
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  crashed  finished  {left.wip}\n")
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert repo.worktrees() == []


@needs_mounts
def test_a_live_session_under_another_mount_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    """The lock is seen through both."""
    inside = tmp_path / "workspace" / "project"
    with (
        mounted(inside, "--bind", str(repo.path)),
        Session(inside, "--delay", "1h", "--", "sh", "-c", "echo new > new") as session,
    ):
        session.wait_until_kept()
        before = state(repo)
        assert sweep(repo).stdout == b""
        assert state(repo) == before
        session.send(signal.SIGTERM)
        assert session.finish().report["saved"] is not None


def test_a_copy_of_the_project_is_foreign(repo: Repo, tmp_path: Path) -> None:
    """Its owner may be alive where it was copied from."""
    left = orphan(repo)
    copy = Repo(Path(shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)))
    before = state(repo), state(copy)
    swept = sweep(copy)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  elsewhere  left\n")
    assert (state(repo), state(copy)) == before


def test_a_copy_of_the_project_is_swept_by_itself(repo: Repo, tmp_path: Path) -> None:
    """A sweep of the copy finishes the copied session on the user's word; the original keeps its own."""
    left = orphan(repo)
    copy = Repo(Path(shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)))
    before = state(repo)
    assert sweep(copy, "--adopt", left.id).status == 0
    assert copy.show(f"{left.wip}:new") == b"new\n"
    assert state(repo) == before
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


def test_what_another_sweep_has_just_finished_is_not_mentioned(repo: Repo) -> None:
    """Its record goes between two looks, and its lock after it: that is no record that cannot be read."""
    found, is_over = find_project(repo.path, os.environ), threading.Event()
    home = next(registries(found))
    home.prepare()
    dead = liveness.myself()._replace(start_time=0.5)

    def begin_and_finish() -> None:
        while not is_over.is_set():
            claim_id(home, dead, lambda *_: (), 0.0, lambda record: record).release()
            shutil.rmtree(home.sessions)
            home.sessions.mkdir()

    other = threading.Thread(target=begin_and_finish)
    other.start()
    try:
        swept = [entry for _ in range(300) for entry in sweep_now(found, dry_run=True)]
    finally:
        is_over.set()
        other.join()
    assert [entry for entry in swept if entry.verdict == "unknown"] == []
