"""A worktree that its user has locked stays, and one that nothing proves to be the session's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.git_shim import shim_git
from tests.support.orphans import Orphan, orphan, orphans, sweep
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

MARK = "ralph-wrap-session"  # the file in a registration

pytestmark = pytest.mark.usefixtures("ended")


# -- a lock of the user's --


def lock(left: Orphan, reason: str = "mine") -> None:
    """Take a registration over as a user does."""
    left.repo.git("worktree", "unlock", left.worktree)
    left.repo.git("worktree", "lock", "--reason", reason, left.worktree)


@pytest.mark.parametrize("reason", ["mine", "", "ralph-wrap session of another one"])
def test_a_worktree_that_its_user_has_locked_is_saved_and_stays(repo: Repo, reason: str) -> None:
    """The sweep says so, and finishes the session."""
    left = orphan(repo)
    lock(left, reason)
    swept = sweep(repo)
    assert swept.status == 0
    assert f"its user has locked it: {reason or 'no reason given'}" in swept.stdout.decode()
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert (left.worktree / "new").read_text() == "new\n"
    assert (left.registration / "locked").read_text().strip() == reason
    assert not left.record.exists()


def test_rm_removes_a_worktree_that_its_user_has_unlocked_again(repo: Repo) -> None:
    """Until then it refuses."""
    left = orphan(repo)
    lock(left)
    sweep(repo)
    refused = command("rm", left.id, cwd=repo.path)
    assert (refused.status, "its user has locked it: mine" in refused.stderr) == (5, True)
    assert left.worktree.exists()
    repo.git("worktree", "unlock", left.worktree)
    assert command("rm", left.id, cwd=repo.path).status == 0
    assert not left.worktree.exists()


def test_a_session_leaves_a_worktree_that_was_locked_meanwhile(
    repo: Repo, script: Callable[[str], str]
) -> None:
    """By its user, while the agent worked: saved, kept, and named in the report."""
    unlock = 'git worktree unlock "$RALPH_WORKSPACE"'
    agent = script(f'echo new > new; {unlock} && git worktree lock --reason mine "$RALPH_WORKSPACE"')
    ended = run(repo.path, "-n", "1", "--", agent)
    assert ended.status == 0
    assert "its user has locked it: mine" in ended.report["kept"]
    assert repo.show(f"{ended.report['saved']}:new") == b"new\n"
    assert repo.worktrees() == [ended.report["workspace"]]


def test_a_lock_that_comes_during_the_removal_brings_the_worktree_back(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the save, while the directory is aside for the last look, which needs git: a file was touched."""
    left = orphan(repo)
    aside = repo.path / ".ralph/run/trash" / f"{left.session}.leaving"
    touches = f"[ ! -e {left.worktree}/new ] || touch {left.worktree}/new"
    locks = f"[ ! -e {aside} ] || echo mine > {left.registration}/locked"
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f'*) {touches}; {locks}; exec "$REAL" "$@" ;;'))
    swept = sweep(repo)
    assert "its user has locked it: mine" in swept.stdout.decode()
    assert (left.worktree / "new").read_text() == "new\n"
    assert repo.worktrees() == [str(left.worktree)]


# -- a registration without a mark --


@pytest.mark.parametrize("field", ["state", "marked"])
def test_a_worktree_whose_registration_has_no_mark_stays(repo: Repo, field: str) -> None:
    """Lock and branch name the session, and they prove nothing: an agent can write both, and the record."""
    left = orphan(repo)
    (left.registration / MARK).unlink()
    left.change(**{field: "running" if field == "state" else False})
    before = listing(left.worktree)
    swept = sweep(repo)
    assert swept.status == 5
    assert "does not say that it is the session's" in swept.stdout.decode()
    assert listing(left.worktree) == before
    assert left.is_there()


# -- several at once --


def test_each_of_two_dead_sessions_has_the_worktree_of_the_other(repo: Repo, tmp_path: Path) -> None:
    """Exchanged by hand: neither is saved under the wrong name."""
    one, other = orphans(repo, "echo one > one", "echo other > other")
    one.worktree.rename(tmp_path / "aside")
    other.worktree.rename(one.worktree)
    (tmp_path / "aside").rename(other.worktree)
    before = listing(one.worktree), listing(other.worktree)
    assert sweep(repo).status == 5
    assert (listing(one.worktree), listing(other.worktree)) == before
    assert not {one.wip, other.wip} & {*repo.branches()}
