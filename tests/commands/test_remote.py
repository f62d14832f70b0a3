"""The commands that first fetch from a remote, and the deletion of a session there.

Two clones of one bare repository are the machines.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.damage import damaged
from tests.support.machines import claim_of, refs
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

MIRRORED = ("--remote", "origin")
COMMIT = "echo a > a; git add a; git commit -qm a"


def session_in(repo: Repo, script: str = COMMIT + "; echo loose > loose") -> str:
    """Run a session that leaves a commit, and normally saved work; return its agent id."""
    ended = run(repo.path, *MIRRORED, "-n", "1", "--", "sh", "-c", script)
    assert ended.status == 0, ended.stderr
    return str(ended.report["id"])


def asked(other: Repo, *words: str) -> Any:
    """Return what a command answers as JSON."""
    answered = command(*words, *MIRRORED, "--json", cwd=other.path)
    assert answered.status == 0, answered.stderr
    return json.loads(answered.stdout)["data"]


def test_commands_fetch_first(repo: Repo, other: Repo) -> None:
    """Without a fetch before, review lists the branch, diff shows it, and merge lands it."""
    first = session_in(repo)
    assert [row["id"] for row in asked(other, "review")] == [first]
    second = session_in(repo)
    shown = command("diff", second, *MIRRORED, cwd=other.path)
    assert b"+++ b/a" in shown.stdout, shown.stderr
    third = session_in(repo)
    [landed] = asked(other, "merge", third)
    assert landed["outcome"] == "landed"
    assert (other.path / "a").read_text() == "a\n"


@pytest.mark.parametrize("name", ["origin/main", "origin"])
def test_fetch_makes_no_branch_that_hides_one_of_the_remote(
    repo: Repo, remote: Repo, other: Repo, name: str
) -> None:
    """A forged claim names it, and ``git reset --hard origin/main`` would take the commit of the agent."""
    agent_id = session_in(repo, COMMIT)
    forged = repo.path / ".git/forged"
    forged.write_text(json.dumps(claim_of(remote, agent_id) | {"branch": name}))
    blob = repo.git("hash-object", "-w", str(forged))
    evil = f"ralph/{agent_id}:refs/heads/{name}"
    repo.git("push", "-qf", "origin", f"{blob}:refs/ralph/claims/{agent_id}", evil)
    before = other.git("rev-parse", "refs/remotes/origin/main")
    [entry] = asked(other, "fetch")
    assert (entry["action"], "would hide" in entry["note"]) == ("left", True)
    assert other.git("rev-parse", "origin/main") == before
    assert name not in other.branches()


def test_a_fetch_after_one_that_was_killed_brings_the_branch(repo: Repo, other: Repo) -> None:
    """The killed one had fetched the refs of the remote, and neither made branches nor records."""
    agent_id = session_in(repo, COMMIT)
    [entry] = asked(other, "fetch")
    other.git("branch", "-qD", f"ralph/{agent_id}")
    shutil.rmtree(other.path / ".ralph/run/sessions" / entry["session"])
    assert [entry["action"] for entry in asked(other, "fetch")] == ["new"]
    assert f"ralph/{agent_id}" in other.branches()


def test_ps_lists_what_runs_elsewhere(repo: Repo, other: Repo) -> None:
    """A session that runs on another machine is listed with --remote, and not among those that run here."""
    session_in(repo)
    with Session(repo.path, *MIRRORED, "--", "sh", "-c", "exec sleep 1000") as session:
        agent_id = session.directory.name.rpartition("-")[2]
        session.wait_for("agent.started")
        entries = asked(other, "ps")
    assert [(entry["id"], entry["ended_by"]) for entry in entries] == [(agent_id, "elsewhere")]
    assert json.loads(command("ps", "--json", cwd=other.path).stdout)["data"] == []


def test_drop_says_what_the_remote_still_has(repo: Repo, remote: Repo) -> None:
    """The command that it prints deletes that, although the branch here is gone; restore brings all back."""
    agent_id = session_in(repo)
    before = refs(remote)
    dropped = command("drop", agent_id, "--force", cwd=repo.path)
    assert refs(remote) == before
    [hint] = [event["hint"] for event in map(json.loads, dropped.stderr.splitlines()) if "hint" in event]
    words = hint.partition("ralph-wrap ")[2].split()
    there = command(*words, cwd=repo.path)
    assert (there.status, refs(remote)) == (0, {}), there.stderr
    assert command("restore", agent_id, cwd=repo.path).status == 0
    assert repo.show(f"ralph/{agent_id}:a") == b"a\n"
    assert repo.show(f"ralph/{agent_id}-wip:loose") == b"loose\n"


def test_drop_on_the_remote_loses_nothing(repo: Repo, remote: Repo, other: Repo) -> None:
    """It needs --force as a drop here does; snapshots and rescued work of the remote then stay here."""
    agent_id = session_in(repo, COMMIT)
    rescued = repo.git("commit-tree", "main^{tree}", "-p", "main", "-m", "rescued")
    rescue = f"refs/ralph/rescue/{agent_id}/20260714T093005Z-{agent_id}/heads/ralph/{agent_id}"
    repo.git("push", "-q", "origin", f"{rescued}:{rescue}")
    before = refs(remote)
    refused = command("drop", agent_id, *MIRRORED, cwd=other.path)
    assert (refused.status, "would be lost" in refused.stderr) == (5, True), refused.stderr
    assert refs(remote) == before
    other.git("merge", "-q", f"ralph/{agent_id}")
    rescue_alone = command("drop", agent_id, *MIRRORED, cwd=other.path)
    assert (rescue_alone.status, rescue in rescue_alone.stderr) == (5, True), rescue_alone.stderr
    assert refs(remote) == before
    forced = command("drop", agent_id, *MIRRORED, "--force", cwd=other.path)
    assert (forced.status, refs(remote)) == (0, {}), forced.stderr
    assert command("fetch", cwd=other.path).status == 0
    assert other.git("for-each-ref", "--contains", rescued, "refs/ralph/snapshots/")


def test_drop_leaves_what_has_moved(repo: Repo, remote: Repo) -> None:
    """A push that comes between fetch and deletion wins, and all refs of the session stay."""
    agent_id = session_in(repo)
    tip = remote.git("rev-parse", f"ralph/{agent_id}")
    newer = remote.git("commit-tree", "main^{tree}", "-p", tip, "-m", "newer")
    hook = remote.path / "hooks" / "pre-receive"
    hook.write_text(
        f"#!/bin/sh\nenv -u GIT_QUARANTINE_PATH git update-ref refs/heads/ralph/{agent_id} {newer}\n"
    )
    hook.chmod(0o755)
    before = refs(remote)
    left = command("drop", agent_id, *MIRRORED, "--force", cwd=repo.path)
    assert left.status != 0
    assert f"origin still has session {agent_id}" in left.stderr
    assert refs(remote) == {**before, f"refs/heads/ralph/{agent_id}": newer}


def test_drop_leaves_a_session_that_runs(repo: Repo, remote: Repo, other: Repo) -> None:
    """Even with --force; then nothing is dropped here, either."""
    repo.write(".ralph/config.toml", 'remote_beat = "200ms"\n')
    with Session(repo.path, *MIRRORED, "--", "sh", "-c", "exec sleep 1000") as session:
        agent_id = session.directory.name.rpartition("-")[2]
        session.wait_for("mirror.pushed")
        refused = command("drop", agent_id, *MIRRORED, "--force", cwd=other.path)
        assert (refused.status, "runs on" in refused.stderr) == (6, True), refused.stderr
        assert f"refs/ralph/claims/{agent_id}" in refs(remote)
    assert other.branches() == ["main", f"ralph/{agent_id}"]


def test_resume_checks_options_before_it_asks_a_remote(repo: Repo) -> None:
    """To watch a session that may run elsewhere takes minutes; a wrong value would show only after that."""
    repo.git("remote", "add", "gone", str(repo.path / "no-such.git"))
    words = ("resume", "1f3a", "--remote", "gone")
    wrong = command(*words, "--max-time", "soon", cwd=repo.path)
    assert (wrong.status, "max-time" in wrong.stderr) == (2, True), wrong.stderr
    right = command(*words, "--max-time", "1h", cwd=repo.path)
    assert "gone cannot be read" in right.stderr, right.stderr


def test_a_fetched_branch_has_a_reflog_once_it_moves(repo: Repo, other: Repo) -> None:
    """A new branch replaces nothing, and costs one file less; then the reflog has the commit before."""
    agent_id = session_in(repo, COMMIT)
    log = other.path / f".git/logs/refs/heads/ralph/{agent_id}"
    asked(other, "fetch")
    assert not log.exists()
    before = other.git("rev-parse", f"ralph/{agent_id}")
    more = ("--branch", f"ralph/{agent_id}", "--", "sh", "-c", "git commit --allow-empty -qm b")
    again = run(repo.path, *MIRRORED, "-n", "1", *more)
    assert again.status == 0, again.stderr
    asked(other, "fetch")
    assert before in log.read_text().split()[0]


@pytest.mark.parametrize(
    ("how", "which"),
    [
        ("missing", ""),
        ("empty", ":a"),
        ("truncated", "^{tree}"),
        ("flipped byte", ":a"),
        ("other content", ":a"),
        ("other type", ""),
    ],
)
def test_damaged_commits_are_not_fetched(repo: Repo, remote: Repo, other: Repo, how: str, which: str) -> None:
    """No branch is made of them, and the claim stays; whole again, they come."""
    agent_id = session_in(repo, COMMIT)
    (remote.path / ".git").symlink_to(".")
    oid = repo.git("rev-parse", f"ralph/{agent_id}{which}")
    with damaged(remote, oid, how):
        fetched = command("fetch", *MIRRORED[1:], cwd=other.path)
        assert (fetched.status == 0, bool(fetched.stderr)) == (False, True)
        assert f"ralph/{agent_id}" not in other.branches()
    assert [entry["action"] for entry in asked(other, "fetch")] == ["new"]
    assert other.git("rev-parse", f"ralph/{agent_id}") == repo.git("rev-parse", f"ralph/{agent_id}")
