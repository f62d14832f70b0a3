"""``ralph-wrap sweep``: whose work is finished, and who is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import liveness
from tests.support.gate import Gate
from tests.support.listing import listing
from tests.support.mounts import mounted, needs_mounts
from tests.support.orphans import Orphan, orphan, orphans, sweep
from tests.support.processes import end_all, running
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, read_events, run
from tests.support.shim import shim_git
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

NESTED = "echo new > new; git init -q inner; git -C inner commit -q --allow-empty -m inner"
"""Work that cannot be saved."""


@pytest.fixture(autouse=True)
def home(_sealed: None, tmp_path: Path) -> Iterator[Path]:
    """Yield the ``HOME`` by which the processes of this test are known; they end with it."""
    home = tmp_path / "home"
    yield home
    end_all(home)


def _state(repo: Repo) -> dict[str, object]:
    """Return everything that a sweep could change."""
    return {"files": listing(repo.path), **repo.fingerprint()}


# Orphans


def test_an_orphan_is_finished(repo: Repo) -> None:
    """Its work is saved, its worktree removed, its branch kept, its record the session's own."""
    left = orphan(repo, work="echo done > done; git add done; git commit -qm done; echo new > new")
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  orphan  finished  {left.wip}\n")
    assert (repo.show(f"{left.branch}:done"), repo.show(f"{left.wip}:new")) == (b"done\n", b"new\n")
    gone = (left.record, left.lock, left.worktree, left.registration)
    assert [path for path in gone if path.exists()] == []
    assert json.loads((left.directory / "record.json").read_text())["state"] == "finished"


@needs_mounts
def test_what_ran_on_the_host_is_left_to_the_host(repo: Repo) -> None:
    """From inside a container nobody sees what an agent has left running there."""
    if not liveness.is_of_host(liveness.pid_namespace()):
        pytest.skip("this is a container itself")
    left = orphan(repo, work="echo new > new")
    inside = ("unshare", "--pid", "--fork", "--mount-proc", PROGRAM, "sweep")
    swept = subprocess.run(inside, cwd=repo.path, capture_output=True, text=True, check=False)
    assert (swept.returncode, "it ran on the host" in swept.stderr) == (5, True), swept.stderr
    assert (left.worktree / "new").exists()
    assert sweep(repo).status == 0
    assert not left.worktree.exists()


@needs_mounts
def test_a_trash_on_another_file_system_is_no_obstacle(repo: Repo) -> None:
    """What was set aside beside the worktrees, and let go by git, is deleted there."""
    left = orphan(repo, work="echo new > new")
    aside = left.worktree.with_name(f"{left.session}.leaving")
    left.worktree.rename(aside)
    shutil.rmtree(left.registration)
    with mounted(repo.path / ".ralph" / "run" / "trash", "-t", "tmpfs", "tmpfs"):
        assert sweep(repo).status == 0
        eventually(lambda: not aside.exists(), "what was set aside to go")
    assert not left.record.exists()


def test_the_report_of_an_orphan_tells_that_it_was_killed(repo: Repo) -> None:
    """And what became of its work."""
    left = orphan(repo)
    sweep(repo)
    names = ("ended_by", "exit_status", "iterations", "commits", "branch", "saved", "saved_paths", "kept")
    assert {name: left.report[name] for name in names} == {
        "ended_by": "killed",
        "exit_status": 137,
        "iterations": 1,
        "commits": 0,
        "branch": left.branch,
        "saved": left.wip,
        "saved_paths": ["new"],
        "kept": None,
    }


def test_a_sweep_is_told_in_the_sessions_event_log(repo: Repo) -> None:
    """From the finding to the end, under the session's own id."""
    left = orphan(repo)
    before = len(read_events(left.directory))
    sweep(repo)
    events = read_events(left.directory)[before:]
    assert [event["event"] for event in events] == [
        "session.found_dead",
        "work.saved",
        "worktree.removed",
        "session.swept",
    ]
    assert {event["session_id"] for event in events} == {left.session}


def test_a_second_sweep_has_nothing_to_do(repo: Repo) -> None:
    """It says nothing and changes nothing."""
    orphan(repo)
    sweep(repo)
    trash = repo.path / ".ralph" / "run" / "trash"
    eventually(lambda: not [*trash.iterdir()], "the trash to be emptied")
    before = _state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout, swept.stderr) == (0, b"", "")
    assert _state(repo) == before


def test_the_main_checkout_is_left_alone(repo: Repo) -> None:
    """Its files, its index, its stash and its configuration, whatever is going on there."""
    orphan(repo)
    repo.write("file.txt", "stashed\n")
    repo.git("stash")
    repo.write("file.txt", "changed\n")
    repo.write("staged", "staged\n")
    repo.git("add", "staged")
    before = {**repo.fingerprint(), "status": repo.git("status", "--porcelain")}
    assert sweep(repo).status == 0
    assert {**repo.fingerprint(), "status": repo.git("status", "--porcelain")} == before


def test_a_dry_run_touches_nothing(repo: Repo) -> None:
    """It tells what a sweep would do."""
    left = orphan(repo)
    before = _state(repo)
    swept = sweep(repo, "--dry-run")
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  orphan  would finish\n")
    assert _state(repo) == before


def test_a_session_without_a_worktree_is_released(repo: Repo) -> None:
    """What was done in the project itself stays there."""
    left = orphan(repo, "--isolation", "off")
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  orphan  finished\n")
    assert not left.record.exists()
    assert (repo.path / "new").read_bytes() == b"new\n"
    assert repo.branches() == ["main"]


def test_a_project_without_git_is_swept(tmp_path: Path) -> None:
    """There is nothing to save, only to release."""
    plain = tmp_path / "plain"
    plain.mkdir()
    left = orphan(Repo(plain))
    assert sweep(Repo(plain)).status == 0
    assert not left.record.exists()
    assert (plain / "new").exists()


# Settings of the dead session


def test_keep_worktree_is_respected(repo: Repo) -> None:
    """A worktree that was to be kept is, and that is no failure."""
    left = orphan(repo, "--keep-worktree")
    swept = sweep(repo)
    row = f"{left.session}  orphan  finished  it was asked for\n"
    assert (swept.status, swept.stdout.decode()) == (0, row)
    assert (left.worktree / "new").read_bytes() == b"new\n"
    assert left.worktree.name in " ".join(repo.worktrees())
    assert not left.record.exists()


def test_on_dirty_keep_is_respected(repo: Repo) -> None:
    """What is uncommitted stays where it is, unsaved."""
    left = orphan(repo, "--on-dirty", "keep")
    swept = sweep(repo)
    row = f"{left.session}  orphan  finished  1 uncommitted path\n"
    assert (swept.status, swept.stdout.decode()) == (0, row)
    assert (left.worktree / "new").read_bytes() == b"new\n"
    assert left.wip not in repo.branches()


def test_on_dirty_keep_removes_what_is_clean(repo: Repo) -> None:
    """Negative control: with nothing uncommitted, the same setting keeps nothing."""
    left = orphan(repo, "--on-dirty", "keep", work="true")
    assert sweep(repo).status == 0
    assert not left.worktree.exists()


def test_drop_empty_is_respected(repo: Repo) -> None:
    """The branch of a session that nothing came of goes."""
    orphan(repo, "--drop-empty", work="true")
    assert sweep(repo).status == 0
    assert repo.branches() == ["main"]


def test_without_drop_empty_an_empty_branch_stays(repo: Repo) -> None:
    """Negative control."""
    left = orphan(repo, work="true")
    assert sweep(repo).status == 0
    assert repo.branches() == ["main", left.branch]


def test_somebody_elses_branch_is_never_dropped(repo: Repo) -> None:
    """A branch that a session was told to continue is not its own, even if nothing came of it."""
    repo.git("branch", "mine")
    orphan(repo, "--branch", "mine", "--drop-empty", work="true")
    assert sweep(repo).status == 0
    assert repo.branches() == ["main", "mine"]


# What cannot be saved


def test_what_cannot_be_saved_is_kept(repo: Repo) -> None:
    """Status 5; the answer and the error name session and reason; all of the work is where it was."""
    left = orphan(repo, work=NESTED)
    before = listing(left.worktree)
    swept = sweep(repo)
    reason = "nested repository inner cannot be saved"
    row = f"{left.session}  orphan  kept  {left.wip}  {reason}\n"
    assert (swept.status, swept.stdout.decode()) == (5, row)
    error = swept.narration[-1]
    assert (error["level"], error["code"]) == ("error", "refused")
    assert error["message"] == f"{left.session}: {reason}"
    assert error["hint"] == "nothing is lost: all unsaved work is still in the worktree"
    assert listing(left.worktree) == before
    assert left.report["kept"] == reason


def test_what_is_kept_is_told_once(repo: Repo) -> None:
    """Its session is finished: to remove the worktree is for a person."""
    left = orphan(repo, work=NESTED)
    assert sweep(repo).status == 5
    again = sweep(repo)
    assert (again.status, again.stdout) == (0, b"")
    assert left.worktree.exists()


def test_a_worktree_that_somebody_works_in_is_kept(repo: Repo) -> None:
    """A shell in it is a reason; whose it is does not matter."""
    left = orphan(repo)
    with subprocess.Popen(("sleep", "1000"), cwd=left.worktree) as process:
        try:
            swept = sweep(repo)
            assert swept.status == 5
            assert f"processes work in it: sleep ({process.pid})" in swept.stdout.decode()
            assert process.poll() is None
        finally:
            process.kill()
    assert (left.worktree / "new").exists()


def test_one_that_cannot_be_finished_stops_no_other(repo: Repo) -> None:
    """All the others are finished all the same."""
    stuck, good = orphans(repo, NESTED, "echo new > new")
    swept = sweep(repo)
    assert swept.status == 5
    rows = {row.split("  ")[0]: row.split("  ")[2] for row in swept.stdout.decode().splitlines()}
    assert rows == {stuck.session: "kept", good.session: "finished"}


# JSON


def test_json_is_the_envelope(repo: Repo) -> None:
    """One object for each session that is not finished."""
    left = orphan(repo)
    swept = sweep(repo, "--json")
    assert swept.status == 0
    assert json.loads(swept.stdout) == {
        "version": 1,
        "success": True,
        "tool": "sweep",
        "data": [
            {
                "id": left.id,
                "session": left.session,
                "verdict": "orphan",
                "action": "finished",
                "saved": left.wip,
                "note": None,
                "hint": None,
            }
        ],
    }


def test_json_tells_what_was_kept(repo: Repo) -> None:
    """The envelope of an error, and the answer beside it."""
    left = orphan(repo, work=NESTED)
    swept = sweep(repo, "--json")
    answer = json.loads(swept.stdout)
    assert (swept.status, answer["success"], answer["error"]["code"]) == (5, False, "refused")
    assert [(entry["id"], entry["action"]) for entry in answer["data"]] == [(left.id, "kept")]


# Who is not touched


def test_a_live_session_is_not_touched(repo: Repo) -> None:
    """It is not even mentioned."""
    with Session(repo.path, "--delay", "1h", "--", "sh", "-c", "echo new > new") as session:
        session.wait_until_kept()
        before = _state(repo)
        swept = sweep(repo)
        assert (swept.status, swept.stdout, swept.stderr) == (0, b"", "")
        assert _state(repo) == before
        session.send(signal.SIGTERM)
        assert session.finish().report["saved"] is not None


def test_a_foreign_session_is_not_touched(repo: Repo) -> None:
    """It may be alive on another machine: said, and left."""
    left = orphan(repo)
    left.move_owner_away()
    before = _state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  foreign  left\n")
    assert _state(repo) == before


def test_a_record_copied_without_its_lock_is_not_touched(repo: Repo) -> None:
    """Without the lock nothing is proved."""
    left = orphan(repo)
    left.lock.unlink()
    before = _state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  unknown  left\n")
    assert _state(repo) == before


def test_a_session_that_is_just_starting_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    """At no moment of its start: it goes on as if nobody had looked."""
    # Not while it holds the repository's lock: a sweep waits for that.
    for number, moment in enumerate(("for-each-ref", "check-ignore", "read-tree --reset")):
        with (
            Gate(tmp_path / f"gate-{number}", moment) as gate,
            Session(repo.path, "-n", "1", "--", "sh", "-c", "echo new > new", env=gate.env) as session,
        ):
            gate.wait()
            before = listing(repo.path / ".ralph")
            swept = sweep(repo)
            assert (swept.status, swept.stdout, swept.stderr) == (0, b"", ""), moment
            assert listing(repo.path / ".ralph") == before, moment
            gate.open()
            result = session.finish()
        assert (result.status, result.report["ended_by"]) == (0, "max-iterations"), moment
        assert repo.show(f"{result.report['saved']}:new") == b"new\n", moment


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
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  foreign  finished  {left.wip}\n")
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
    before = _state(repo)
    swept = sweep(repo, "--dry-run", "--adopt", left.id)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  foreign  would finish\n")
    assert _state(repo) == before


@pytest.mark.parametrize("name", ["beef", "../x", "", "-x", "20260102T030405Z-beef"])
def test_who_is_not_there_cannot_be_adopted(repo: Repo, name: str) -> None:
    """Status 4, and nothing is swept."""
    left = orphan(repo)
    swept = sweep(repo, f"--adopt={name}")
    assert (swept.status, swept.stdout) == (4, b"")
    assert swept.narration[-1]["message"] == f"no unfinished session has the id {name}"
    assert left.is_there()


def test_who_has_ended_cannot_be_adopted(repo: Repo) -> None:
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
    """Status 5: nobody knows what would be adopted."""
    left = orphan(repo)
    left.record.write_text("{")
    swept = sweep(repo, "--adopt", left.id)
    assert (swept.status, swept.narration[-1]["code"]) == (5, "refused")
    assert (left.worktree / "new").exists()


# Several at once


@pytest.mark.parametrize("moment", ["symbolic-ref", "write-tree", "rev-list --count"])
def test_two_sweeps_at_once(repo: Repo, tmp_path: Path, moment: str) -> None:
    """One finishes the orphan, the other one leaves it alone, wherever the first one is."""
    left = orphan(repo)
    with Gate(tmp_path / "gate", moment) as gate:
        first = subprocess.Popen(
            (PROGRAM, "sweep"), cwd=repo.path, env={**os.environ, **gate.env}, stdout=subprocess.PIPE
        )
        with first:
            gate.wait()
            second = sweep(repo)
            assert (second.status, second.stdout) == (0, b"")
            gate.open()
            answer, _ = first.communicate()
    assert (first.returncode, answer.decode()) == (0, f"{left.session}  orphan  finished  {left.wip}\n")
    assert repo.show(f"{left.wip}:new") == b"new\n"
    assert repo.git("fsck", "--no-dangling") == ""


def test_many_sweeps_at_once(repo: Repo) -> None:
    """Each orphan is finished by exactly one of them."""
    left = {one.session for one in orphans(repo, *["echo new > new"] * 4)}
    started = [
        subprocess.Popen((PROGRAM, "sweep"), cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    answers = [process.communicate()[0].decode() for process in started]
    assert [process.returncode for process in started] == [0] * 6
    rows = [row.split("  ") for answer in answers for row in answer.splitlines()]
    assert sorted(row[0] for row in rows if row[2] == "finished") == sorted(left)
    assert {row[2] for row in rows} <= {"finished", "left"}  # who came too late says so


# Processes that a dead session has left running


def _asleep(mark: Path) -> str:
    return f"echo new > new; (setsid sh -c 'echo $$ > {mark}; exec sleep 1000' &); while :; do sleep 1; done"


def _pid(mark: Path) -> int:
    return int(eventually(lambda: mark.read_text().strip() if mark.exists() else None, "a process"))


def test_what_a_dead_session_left_running_is_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """Its agent, and what that has detached, before anything is saved; nobody else's."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    with (
        Session(repo.path, "--", "sh", "-c", _asleep(mine)) as dead,
        Session(repo.path, "--", "sh", "-c", _asleep(other)) as alive,
    ):
        pids = _pid(mine), _pid(other)
        dead.send(signal.SIGKILL)
        dead.process.wait()
        assert {*pids} <= {*running(home)}
        assert sweep(repo).status == 0
        assert {*pids} & {*running(home)} == {pids[1]}
        assert alive.process.poll() is None
        assert repo.show(f"ralph/{dead.directory.name[-4:]}-wip:new") == b"new\n"


def test_the_git_of_a_dead_session_is_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """It was about to delete the worktree, which comes back to be saved once more."""
    mark = tmp_path / "mark"
    held = f'*" worktree remove "*) echo $$ > {mark}; kill -9 $PPID; exec sleep 1000 ;;'
    env = {"PATH": shim_git(tmp_path / "shim", held)}
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "echo new > new", env=env) as dead:
        git = _pid(mark)
        dead.process.wait()
        assert git in running(home)
        assert sweep(repo).status == 0
        assert git not in running(home)
    assert repo.show(f"ralph/{dead.directory.name[-4:]}-wip:new") == b"new\n"
    assert repo.worktrees() == []


def test_a_process_without_the_mark_is_not_ended(repo: Repo, home: Path, tmp_path: Path) -> None:
    """The user's own, started by nobody of us, though it says that it belongs to another session."""
    left = orphan(repo)
    environ = {**os.environ, "RALPH_SESSION_ID": "20260102T030405Z-beef"}
    with subprocess.Popen(("sleep", "1000"), env=environ, cwd=tmp_path) as process:
        assert sweep(repo).status == 0
        assert process.pid in running(home)
        process.kill()
    assert not left.worktree.exists()


def test_a_nested_session_saves_its_own_work(repo: Repo, tmp_path: Path) -> None:
    """It lives and is told to end; whichever is finished first, both works are saved."""
    inner = tmp_path / "inner.sh"
    inner.write_text(f"#!/bin/sh\necho inner > inner\ntouch {tmp_path}/ready\nexec sleep 1000\n")
    inner.chmod(0o755)
    outer = f"echo outer > outer; {PROGRAM} run -- {inner}"
    with Session(repo.path, "--", "sh", "-c", outer) as session:
        eventually((tmp_path / "ready").exists, "the inner agent")
        session.send(signal.SIGKILL)
        session.process.wait()
    eventually(
        lambda: sweep(repo).status == 0 and not [*(repo.path / ".ralph" / "run" / "agents").iterdir()],
        "both to be finished",
    )
    saved = [branch for branch in repo.branches() if branch.endswith("-wip")]
    found = {name for branch in saved for name in repo.git("ls-tree", "--name-only", branch).splitlines()}
    kept = {path.name for path in repo.path.glob(".ralph/worktrees/*/*")}
    assert {"inner", "outer"} <= found | kept


# At the start of the next session


def test_a_run_sweeps_first(repo: Repo) -> None:
    """When its agent starts, what the dead one had is on its branches."""
    left = orphan(repo)
    seen = run(repo.path, "-n", "1", "--", "sh", "-c", f"git show {left.wip}:new; ls ..")
    assert (seen.status, seen.stdout.decode().splitlines()[0]) == (0, "new")
    assert left.session not in seen.stdout.decode()


def test_what_cannot_be_swept_stops_no_run(repo: Repo) -> None:
    """It is told, and the session goes on."""
    left = orphan(repo, work=NESTED)
    result = run(repo.path, "-n", "1", "--", "true")
    assert result.status == 0
    assert [told["message"] for told in result.warnings if told["event"] == "sweep.incomplete"] == [
        f"{left.session}: nested repository inner cannot be saved"
    ]


@pytest.mark.parametrize("dead", [0, 1])
def test_a_run_loads_the_sweep_only_if_there_is_something_to_do(repo: Repo, dead: int) -> None:
    """A start that has nothing to sweep does not pay for it; finished and live sessions are nothing."""
    run(repo.path, "-n", "1", "--", "true")
    with Session(repo.path, "--delay", "1h", "--", "true") as live:
        live.wait_for("iteration.ended")
        for _ in range(dead):
            orphan(repo)
        result = run(repo.path, "-n", "1", "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.status == 0
    assert ("ralph_wrap.commands.sweep" in result.stderr) is bool(dead)


# The project under another path


def test_a_project_that_was_moved_is_swept(repo: Repo) -> None:
    """The record and the registration name a path that is not there any more; the work is saved."""
    left = orphan(repo)
    moved = Repo(repo.path.rename(repo.path.with_name("moved")))
    swept = sweep(moved)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  orphan  finished  {left.wip}\n")
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
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  orphan  finished  {left.wip}\n")
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
        before = _state(repo)
        assert sweep(repo).stdout == b""
        assert _state(repo) == before
        session.send(signal.SIGTERM)
        assert session.finish().report["saved"] is not None


def test_a_copy_of_the_project_is_foreign(repo: Repo, tmp_path: Path) -> None:
    """Its owner may be alive where it was copied from."""
    left = orphan(repo)
    copy = Repo(Path(shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)))
    before = _state(repo), _state(copy)
    swept = sweep(copy)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  foreign  left\n")
    assert (_state(repo), _state(copy)) == before


def test_a_copy_of_the_project_is_swept_by_itself(repo: Repo, tmp_path: Path) -> None:
    """What is in the copy is finished there, on the user's word; the original keeps its own."""
    left = orphan(repo)
    copy = Repo(Path(shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)))
    before = _state(repo)
    assert sweep(copy, "--adopt", left.id).status == 0
    assert copy.show(f"{left.wip}:new") == b"new\n"
    assert _state(repo) == before
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


# Other places


def test_another_project_is_not_touched(repo: Repo, tmp_path: Path) -> None:
    """A sweep is of one project."""
    other = orphan(make_repo(tmp_path / "other"))
    assert sweep(repo).status == 0
    assert other.is_there()


def test_a_project_can_be_named(repo: Repo, tmp_path: Path) -> None:
    """From anywhere."""
    left = orphan(repo)
    assert command("sweep", "-C", repo.path, cwd=tmp_path).status == 0
    assert not left.worktree.exists()


def test_without_a_registry_there_is_nothing_to_sweep(repo: Repo) -> None:
    """And none is made."""
    before = listing(repo.path)
    swept = sweep(repo)
    assert (swept.status, swept.stdout, swept.stderr) == (0, b"", "")
    assert listing(repo.path) == before


def test_the_library_sweeps_too(repo: Repo) -> None:
    """A session that was entered by a program that died is an orphan as any other."""
    program = (
        "import os, signal; from pathlib import Path; from ralph_wrap import Session, Settings\n"
        f"with Session(Settings(project=Path({os.fspath(repo.path)!r}), command=('true',))) as session:\n"
        "    (session.workspace.path / 'new').write_text('new\\n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run((sys.executable, "-c", program), check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (record,) = (repo.path / ".ralph" / "run" / "agents").glob("*.json")
    left = Orphan(repo, json.loads(record.read_text())["session"])
    assert sweep(repo).status == 0
    assert repo.show(f"{left.wip}:new") == b"new\n"


# What a start does


def test_a_start_that_only_reports(repo: Repo) -> None:
    """``orphans = "report"``: the dead session is named, and left for ``sweep``."""
    left = orphan(repo, work="echo new > new")
    (repo.path / ".ralph" / "config.toml").write_text('orphans = "report"\n')
    before = left.record.read_bytes()
    ended = run(repo.path, "-n", "1", "--", "true")
    assert ended.status == 0
    assert [told["hint"] for told in ended.warnings] == ["ralph-wrap sweep"]
    assert (left.record.read_bytes(), (left.worktree / "new").exists()) == (before, True)
    assert sweep(repo).status == 0
    assert not left.worktree.exists()


def test_the_sweep_of_a_container_only_reports_then(repo: Repo) -> None:
    """The one that ``init`` starts; one that is typed does what it is typed for."""
    left = orphan(repo, work="echo new > new")
    (repo.path / ".ralph" / "config.toml").write_text('orphans = "report"\n')
    told = command("sweep", cwd=repo.path, env={"RALPH_WRAP_AT_START": "1"})
    assert (told.status, told.stdout.decode()) == (0, f"{left.session}  orphan  would finish\n")
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
