"""Branches of ``--branch NAME``: every command finds them, and none loses their work."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import branches
from ralph_wrap.commands import drop as dropping
from ralph_wrap.commands.drop import RestoredBranch
from ralph_wrap.errors import RefusedError
from ralph_wrap.state import project
from tests.commands.drop.dropping import NOW, drop_some, dropped_and_error, restore_one
from tests.support.histories import grow, record
from tests.support.repo import Repo
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.sessions import Result

SH = ("--", "sh", "-c")
COMMIT = "git add -A; git commit -qm work"
NAMES = ["feature/login", "ralph/login-page", "topic"]


def _session(repo: Repo, name: str, script: str, *options: str) -> Result:
    return run(repo.path, "-n", "1", "--branch", name, "--name", "Login page", *options, *SH, script)


def _asked(repo: Repo, *words: str) -> tuple[int, Any]:
    answer = command(*words, "--json", cwd=repo.path)
    envelope = json.loads(answer.stdout)
    return answer.status, envelope.get("data", envelope.get("error"))


def _refs(repo: Repo) -> dict[str, str]:
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/ralph")
    return dict(row.split(" ") for row in rows.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_review_has_the_branch_with_its_saved_work(repo: Repo, name: str) -> None:
    """In one row, with the id of its session."""
    result = _session(repo, name, f"echo one > one; {COMMIT}; echo two > two")
    agent_id = result.report["id"]
    status, [row] = _asked(repo, "review")
    facts = {key: row[key] for key in ("id", "branch", "saved", "ahead", "title", "recorded")}
    assert (status, facts) == (
        0,
        {
            "id": agent_id,
            "branch": name,
            "saved": f"ralph/{agent_id}-wip",
            "ahead": 1,
            "title": "Login page",
            "recorded": True,
        },
    )


@pytest.mark.parametrize("by", ["id", "session", "branch", "title", "short name"])
def test_every_command_finds_it_by_every_name(repo: Repo, by: str) -> None:
    """From the difference to the restoration."""
    result = _session(repo, "ralph/login-page", f"echo one > one; {COMMIT}; echo two > two")
    report = result.report
    name = {
        "id": report["id"],
        "session": report["session"],
        "branch": "ralph/login-page",
        "title": "Login page",
        "short name": "login-page",
    }[by]
    assert "one" in command("diff", "--stat", name, cwd=repo.path).stdout.decode()
    assert command("logs", name, cwd=repo.path).status == 0
    assert _asked(repo, "stop", name)[1][0]["outcome"] == "ended"
    assert _asked(repo, "apply", name)[1]["files"] == ["two"]
    assert _asked(repo, "merge", name)[1][0]["outcome"] == "landed"
    assert _asked(repo, "drop", "--force", name)[1][0]["dropped"]
    assert repo.branches() == ["main"]
    assert _asked(repo, "restore", name)[1]["saved"] == f"ralph/{report['id']}-wip"
    assert repo.branches() == ["main", f"ralph/{report['id']}-wip", "ralph/login-page"]


def test_rm_takes_the_name_of_a_branch(repo: Repo) -> None:
    """The worktree goes, the branch stays."""
    result = _session(repo, "feature/login", COMMIT, "--keep-worktree")
    status, [row] = _asked(repo, "rm", "feature/login")
    assert (status, row["session"], row["removed"]) == (0, result.report["session"], True)
    assert repo.branches() == ["feature/login", "main"]


def test_a_title_of_several_branches_is_refused(repo: Repo) -> None:
    """The message lists them."""
    ids = [_session(repo, name, f"echo {name} > one; {COMMIT}").report["id"] for name in ("one", "two")]
    status, error = _asked(repo, "drop", "--force", "login page")
    assert (status, error["code"]) == (2, "usage")
    assert all(f"{agent_id} (Login page)" in error["message"] for agent_id in ids)
    assert repo.branches() == ["main", "one", "two"]


# Nothing is lost


def test_unmerged_commits_are_not_dropped(repo: Repo) -> None:
    """As on any other branch."""
    _session(repo, "feature/login", f"echo one > one; {COMMIT}")
    assert isinstance(drop_some(repo, "feature/login"), RefusedError)
    assert repo.branches() == ["feature/login", "main"]


def test_commits_from_before_the_session_are_not_dropped(repo: Repo) -> None:
    """The session added none, but the user's are nowhere else."""
    grow(repo, "feature/login", "main", {"mine": "mine\n"})
    _session(repo, "feature/login", "true")
    rows, error = dropped_and_error(repo, "feature/login")
    assert isinstance(error, RefusedError)
    assert "work" in rows[0].lost[0]
    assert repo.branches() == ["feature/login", "main"]


def test_two_branches_with_the_same_commits_are_not_dropped_together(repo: Repo) -> None:
    """Each of them would be the reason to drop the other one."""
    tip = grow(repo, "one", "main", {"mine": "mine\n"})
    repo.git("branch", "two", "one")
    record(repo, "a3f2", tip, branch="one")
    record(repo, "09be", tip, branch="two")
    assert isinstance(drop_some(repo, "one", "two"), RefusedError)
    assert repo.branches() == ["main", "one", "two"]


def test_the_main_branch_is_never_dropped(repo: Repo) -> None:
    """Nor one that is checked out, whatever a record names."""
    record(repo, "a3f2", repo.head, branch="main", branch_created=True)
    assert drop_some(repo, "main", force=True) is not None
    assert drop_some(repo, merged=True) is None
    assert repo.branches() == ["main"]


@pytest.mark.parametrize("name", ["*", "main/*", "feature", "refs/heads/main", "../main", "-d", "feature/*"])
def test_a_name_in_a_record_is_no_pattern(repo: Repo, name: str) -> None:
    """Only a branch with exactly this name counts."""
    repo.git("branch", "feature/login")
    record(repo, "a3f2", repo.head, branch=name, branch_created=True)
    assert branches.read(project.find_project(repo.path, os.environ)) == []


def test_a_session_that_was_refused_names_no_branch(repo: Repo) -> None:
    """It never worked on the branch, which is checked out elsewhere."""
    result = _session(repo, "main", "true")
    assert result.status == 125
    assert _asked(repo, "review") == (0, [])
    [row] = _asked(repo, "ps", "--all")[1]
    assert (row["branch"], row["iteration"]) == (None, 0)


# Many at once


@pytest.mark.parametrize("way", [{"merged": True}, {"empty": True}, {"older_than": 1.0}])
def test_a_bulk_operation_takes_what_a_session_created(repo: Repo, way: dict[str, Any]) -> None:
    """And leaves a branch that was there before, or that the user has created anew."""
    repo.git("branch", "before")
    for name in ("before", "created", "anew"):
        _session(repo, name, "true")
    repo.git("branch", "-D", "anew")
    repo.git("branch", "anew")
    assert drop_some(repo, now=NOW + 9999, **way) is None
    assert repo.branches() == ["anew", "before", "main"]


def test_a_bulk_operation_leaves_what_only_a_record_calls_created(repo: Repo) -> None:
    """An agent can write the record; git's own log of the branch must agree, and may be absent."""
    repo.git("branch", "logged")
    repo.git("-c", "core.logAllRefUpdates=false", "branch", "silent")
    for agent_id, name in (("a3f2", "logged"), ("09be", "silent")):
        record(repo, agent_id, repo.head, branch=name, branch_created=True)
    assert drop_some(repo, merged=True) is None
    assert repo.branches() == ["logged", "main", "silent"]


# Down and back


def test_a_dropped_branch_keeps_its_whole_name(repo: Repo) -> None:
    """It is not mixed up with one below ralph/ that ends like it."""
    for agent_id, name in (("a3f2", "foo"), ("09be", "ralph/foo")):
        repo.git("branch", name)
        record(repo, agent_id, repo.head, branch=name)
        assert drop_some(repo, name) is None
    assert _refs(repo) == {
        "refs/heads/main": repo.head,
        "refs/ralph/dropped-branches/foo": repo.head,
        "refs/ralph/dropped/foo": repo.head,
    }
    assert restore_one(repo, "a3f2") == RestoredBranch("a3f2", "foo", repo.head, None)
    assert restore_one(repo, "ralph/foo") == RestoredBranch("09be", "ralph/foo", repo.head, None)
    assert repo.branches() == ["foo", "main", "ralph/foo"]


def test_an_expired_branch_goes_with_its_snapshots(repo: Repo) -> None:
    """Those of a branch that can still be restored, or lives, stay."""
    began = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    for agent_id, name in (("a3f2", "gone"), ("09be", "here")):
        repo.git("branch", name)
        record(repo, agent_id, repo.head, branch=name, began=began)
        repo.git("update-ref", f"refs/ralph/snapshots/{agent_id}/1", repo.head)
    assert drop_some(repo, "gone") is None
    found_project = project.find_project(repo.path, os.environ)
    assert dropping.expire(found_project, 10.0, NOW + 5) == []
    assert dropping.expire(found_project, 10.0, NOW + 20) == []
    assert dropping.expire(found_project, 10.0, NOW + 30) == ["gone"]
    left = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph").splitlines()
    assert left == ["refs/ralph/snapshots/09be/1"]


def test_saved_work_of_an_earlier_session_is_a_row_of_its_own(repo: Repo) -> None:
    """The branch has the saved work of its newest session."""
    first = _session(repo, "feature/login", "echo one > one").report
    second = _session(repo, "feature/login", "echo two > two").report
    rows = {row["branch"]: (row["id"], row["saved"], row["belongs_to"]) for row in _asked(repo, "review")[1]}
    older, newer = sorted((first, second), key=lambda report: report["session"])
    assert rows == {
        "feature/login": (newer["id"], f"ralph/{newer['id']}-wip", None),
        f"ralph/{older['id']}-wip": (older["id"], f"ralph/{older['id']}-wip", "feature/login"),
    }
