"""``ralph-wrap clean``: what is old and needed no more goes, and nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.commands import clean as cleaning
from ralph_wrap.commands.clean import CleanedItem
from ralph_wrap.state.project import find_project
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from tests.commands.drop.dropping import drop_some, refs, restore_one
from tests.support.histories import grow, record
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")

DAY = 86400.0
NOW = time.time()
LONG_AGO = 1767326706.0  # 2026-01-02 04:05:06, when a recorded session ended
SETTINGS: dict[str, Any] = {"keep_sessions": 30 * DAY, "keep_dropped": 30 * DAY, "max_output": 0}


def _run_directory(repo: Repo) -> Path:
    return repo.path / ".ralph" / "run"


def _sessions(repo: Repo) -> list[str]:
    """Return the agent ids of the sessions that still have files."""
    return sorted(path.name[-4:] for path in (_run_directory(repo) / "sessions").iterdir())


def _old_session(repo: Repo, agent_id: str, **fields: Any) -> Path:
    """Make the files of a session that ended long ago, and return their directory."""
    directory = _run_directory(repo) / "sessions" / record(repo, agent_id, repo.head, **fields)
    (directory / "output.log").write_text("output\n")
    _age(directory)
    return directory


def _age(directory: Path) -> None:
    for path in directory.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def _clean(repo: Repo, now: float = NOW, *, dry_run: bool = False, **settings: float) -> list[CleanedItem]:
    """Clean once; nothing may fail."""
    project = find_project(repo.path, os.environ)
    cleaned = cleaning.clean(project, **{**SETTINGS, **settings}, now=now, dry_run=dry_run)
    assert cleaned.failures == []
    return cleaned.items


def _clean_twice(repo: Repo) -> None:
    """Look twice, a day apart: the first look deletes nothing."""
    before = _sessions(repo)
    _clean(repo)
    assert _sessions(repo) == before
    _clean(repo, NOW + DAY)


# The files of a session


def test_the_files_of_an_old_session_go(repo: Repo) -> None:
    """Whether its branch is merged, or there is none any more; a second look is needed."""
    repo.git("branch", "ralph/aaaa")
    first, second = (_old_session(repo, agent_id) for agent_id in ("aaaa", "bbbb"))
    items = _clean(repo)
    assert [(item.name, item.action) for item in items] == [(first.name, "waits"), (second.name, "waits")]
    assert [item.action for item in _clean(repo, NOW + DAY - 60)] == ["waits", "waits"]
    assert [item.action for item in _clean(repo, NOW + DAY, dry_run=True)] == ["would delete"] * 2
    assert _sessions(repo) == ["aaaa", "bbbb"]
    items = _clean(repo, NOW + DAY)
    assert [(item.kind, item.name, item.action) for item in items] == [
        ("session", first.name, "deleted"),
        ("session", second.name, "deleted"),
    ]
    assert all(item.size for item in items)
    assert _sessions(repo) == []
    assert refs(repo) == {"heads/ralph/aaaa": repo.head}


def test_the_snapshots_of_a_landed_session_go_with_its_files(repo: Repo) -> None:
    """Its branch stays; that of another session keeps its own."""
    repo.git("branch", "ralph/aaaa")
    grow(repo, "ralph/bbbb", "main", {"new": "new\n"})
    for agent_id in ("aaaa", "bbbb"):
        _old_session(repo, agent_id)
        repo.git("update-ref", f"refs/ralph/snapshots/{agent_id}/1", repo.head)
    _clean_twice(repo)
    assert _sessions(repo) == ["bbbb"]
    assert sorted(refs(repo)) == ["heads/ralph/aaaa", "heads/ralph/bbbb", "ralph/snapshots/bbbb/1"]


def _snapshot(repo: Repo, agent_id: str, number: int, *parents: str) -> str:
    """Make a snapshot of an iteration, with HEAD and perhaps the index as parents, and return its commit."""
    options = [option for parent in parents for option in ("-p", parent)]
    message = f"ralph: after iteration {number} of session 20260102T030405Z-{agent_id}"
    commit = repo.git("commit-tree", f"{parents[0]}^{{tree}}", *options, "-m", message)
    repo.git("update-ref", f"refs/ralph/snapshots/{agent_id}/{number}", commit)
    return commit


def _reset_commit(repo: Repo, start: str = "main") -> str:
    """Make a commit that no branch has any more, and return it."""
    commit = grow(repo, "gone", start, {"gone": "gone\n"})
    repo.git("branch", "-D", "gone")
    return commit


def test_a_commit_that_the_agent_has_reset_away_stays(repo: Repo) -> None:
    """A snapshot has it as its first parent; it gets a ref of its own, once, and a dry run makes none."""
    first = _reset_commit(repo)
    lone = _reset_commit(repo, first)
    repo.git("branch", "ralph/aaaa")
    for number, head in enumerate((repo.head, first, lone, lone), 1):
        _snapshot(repo, "aaaa", number, head)
    _old_session(repo, "aaaa")
    before = refs(repo)
    assert _clean(repo, dry_run=True) == []
    assert refs(repo) == before
    assert _clean(repo) == []
    for days in range(1, 4):
        [item] = _clean(repo, NOW + days * DAY)
        assert (item.name[-4:], item.action) == ("aaaa", "kept")
    assert _sessions(repo) == ["aaaa"]
    assert refs(repo) == {**before, "ralph/snapshots/aaaa/commit-1": lone}


def test_a_session_that_is_kept_for_a_commit_is_named(repo: Repo) -> None:
    """The note says why, and has the commands that show the commit and that let it go."""
    repo.git("branch", "ralph/aaaa")
    lone = _reset_commit(repo)
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/commit-1", lone)
    _old_session(repo, "aaaa")
    [item] = _clean(repo, dry_run=True)
    assert (item.kind, item.action, item.size) == ("session", "kept", None)
    assert "kept for commit-1, which no branch had" in item.note
    see, drop = (part.partition(": ")[2] for part in item.note.split("; ")[2:])
    assert lone in repo.git(*see.split()[1:])
    assert command(*drop.split()[1:], "--yes", cwd=repo.path).status == 0
    assert not [ref for ref in refs(repo) if "aaaa" in ref]
    assert [item.action for item in _clean(repo)] == ["waits"]


def test_a_commit_that_only_another_branch_has_stays(repo: Repo) -> None:
    """The user may delete that branch; the index, the second parent, may go."""
    topic = grow(repo, "topic", "main", {"new": "new\n"})
    index = repo.git("commit-tree", "main^{tree}", "-p", "main", "-m", "the index")
    for agent_id, head in (("aaaa", topic), ("bbbb", repo.head)):
        repo.git("branch", f"ralph/{agent_id}", "main")
        _snapshot(repo, agent_id, 1, head, index)
        _old_session(repo, agent_id)
    _clean_twice(repo)
    assert _sessions(repo) == ["aaaa"]
    assert refs(repo)["ralph/snapshots/aaaa/commit-1"] == topic
    assert "ralph/snapshots/bbbb/1" not in refs(repo)


def test_a_snapshot_that_cannot_be_read_keeps_its_session(repo: Repo) -> None:
    """What it holds is not known; another session goes."""
    for agent_id in ("aaaa", "bbbb"):
        repo.git("branch", f"ralph/{agent_id}")
        commit = _snapshot(repo, agent_id, 1, repo.head)
        _old_session(repo, agent_id)
        if agent_id == "aaaa":
            repo.git("update-ref", "-d", "refs/ralph/snapshots/aaaa/1")
            lost = repo.git("commit-tree", "main^{tree}", "-p", commit, "-m", "lost")
            repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", lost)
            (repo.path / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    _clean_twice(repo)
    assert _sessions(repo) == ["aaaa"]
    assert (repo.path / ".git" / "refs" / "ralph" / "snapshots" / "aaaa" / "1").exists()


def test_a_whole_run_whose_agent_resets_a_commit_away_loses_nothing(repo: Repo) -> None:
    """The branch is merged, and the session has ended in order."""
    script = """case $RALPH_ITERATION in
    1) echo X > x; git add x; git commit -qm X; echo new > new;;
    2) git reset -q --hard HEAD~1; rm -f new; echo Y > y; git add y; git commit -qm Y;;
    esac"""
    assert run(repo.path, "-n", "3", "--", "sh", "-c", script).status == 0
    [agent_id] = _sessions(repo)
    lone = repo.git("rev-parse", f"refs/ralph/snapshots/{agent_id}/1^1")
    assert repo.git("log", "-1", "--format=%s", lone) == "X"
    repo.git("merge", "--quiet", f"ralph/{agent_id}")
    for days in (100, 102, 104):
        _clean(repo, NOW + days * DAY)
    assert lone not in repo.git("fsck", "--unreachable", "--no-reflogs")
    assert refs(repo)[f"ralph/snapshots/{agent_id}/commit-1"] == lone


def _branch(repo: Repo, _: Path) -> None:
    grow(repo, "ralph/bbbb", "main", {"new": "new\n"})


def _saved_work(repo: Repo, _: Path) -> None:
    grow(repo, "ralph/bbbb-wip", "main", {"new": "new\n"})


def _squashed(repo: Repo, _: Path) -> None:
    grow(repo, "ralph/bbbb", "main", {"new": "new\n"})
    grow(repo, "main", "main", {"new": "new\n"}, message="the same patch")


def _named_branch(repo: Repo, directory: Path) -> None:
    grow(repo, "feature", "main", {"new": "new\n"})
    _change_record(directory, branch="feature")


def _dropped(repo: Repo, _: Path) -> None:
    repo.git("branch", "ralph/bbbb")
    assert drop_some(repo, "bbbb", now=NOW) is None


def _worktree(repo: Repo, directory: Path) -> None:
    (repo.path / ".ralph" / "worktrees" / directory.name).mkdir(parents=True)


def _clone(repo: Repo, directory: Path) -> None:
    (repo.path / ".ralph" / "clones" / directory.name).mkdir(parents=True)


def _registration(repo: Repo, directory: Path) -> None:
    (repo.path / ".git" / "worktrees" / directory.name).mkdir(parents=True)


def _bundle(repo: Repo, directory: Path) -> None:
    path = _run_directory(repo) / "bundles" / f"{directory.name}.bundle"
    path.parent.mkdir()
    path.write_text("not a bundle")


def _replica(repo: Repo, directory: Path) -> None:
    (_run_directory(repo) / "replicas" / directory.name).mkdir(parents=True)


def _save(repo: Repo, directory: Path) -> None:
    (repo.path / ".git" / "objects" / f"ralph-wrap-save-{directory.name}-0123abcd").mkdir()


def _unfinished(repo: Repo, _: Path) -> None:
    (_run_directory(repo) / "agents" / "bbbb.json").write_text("{")


def _lone_commit(repo: Repo, _: Path) -> None:
    repo.git("branch", "ralph/bbbb")
    repo.git("update-ref", "refs/ralph/snapshots/bbbb/commit-1", repo.head)


def _killed(repo: Repo, directory: Path) -> None:
    repo.git("branch", "ralph/bbbb")
    repo.git("update-ref", "refs/ralph/snapshots/bbbb/1", repo.head)
    _change_report(directory, ended_by="killed")


def _kept(repo: Repo, directory: Path) -> None:
    repo.git("branch", "ralph/bbbb")
    repo.git("update-ref", "refs/ralph/snapshots/bbbb/1", repo.head)
    _change_report(directory, kept="a process runs in it")


def _no_report(repo: Repo, directory: Path) -> None:
    repo.git("branch", "ralph/bbbb")
    repo.git("update-ref", "refs/ralph/snapshots/bbbb/1", repo.head)
    (directory / "report.json").unlink()


def _task(repo: Repo, directory: Path) -> None:
    _change_record(directory, task="0123456789abcdef")
    state = _run_directory(repo) / "batches" / "0" / "state.json"
    state.parent.mkdir(parents=True)
    task = {"token": "0123456789abcdef", "done": False}
    state.write_text(json.dumps({"version": 1, "tasks": {"key": task}, "signature": ""}))


def _unreadable_batch(repo: Repo, directory: Path) -> None:
    _task(repo, directory)
    (_run_directory(repo) / "batches" / "0" / "state.json").write_text("{")


def _recent_file(repo: Repo, directory: Path) -> None:
    assert repo.head
    os.utime(directory / "output.log")


def _recent_end(repo: Repo, directory: Path) -> None:
    assert repo.head
    _change_report(directory, ended="2099-01-01T00:00:00+00:00")


def _running(repo: Repo, directory: Path) -> None:
    assert repo.head
    _change_record(directory, state="running")


def _unreadable(repo: Repo, directory: Path) -> None:
    assert repo.head
    (directory / "record.json").write_text("{")


def _of_another_name(repo: Repo, directory: Path) -> None:
    assert repo.head
    directory.rename(directory.with_name("20260102T030406Z-bbbb"))


def _change_record(directory: Path, **changes: object) -> None:
    _change(directory / "record.json", changes)


def _change_report(directory: Path, **changes: object) -> None:
    _change(directory / "report.json", changes)


def _change(path: Path, changes: dict[str, object]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


NEEDS: list[Callable[[Repo, Path], None]] = [
    *(_branch, _saved_work, _squashed, _named_branch, _dropped, _lone_commit, _killed, _kept, _no_report),
    *(_worktree, _clone, _registration, _bundle, _replica, _save, _unfinished, _task, _unreadable_batch),
    *(_recent_file, _recent_end, _running, _unreadable, _of_another_name),
]


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.__name__.strip("_"))
def test_what_is_needed_stays(repo: Repo, need: Callable[[Repo, Path], None]) -> None:
    """The same session goes without the need, as the other one does."""
    _old_session(repo, "aaaa")
    directory = _old_session(repo, "bbbb")
    need(repo, directory)
    if need is not _recent_file:
        for path in (_run_directory(repo) / "sessions").iterdir():
            _age(path)
    before = refs(repo)
    _clean_twice(repo)
    assert _sessions(repo) == ["bbbb"]
    assert refs(repo) == before


def test_a_session_whose_agent_still_runs_stays(repo: Repo) -> None:
    """A process of it holds the lock that it has inherited; afterwards the files go."""
    directory = _old_session(repo, "aaaa")
    lock = files.try_lock(directory / "agent.lock")
    assert lock is not None
    _age(directory)
    _clean_twice(repo)
    assert _sessions(repo) == ["aaaa"]
    lock.release()
    _clean(repo, NOW + 2 * DAY)
    _clean(repo, NOW + 3 * DAY)
    assert _sessions(repo) == []


def test_another_session_of_the_id_keeps_the_snapshots(repo: Repo) -> None:
    """A resumed session has the same id, and it has ended a moment ago."""
    repo.git("branch", "ralph/aaaa")
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    _old_session(repo, "aaaa")
    newer = _run_directory(repo) / "sessions" / "20260103T030405Z-aaaa"
    newer.mkdir()
    _clean_twice(repo)
    assert "ralph/snapshots/aaaa/1" in refs(repo)
    assert len(_sessions(repo)) == 2


def test_without_a_main_branch_nothing_has_landed(repo: Repo) -> None:
    """Nothing says what the work would have landed on."""
    repo.git("branch", "ralph/aaaa")
    _old_session(repo, "aaaa")
    repo.git("branch", "--move", "main", "trunk")
    repo.git("switch", "--quiet", "--detach")
    _clean_twice(repo)
    assert _sessions(repo) == ["aaaa"]


def test_everything_stays_for_ever_with_0(repo: Repo) -> None:
    """``keep_sessions = 0``."""
    _old_session(repo, "aaaa")
    for now in (NOW, NOW + DAY):
        assert _clean(repo, now, keep_sessions=0.0) == []
    assert _sessions(repo) == ["aaaa"]


def test_a_clock_that_was_wrong_deletes_no_session(repo: Repo) -> None:
    """It was a year ahead for a moment: what is due is due again a day later, or it is forgotten."""
    directory = _old_session(repo, "aaaa")
    for path in directory.iterdir():
        os.utime(path)
    for now in (NOW + 365 * DAY, NOW + 365 * DAY + 60, NOW, NOW + 365 * DAY, NOW + 366 * DAY - 60):
        _clean(repo, now)
    assert _sessions(repo) == ["aaaa"]


def test_a_cleaning_that_was_killed_is_finished_by_the_next_one(repo: Repo) -> None:
    """The record goes last."""
    directory = _old_session(repo, "aaaa")
    _clean(repo)
    for path in directory.iterdir():
        if path.name != "record.json":
            path.unlink()
    _clean(repo, NOW + DAY)
    assert _sessions(repo) == []


def test_no_symlink_leads_a_cleaning_elsewhere(repo: Repo, tmp_path: Path) -> None:
    """An agent has put one in the place of the files of its session."""
    directory = _old_session(repo, "aaaa")
    elsewhere = directory.rename(tmp_path / directory.name)
    directory.symlink_to(elsewhere)
    _clean_twice(repo)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["output.log", "record.json", "report.json"]


# Snapshots whose branch the user has deleted


def test_snapshots_of_a_deleted_branch_go_as_dropped_ones_do(repo: Repo) -> None:
    """The newest one can be restored for 30 days; then all go."""
    assert run(repo.path, "-n", "3", "--", "sh", "-c", "echo $RALPH_ITERATION > new").status == 0
    names = repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads/ralph").split()
    agent_id = names[0].partition("/")[2].removesuffix("-wip")
    newest = refs(repo)[f"ralph/snapshots/{agent_id}/2"]
    repo.git("branch", "-D", *names)
    assert [(item.kind, item.action) for item in _clean(repo, dry_run=True)] == [("snapshots", "would drop")]
    [item] = _clean(repo)
    assert (item.kind, item.name, item.action) == ("snapshots", agent_id, "dropped")
    assert refs(repo)[f"ralph/dropped/{agent_id}-wip"] == newest
    assert _clean(repo, NOW + 29 * DAY) == []
    kept = {ref for ref in refs(repo) if ref.startswith("ralph/snapshots/")}
    assert len(kept) == 2
    _clean(repo, NOW + 31 * DAY)
    items = _clean(repo, NOW + 32 * DAY)
    assert ("branch", f"ralph/{agent_id}-wip", "deleted") in [item[:3] for item in items]
    assert refs(repo) == {}


def test_what_a_deleted_branch_held_can_be_restored(repo: Repo) -> None:
    """``restore`` makes the saved work of the newest snapshot."""
    commit = grow(repo, "other", "main", {"new": "new\n"})
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/3", commit)
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/2", repo.head)
    _clean(repo)
    assert restore_one(repo, "aaaa").saved == "ralph/aaaa-wip"
    assert refs(repo)["heads/ralph/aaaa-wip"] == commit
    assert _clean(repo) == []


@pytest.mark.parametrize("name", ["ralph/aaaa", "ralph/aaaa-wip"])
def test_snapshots_of_a_branch_that_is_there_stay(repo: Repo, name: str) -> None:
    """So they do if only the saved work is there."""
    repo.git("branch", name)
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    before = refs(repo)
    _clean(repo)
    assert refs(repo) == before


@pytest.mark.parametrize("place", [".git/worktrees", ".ralph/worktrees", ".ralph/clones"])
def test_snapshots_of_a_worktree_stay(repo: Repo, place: str) -> None:
    """Its records were deleted, as ``git clean -fdx`` does."""
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    (repo.path / place / "20260102T030405Z-aaaa").mkdir(parents=True)
    before = refs(repo)
    assert _clean(repo) == []
    assert refs(repo) == before


def test_snapshots_of_an_unfinished_session_stay(repo: Repo) -> None:
    """Its agent has deleted the branch."""
    Registry(_run_directory(repo)).prepare()
    (_run_directory(repo) / "agents" / "aaaa.json").write_text("{")
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    before = refs(repo)
    assert _clean(repo) == []
    assert refs(repo) == before


def test_the_only_copy_of_commits_stays(repo: Repo) -> None:
    """``commit-<n>`` has them; once another branch has them, too, the snapshots go."""
    commit = grow(repo, "ralph/bbbb", "main", {"new": "new\n"})
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/commit-1", commit)
    repo.git("update-ref", "refs/ralph/snapshots/aaaa/1", repo.head)
    before = refs(repo)
    [item] = _clean(repo)
    assert (item.name, item.action) == ("aaaa", "kept")
    assert "refs/ralph/snapshots/aaaa/commit-1" in item.note
    assert refs(repo) == before
    repo.git("branch", "topic", commit)
    assert [item.action for item in _clean(repo)] == ["dropped"]


def test_a_commit_that_only_an_older_snapshot_holds_stays(repo: Repo) -> None:
    """All of the id stay, or it would go with the dropped branch; no branch of a session counts."""
    lone = _reset_commit(repo)
    _snapshot(repo, "aaaa", 1, lone)
    _snapshot(repo, "aaaa", 2, repo.head)
    repo.git("branch", "ralph/bbbb", lone)
    before = refs(repo)
    for days in (0, 31, 33):
        [item] = _clean(repo, NOW + days * DAY)
        assert (item.name, item.action) == ("aaaa", "kept")
        assert f"no branch has commit {lone}" in item.note
        assert refs(repo) == before
    repo.git("tag", "topic", lone)
    assert [item.action for item in _clean(repo)] == ["dropped"]


def test_what_the_newest_snapshot_holds_goes_with_it(repo: Repo) -> None:
    """It can be restored, so nothing is lost with the others."""
    first = _reset_commit(repo)
    _snapshot(repo, "aaaa", 1, first)
    newest = _snapshot(repo, "aaaa", 2, _reset_commit(repo, first))
    assert [item.action for item in _clean(repo)] == ["dropped"]
    assert refs(repo)["ralph/dropped/aaaa-wip"] == newest


def test_loose_snapshots_of_a_commit_that_cannot_be_read_stay(repo: Repo) -> None:
    """What it contains is not known; another id is dropped."""
    lone = _reset_commit(repo)
    _snapshot(repo, "aaaa", 1, lone)
    _snapshot(repo, "aaaa", 2, repo.head)
    _snapshot(repo, "bbbb", 3, repo.head)
    (repo.path / ".git" / "objects" / lone[:2] / lone[2:]).unlink()
    assert [(item.name, item.action) for item in _clean(repo)] == [("aaaa", "kept"), ("bbbb", "dropped")]


@pytest.mark.parametrize("number", [1, 2])
def test_loose_snapshots_that_cannot_be_read_stay(repo: Repo, number: int) -> None:
    """Another id is dropped."""
    for one in (1, 2):
        commit = _snapshot(repo, "aaaa", one, repo.head)
        if one == number:
            (repo.path / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    _snapshot(repo, "bbbb", 3, repo.head)
    assert [(item.name, item.action) for item in _clean(repo)] == [("aaaa", "kept"), ("bbbb", "dropped")]


# Other commands


def test_a_sweep_cleans_too(repo: Repo) -> None:
    """What became due is deleted by it, and is said."""
    _old_session(repo, "aaaa")
    repo.write(".ralph/config.toml", 'keep_sessions = "1ms"\n')
    assert command("sweep", "--dry-run", cwd=repo.path).status == 0
    assert command("sweep", cwd=repo.path).status == 0
    assert _sessions(repo) == ["aaaa"]
    swept = command("sweep", cwd=repo.path)
    assert (swept.status, _sessions(repo)) == (0, [])
    assert "1 old thing deleted" in swept.stderr


def test_a_setting_that_is_not_approved_deletes_nothing(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent can write the file. ``clean`` says so, and a sweep goes on without it."""
    _old_session(repo, "aaaa")
    repo.write(".ralph/config.toml", 'keep_sessions = "1ms"\n')
    monkeypatch.delenv("RALPH_TRUST", raising=False)
    for _ in range(2):
        assert command("clean", cwd=repo.path, env={"RALPH_TRUST": ""}).status != 0
        swept = command("sweep", cwd=repo.path, env={"RALPH_TRUST": ""})
        assert (swept.status, "nothing old was deleted" in swept.stderr) == (0, True)
    assert _sessions(repo) == ["aaaa"]


def test_clean_outside_of_a_repository(tmp_path: Path) -> None:
    """There can be sessions, too; here is none."""
    assert command("clean", cwd=tmp_path).status == 0
