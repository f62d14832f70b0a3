"""Many sessions at once on one repository, and ids that run short."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import Session, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

SESSIONS = 16


@pytest.mark.parametrize("settings", [[], ["branch.autoSetupMerge=always", "core.fsmonitor=true"]])
def test_sessions_at_once(repo: Repo, script: Callable[[str], str], settings: list[str]) -> None:
    """None fails, none falls back, all ids differ, the rule is appended once, and nothing leaks."""
    for setting in settings:
        repo.git("config", *setting.split("="))
    before = repo.fingerprint()
    agent = script(
        "echo $RALPH_AGENT_ID > mine; git add mine; git commit -qm mine; echo $RALPH_AGENT_ID > left"
    )
    with ExitStack() as stack:
        running = [stack.enter_context(Session(repo.path, "-n", "1", "--", agent)) for _ in range(SESSIONS)]
        results = [session.finish() for session in running]
    assert [(result.status, result.warnings) for result in results] == [(0, [])] * SESSIONS
    ids = {result.report["id"] for result in results}
    assert len(ids) == SESSIONS
    for agent_id in ids:
        assert repo.show(f"ralph/{agent_id}:mine") == f"{agent_id}\n".encode()
        assert repo.show(f"ralph/{agent_id}-wip:left") == f"{agent_id}\n".encode()
    assert (repo.path / ".gitignore").read_text() == ".ralph/worktrees/\n"
    assert repo.worktrees() == []
    assert not list((repo.path / ".ralph" / "worktrees").iterdir())
    assert not list((repo.path / ".ralph" / "run" / "agents").iterdir())
    assert repo.fingerprint() == before


def _take_all_ids_but(repo: Repo, left: int) -> set[str]:
    """Give every id but a few to a packed branch, and return those."""
    free = {f"{number * 1000 + 7:04x}" for number in range(left)}
    head = repo.head
    rows = [f"{head} refs/heads/ralph/{number:04x}\n" for number in range(1 << 16)]
    packed = [row for row in rows if row[-5:-1] not in free]
    (repo.path / ".git" / "packed-refs").write_text(
        "".join(["# pack-refs with: peeled fully-peeled sorted \n", *packed])
    )
    return free


def test_a_free_id_is_found_among_packed_branches(repo: Repo, script: Callable[[str], str]) -> None:
    """65,533 of 65,536 ids are taken."""
    free = _take_all_ids_but(repo, 3)
    result = run(repo.path, "-n", "1", "--", script("true"))
    assert (result.status, result.warnings) == (0, [])
    assert result.report["id"] in free
    used = {run(repo.path, "-n", "1", "--", script("true")).report["id"] for _ in range(2)} | {
        result.report["id"]
    }
    assert used == free
    last = run(repo.path, "-n", "1", "--", script("true"))
    assert last.status == 125
    assert last.warnings[-1]["message"].startswith("no agent id is left")


def test_no_id_left(repo: Repo, script: Callable[[str], str]) -> None:
    """A clear error, and the agent does not run."""
    _take_all_ids_but(repo, 0)
    result = run(repo.path, "--", script("touch $RALPH_PROJECT/ran"))
    assert result.status == 125
    [error] = result.warnings
    assert error["message"].startswith("no agent id is left")
    assert "git branch" in error["hint"]
    assert not (repo.path / "ran").exists()


def test_loose_and_saved_branches_take_their_ids(repo: Repo, script: Callable[[str], str]) -> None:
    """An id is taken by ralph/<id>, by ralph/<id>-wip alone, and by a snapshot alone."""
    free = sorted(_take_all_ids_but(repo, 4))
    repo.git("update-ref", f"refs/heads/ralph/{free[0]}", "HEAD")
    repo.git("update-ref", f"refs/heads/ralph/{free[1]}-wip", "HEAD")
    repo.git("update-ref", f"refs/ralph/snapshots/{free[2]}/1", "HEAD")
    assert run(repo.path, "-n", "1", "--", script("true")).report["id"] == free[3]


def test_a_copied_project_does_not_confuse_its_sessions(repo: Repo, script: Callable[[str], str]) -> None:
    """A record that came with a copy belongs to no session here and blocks only its id."""
    with Session(repo.path, "-n", "1", "--", script("exec sleep 600")) as session:
        session.wait_for("agent.started")
        copy = repo.path.with_name("copy")
        shutil.copytree(repo.path, copy, symlinks=True)
        record = json.loads(next((copy / ".ralph/run/agents").glob("*.json")).read_text())
        result = run(copy, "-n", "1", "--", script("true"))
        assert (result.status, result.warnings) == (0, [])
        assert result.report["id"] != record["id"]
