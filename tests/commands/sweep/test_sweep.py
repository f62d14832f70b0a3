"""``ralph-wrap sweep``: whose work is finished."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ralph_wrap.system import liveness
from tests.commands.sweep.project import NESTED, state
from tests.support.damage import damaged, loose_path
from tests.support.directory_listing import listing
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts, needs_pid_namespaces
from tests.support.orphans import Orphan, orphan, orphans, sweep
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, command, read_events
from tests.support.wait import eventually

# Orphans


def test_an_orphan_is_finished(repo: Repo) -> None:
    """Its work is saved, its worktree removed, its branch kept, its record the session's own."""
    left = orphan(repo, work="echo done > done; git add done; git commit -qm done; echo new > new")
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  crashed  finished  {left.wip}\n")
    assert (repo.show(f"{left.branch}:done"), repo.show(f"{left.wip}:new")) == (b"done\n", b"new\n")
    gone = (left.record, left.lock, left.worktree, left.registration)
    assert [path for path in gone if path.exists()] == []
    assert json.loads((left.directory / "record.json").read_text())["state"] == "finished"


@pytest.mark.parametrize("work", ["true", "echo new > new"])
def test_a_branch_without_work_is_dropped_by_the_hint(repo: Repo, work: str) -> None:
    """As it is typed; a session with work gets no such hint."""
    left = orphan(repo, work=work)
    [swept] = [printed for printed in sweep(repo).narration if printed["event"] == "session.swept"]
    if work != "true":
        assert "hint" not in swept
        return
    typed = swept["hint"].removeprefix("its branch holds no work; to delete it: ")
    subprocess.run(("sh", "-c", typed.replace("ralph-wrap", PROGRAM, 1)), check=True, cwd=repo.path)
    assert left.branch not in repo.branches()


@needs_pid_namespaces
def test_what_ran_on_the_host_is_left_to_the_host(repo: Repo) -> None:
    """From inside a container, a sweep cannot see what an agent has left running there."""
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


def test_a_sweep_is_in_the_sessions_event_log(repo: Repo) -> None:
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
    """It says so, and changes nothing."""
    orphan(repo)
    sweep(repo)
    trash = repo.path / ".ralph" / "run" / "trash"
    eventually(lambda: not [*trash.iterdir()], "the trash to be emptied")
    before = state(repo)
    swept = sweep(repo)
    assert (swept.status, swept.stdout, "no dead sessions" in swept.stderr) == (0, b"", True)
    assert state(repo) == before


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
    before = state(repo)
    swept = sweep(repo, "--dry-run")
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  crashed  would finish\n")
    assert state(repo) == before


def test_a_session_without_a_worktree_is_released(repo: Repo) -> None:
    """What was done in the project itself stays there."""
    left = orphan(repo, "--isolation", "off")
    swept = sweep(repo)
    assert (swept.status, swept.stdout.decode()) == (0, f"{left.session}  crashed  finished\n")
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
    row = f"{left.session}  crashed  finished  it was asked for\n"
    assert (swept.status, swept.stdout.decode()) == (0, row)
    assert (left.worktree / "new").read_bytes() == b"new\n"
    assert left.worktree.name in " ".join(repo.worktrees())
    assert not left.record.exists()


def test_on_dirty_keep_is_respected(repo: Repo) -> None:
    """Uncommitted work stays where it is, unsaved."""
    left = orphan(repo, "--on-dirty", "keep")
    swept = sweep(repo)
    row = f"{left.session}  crashed  finished  1 uncommitted path\n"
    assert (swept.status, swept.stdout.decode()) == (0, row)
    assert (left.worktree / "new").read_bytes() == b"new\n"
    assert left.wip not in repo.branches()


def test_on_dirty_keep_removes_clean_worktrees(repo: Repo) -> None:
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


def test_a_branch_of_the_user_is_never_dropped(repo: Repo) -> None:
    """A branch that the user gave a session with --branch is not its own, even without a new commit."""
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
    row = f"{left.session}  crashed  kept  {left.wip}  {reason}\n"
    assert (swept.status, swept.stdout.decode()) == (5, row)
    error = swept.narration[-1]
    assert (error["level"], error["code"]) == ("error", "refused")
    assert error["message"] == f"{left.session}: {reason}"
    assert listing(left.worktree) == before
    assert left.report["kept"] == reason
    aside = f"{left.worktree}.inner"
    assert error["hint"] == f"mv -T {left.worktree}/inner {aside} && ralph-wrap rm {left.session[-4:]}"
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    subprocess.run(("sh", "-c", error["hint"]), cwd=repo.path, env=environ, check=True)
    assert (left.worktree.exists(), Path(aside, ".git").is_dir()) == (False, True)


def test_a_lost_commit_keeps_the_session_until_it_is_mended(repo: Repo) -> None:
    """Its files are saved, each sweep says what is lost, and the last one finishes the session."""
    left = orphan(repo, work="echo done > done; git add done; git commit -qm done; echo new > new")
    oid = repo.git("rev-parse", left.branch)
    with damaged(repo, oid, "missing"):
        for _ in range(2):
            swept = sweep(repo)
            assert swept.status == 5
            assert oid in swept.narration[-1]["message"]
            assert f"the files are saved on {left.wip}" in swept.narration[-1]["message"]
        assert (repo.show(f"{left.wip}:done"), repo.show(f"{left.wip}:new")) == (b"done\n", b"new\n")
        assert (left.worktree / "new").exists()
    assert sweep(repo).stdout.decode() == f"{left.session}  crashed  finished  {left.wip}\n"
    assert not left.worktree.exists()
    repo.git("fsck", "--full")


def test_a_ref_without_its_commit_is_named(repo: Repo) -> None:
    """A disk has lost the commit; the command that is printed helps git."""
    tip = repo.git("commit-tree", "-m", "lost", "HEAD^{tree}")
    repo.git("update-ref", "--create-reflog", "refs/heads/ralph/00bb-wip", tip)
    loose_path(repo, tip).unlink()
    [warning] = sweep(repo).warnings
    assert f"refs/heads/ralph/00bb-wip names commit {tip}, which is missing" in warning["message"]
    typed = warning["hint"].removeprefix("to delete the ref: ")
    subprocess.run(("sh", "-c", typed), check=True, cwd=repo.path)
    assert sweep(repo).warnings == []
    repo.git("gc", "--quiet")


def test_a_broken_branch_of_a_worktree_is_not_offered_for_deletion(repo: Repo) -> None:
    """The next sweep saves the worktree, and git needs the branch for that."""
    left = orphan(repo, work="echo done > done; git add done; git commit -qm done")
    with damaged(repo, repo.git("rev-parse", left.branch), "missing"):
        hints = [line["hint"] for line in sweep(repo).narration if line["event"] == "ref.broken"]
    assert hints == [
        "its worktree needs it: copy the commit from another clone or a backup, then: ralph-wrap sweep"
    ]


def test_what_a_killed_save_has_left_goes_with_its_session(repo: Repo) -> None:
    """Its files in the object directory, once no worktree needs them."""
    left, objects = orphan(repo), repo.path / ".git/objects"
    for session in (left.session, "20260102T030405Z-00bb"):
        (objects / f"ralph-wrap-save-{session}-00aa11bb/12").mkdir(parents=True)
        keep = objects / f"pack/pack-{session[-4:] * 10}.keep"
        keep.write_text(f"ralph-wrap: a save of {session}\n")
    assert sweep(repo).status == 0
    assert [*objects.glob("ralph-wrap-save-*"), *objects.glob("pack/*.keep")] == []


def test_a_kept_worktree_is_reported_once(repo: Repo) -> None:
    """Its session is finished: to remove the worktree is for a person."""
    left = orphan(repo, work=NESTED)
    assert sweep(repo).status == 5
    again = sweep(repo)
    assert (again.status, again.stdout) == (0, b"")
    assert left.worktree.exists()


def test_a_worktree_with_a_process_in_it_is_kept(repo: Repo) -> None:
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
                "title": "",
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
    assert (swept.status, swept.stdout, "no dead sessions" in swept.stderr) == (0, b"", True)
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
