"""``ralph-wrap sweep``: what a session and a container do at their start."""

from __future__ import annotations

import os
import shutil

import pytest

from ralph_wrap.state.project import find_project, has_ownerless
from tests.commands.sweep.project import NESTED
from tests.support.orphans import orphan, sweep
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

pytestmark = pytest.mark.usefixtures("trusted")

# At the start of the next session


def test_a_run_sweeps_first(repo: Repo) -> None:
    """When its agent starts, what the dead one had is on its branches."""
    left = orphan(repo)
    seen = run(repo.path, "-n", "1", "--", "sh", "-c", f"git show {left.wip}:new; ls ..")
    assert (seen.status, seen.stdout.decode().splitlines()[0]) == (0, "new")
    assert left.session not in seen.stdout.decode()


def test_what_cannot_be_swept_stops_no_run(repo: Repo) -> None:
    """A warning says so, and the session goes on."""
    left = orphan(repo, work=NESTED)
    result = run(repo.path, "-n", "1", "--", "true")
    assert result.status == 0
    assert [printed["message"] for printed in result.warnings if printed["event"] == "sweep.incomplete"] == [
        f"{left.session}: nested repository inner cannot be saved"
    ]


@pytest.mark.parametrize("dead", [0, 1])
def test_a_run_sweeps_only_if_there_is_something_to_do(repo: Repo, dead: int) -> None:
    """Finished and live sessions are nothing."""
    run(repo.path, "-n", "1", "--", "true")
    with Session(repo.path, "--delay", "1h", "--", "true") as live:
        live.wait_for("iteration.ended")
        for _ in range(dead):
            orphan(repo)
        assert has_ownerless(find_project(repo.path, os.environ)) is bool(dead)


# What a start does


def test_a_start_that_only_reports(repo: Repo) -> None:
    """``orphans = "report"``: the dead session is named, and left for ``sweep``."""
    left = orphan(repo, work="echo new > new")
    (repo.path / ".ralph" / "config.toml").write_text('orphans = "report"\n')
    before = left.record.read_bytes()
    ended = run(repo.path, "-n", "1", "--", "true")
    assert ended.status == 0
    assert [printed["hint"] for printed in ended.warnings] == ["ralph-wrap sweep"]
    assert (left.record.read_bytes(), (left.worktree / "new").exists()) == (before, True)
    assert sweep(repo).status == 0
    assert not left.worktree.exists()


def test_the_sweep_of_a_container_only_reports_then(repo: Repo) -> None:
    """The one that ``init`` starts; one that is typed does what it is typed for."""
    left = orphan(repo, work="echo new > new")
    (repo.path / ".ralph" / "config.toml").write_text('orphans = "report"\n')
    printed = command("sweep", cwd=repo.path, env={"RALPH_WRAP_AT_START": "1"})
    assert (printed.status, printed.stdout.decode()) == (0, f"{left.session}  crashed  would finish\n")
    assert left.worktree.exists()


def test_an_empty_branch_stays_if_something_was_saved_before(repo: Repo) -> None:
    """By a sweep, or an end, that was killed afterwards; as the session's own end would have it."""
    left = orphan(repo, "--drop-empty", work="true")
    repo.git("update-ref", f"refs/ralph/snapshots/{left.id}/1", "HEAD")
    assert sweep(repo).status == 0
    assert left.branch in repo.branches()


def test_a_lock_that_cannot_be_opened_keeps_no_other(repo: Repo) -> None:
    """A symlink among them: the others, and the trash, are tidied all the same."""
    orphan(repo)
    agents = repo.path / ".ralph" / "run" / "agents"
    (agents / "ffff.lock").symlink_to("nowhere")
    (agents / "eeee.lock").touch()
    assert sweep(repo).status == 0
    assert [path.name for path in agents.iterdir()] == ["ffff.lock"]
    eventually(lambda: not [*repo.path.glob(".ralph/run/trash/*")], "the trash to be emptied")


def test_an_empty_registration_is_the_rest_of_one(repo: Repo) -> None:
    """Git deletes it file by file, and may be killed before the last step, with the worktree gone by then."""
    left = orphan(repo)
    shutil.rmtree(left.worktree)
    shutil.rmtree(left.registration)
    left.registration.mkdir()
    assert sweep(repo).status == 0
    assert (left.registration.exists(), left.record.exists()) == (False, False)
