"""A worktree that its user has deleted: its dead session is finished, with all that git still knows of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.orphans import orphan, sweep
from tests.support.sessions import command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")

WORK = (
    "echo committed > committed; git add committed; git commit -qm committed\n"
    "echo amended > amended; git add amended; git commit -qm away; git reset -q --hard HEAD~\n"
    "echo staged > staged; git add staged; echo loose > loose\n"
)


def test_what_git_knows_is_saved(repo: Repo) -> None:
    """The index on the branch of saved work, commits on no branch and the snapshot by their refs."""
    left = orphan(repo, work=WORK)
    shutil.rmtree(left.worktree)
    swept = sweep(repo)
    assert swept.status == 0, swept.stderr
    assert repo.show(f"{left.branch}:committed") == b"committed\n"
    assert repo.show(f"{left.wip}:staged") == b"staged\n"
    snapshots = f"refs/ralph/snapshots/{left.id}"
    assert repo.show(f"{snapshots}/1:loose") == b"loose\n"
    assert repo.show(f"{snapshots}/commit-1:amended") == b"amended\n"
    assert [
        path for path in (left.record, left.lock, left.registration, left.worktree) if path.exists()
    ] == []
    assert (left.report["ended_by"], left.report["saved"], left.report["kept"]) == ("killed", left.wip, None)
    assert repo.git("fsck", "--no-dangling") == ""


def test_a_loss_is_said_once(repo: Repo) -> None:
    """Changes after the snapshot; the next sweep has nothing to do."""
    left = orphan(repo, work=WORK)
    shutil.rmtree(left.worktree)
    (printed,) = sweep(repo).warnings
    snapshot = f"refs/ralph/snapshots/{left.id}/1"
    assert printed["message"] == (
        f"nothing is at {left.worktree}: lost with it is what was neither committed nor staged,"
        f" and came after the snapshot {snapshot}"
    )
    assert printed["hint"] == f"to see what is saved: git -C {repo.path} log -p {snapshot}"
    again = sweep(repo)
    assert (again.status, again.stdout, again.warnings) == (0, b"", [])


def test_staged_work_without_a_snapshot_is_in_the_hint(repo: Repo) -> None:
    """The branch of the session does not have it."""
    left = orphan(repo, work="echo staged > staged; git add staged")
    for ref in repo.git("for-each-ref", "--format=%(refname)", f"refs/ralph/snapshots/{left.id}").split():
        repo.git("update-ref", "-d", ref)
    shutil.rmtree(left.worktree)
    (printed,) = sweep(repo).warnings
    assert printed["hint"] == f"to see what is saved: git -C {repo.path} log -p {left.wip}"


def test_the_last_snapshot_is_the_saved_work_if_nothing_is_staged(repo: Repo) -> None:
    """A swept session has it in its report and on its branch, as one that ends by itself."""
    left = orphan(repo, work="echo loose > loose; mkdir -p in; echo deep > in/deep")
    shutil.rmtree(left.worktree)
    assert sweep(repo).status == 0
    assert (left.report["saved"], left.report["saved_paths"]) == (left.wip, ["in/deep", "loose"])
    assert repo.show(f"{left.wip}:loose") == b"loose\n"
    assert repo.git("rev-parse", f"{left.wip}^") == repo.head


def test_a_session_without_changes_leaves_its_branch(repo: Repo) -> None:
    """Nothing is saved, because its branch holds everything."""
    left = orphan(repo, work="git commit -q --allow-empty -m work")
    shutil.rmtree(left.worktree)
    assert sweep(repo).status == 0
    assert repo.branches() == ["main", left.branch]
    assert not left.registration.exists()


def _stays(repo: Repo, registration: Path) -> None:
    before = listing(registration)
    assert sweep(repo).status == 5
    assert listing(registration) == before


def test_a_worktree_that_was_renamed_stays(repo: Repo) -> None:
    """Its .git file has two links; git worktree repair finds it."""
    left = orphan(repo)
    left.worktree.rename(left.worktree.with_name("renamed"))
    _stays(repo, left.registration)


def test_a_directory_above_that_was_deleted_takes_the_worktree_along(repo: Repo) -> None:
    """The hard link proves it: on a disk that is missing, the file would still have both."""
    left = orphan(repo)
    shutil.rmtree(left.worktree.parent)
    assert sweep(repo).status == 0
    assert not left.registration.exists()


@needs_mounts
def test_an_unmounted_disk_is_no_deletion(repo: Repo) -> None:
    """The directory below the mount is empty; a hard link to another disk was not possible."""
    with mounted(repo.path / ".ralph" / "worktrees", "-t", "tmpfs", "tmpfs"):
        left = orphan(repo)
    assert left.worktree.parent.is_dir()
    assert not left.worktree.exists()
    _stays(repo, left.registration)


@needs_mounts
def test_a_directory_below_another_mount_is_no_deletion(repo: Repo) -> None:
    """The worktree is hidden, and still there."""
    left = orphan(repo)
    with mounted(left.worktree.parent, "-t", "tmpfs", "tmpfs"):
        _stays(repo, left.registration)
    assert command("rm", left.id, cwd=repo.path).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


def test_a_registration_that_its_user_has_locked_stays(repo: Repo) -> None:
    """What it holds is saved all the same."""
    left = orphan(repo, work=WORK)
    shutil.rmtree(left.worktree)
    repo.git("worktree", "unlock", left.worktree)
    repo.git("worktree", "lock", "--reason", "mine", left.worktree)
    sweep(repo)
    assert repo.show(f"{left.wip}:staged") == b"staged\n"
    assert left.registration.exists()


def test_a_foreign_mark_stays(repo: Repo) -> None:
    """The registration is then another worktree's."""
    left = orphan(repo)
    shutil.rmtree(left.worktree)
    mark = left.registration / "ralph-wrap-session"
    mark.write_text(mark.read_text().replace(left.session, "20200101T000000Z-beef"))
    _stays(repo, left.registration)


def test_a_session_that_another_machine_may_have_is_left_alone(repo: Repo) -> None:
    """Without proof of its owner's death, a missing directory changes nothing."""
    left = orphan(repo)
    shutil.rmtree(left.worktree)
    left.move_owner_away()
    before = listing(left.registration)
    sweep(repo)
    assert listing(left.registration) == before


def test_rm_finishes_a_background_session_whose_worktree_was_deleted(repo: Repo) -> None:
    """It waits for rm; the user has been faster."""
    spawned = command("spawn", "-n", "1", "--", "sh", "-c", "echo x > new; git add new", cwd=repo.path)
    agent_id = spawned.stdout.decode().strip()
    command("stop", agent_id, cwd=repo.path)
    (worktree,) = (repo.path / ".ralph" / "worktrees").iterdir()
    shutil.rmtree(worktree)
    removed = command("rm", agent_id, cwd=repo.path)
    assert removed.status == 0, removed.stderr
    assert repo.worktrees() == []
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"
