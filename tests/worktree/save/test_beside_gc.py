"""A ``git gc --prune=now`` beside a save."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save import beside_gc
from ralph_wrap.worktree.save.checkpoint import snapshot
from tests.support.git_shim import shim_git
from tests.support.trees import ID, SESSION, WIP, Tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


class SlowGc:
    """A gc that has looked at all refs, reflogs and indexes, and has deleted nothing yet.

    Arguments:
        repo: the repository.
        keeps: object ids that it leaves, too.

    """

    def __init__(self, repo: Repo, keeps: frozenset[str] = frozenset()) -> None:
        self._objects = repo.path / ".git/objects"
        self._lock = repo.path / ".git/gc.pid"
        self._lock.write_text(f"{os.getpid()} {socket.gethostname()}")
        listed = repo.git("rev-list", "--objects", "--all", "--reflog", "--indexed-objects")
        self.reachable = keeps | {line.split()[0] for line in listed.splitlines()}

    def finish(self) -> None:
        """Delete every other object, as ``git prune`` does at the end of ``git gc --prune=now``, and end."""
        if not self._lock.exists():
            return
        for path in self._objects.glob("??/*"):
            if path.parent.name + path.name not in self.reachable:
                path.unlink()
        self._lock.unlink()


class _WhileWaiting(CancelToken):
    """Lets a gc go on as soon as a save waits for it: the save looks for a second signal."""

    def __init__(self, gc: SlowGc) -> None:
        super().__init__()
        self._gc = gc

    @property
    def hurried(self) -> bool:
        """No signal has come."""
        self._gc.finish()
        return False


def _is_whole(repo: Repo, ref: str) -> bool:
    command = ["git", "rev-list", "--objects", "--quiet", ref]
    return subprocess.run(command, cwd=repo.path, check=False, capture_output=True).returncode == 0


def test_a_gc_that_began_before_the_save_takes_none_of_it(tree: Tree) -> None:
    """The save waits for the gc, and stores again what it has deleted. Without that the work is lost."""
    gc = SlowGc(tree.repo)
    tree.inside.write("dir/tracked.txt", "changed\n")
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish(cancel=_WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert not tree.path.exists()
    assert _is_whole(tree.repo, WIP)
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_a_repeated_save_names_the_branch_of_the_first(tree: Tree) -> None:
    """The first save has given a branch to the commit of a detached HEAD."""
    tree.inside.git("checkout", "-q", "--detach")
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    gc = SlowGc(tree.repo)
    gc.reachable -= {tree.inside.git("rev-parse", "HEAD:new.txt")}
    outcome = tree.finish(cancel=_WhileWaiting(gc))
    assert outcome.saved is not None
    assert outcome.saved.branch == WIP
    assert _is_whole(tree.repo, WIP)


def test_a_lost_file_of_a_commit_is_stored_again(tree: Tree) -> None:
    """An agent has committed beside a gc, and the worktree has the last copy of a file."""
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    blob = tree.inside.git("rev-parse", "HEAD:new.txt")
    gc = SlowGc(tree.repo)
    gc.reachable -= {blob}
    outcome = tree.finish(cancel=_WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert _is_whole(tree.repo, f"ralph/{ID}")


def test_a_lost_commit_keeps_the_worktree(tree: Tree) -> None:
    """Nothing can make a commit again; its files are still in the worktree."""
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    outcome = tree.finish(cancel=_WhileWaiting(gc))
    gc.finish()
    assert outcome.kept
    assert (tree.path / "new.txt").read_text() == "new\n"


def test_a_gc_that_does_not_end_leaves_the_worktree_to_the_next_start(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is saved, and the files stay until the gc has ended. The next end removes them."""
    monkeypatch.setattr(beside_gc, "LONGEST_WAIT", 0.1)
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish()
    assert outcome.later
    assert outcome.kept == f"git gc is running (process {os.getpid()} on {socket.gethostname()})"
    gc.finish()
    assert not _is_whole(tree.repo, WIP)
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_a_session_without_work_waits_for_no_gc(tree: Tree) -> None:
    """It has nothing that a gc could delete."""
    SlowGc(tree.repo)
    assert tree.finish(cancel=_NotAsked()).kept is None
    assert not tree.path.exists()


class _NotAsked(CancelToken):
    @property
    def hurried(self) -> bool:
        """Nothing waits."""
        raise AssertionError("it waits for a gc")


@pytest.mark.parametrize("command", ["write-tree", "commit-tree", "update-ref"])
def test_a_gc_that_ends_during_the_save(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It deletes all new objects before they have a ref: git fails, and the save is repeated."""
    tree.inside.write("new.txt", "new\n")
    reachable = tmp_path / "reachable"
    reachable.write_text("".join(f"{oid}\n" for oid in SlowGc(tree.repo).reachable))
    objects = tree.repo.path / ".git/objects"
    cases = f"""*" {command} "*)
    if mkdir {tmp_path}/once 2>/dev/null; then
        cd {objects} || exit
        for name in ??/*; do grep -q "$(echo $name | tr -d /)" {reachable} || rm -f $name; done
        touch pack
        rm ../gc.pid
        cd "$OLDPWD" || exit
    fi ;;"""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "bin", cases))
    outcome = tree.finish()
    assert (tmp_path / "once").exists()
    assert outcome.kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_a_prune_alone_keeps_the_worktree(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``git prune`` without a gc has no lock: the save finds what it has deleted before the last look.

    What it deletes later is lost, as after a ``git commit`` beside it. No process can know that it runs.
    """
    tree.inside.write("new.txt", "new\n")
    blob = tree.inside.git("hash-object", "new.txt")
    path = tree.repo.path / ".git/objects" / blob[:2] / blob[2:]
    monkeypatch.setenv("PATH", shim_git(tmp_path / "bin", f'*" rev-list "*) rm -f {path} ;;'))
    outcome = tree.finish()
    assert outcome.kept is not None
    assert f"{WIP} lacks objects" in outcome.kept
    assert (tree.path / "new.txt").read_text() == "new\n"


@pytest.mark.parametrize("lost", [WIP, f"{WIP}^{{tree}}"])
def test_saved_work_with_a_lost_object_is_saved_again(tree: Tree, lost: str) -> None:
    """A gc has deleted an object of an earlier save; the branch gets the new one."""
    tree.inside.write("new.txt", "old\n")
    assert tree.finish(cancel=_Out()).later
    oid = tree.repo.git("rev-parse", lost)
    (tree.repo.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    tree.inside.write("new.txt", "new\n")
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_a_branch_of_another_session_has_lost_its_commit(tree: Tree) -> None:
    """It contains nothing, so the commits of a detached HEAD get a ref as always."""
    tree.repo.git("branch", "ralph/other")
    (tree.repo.path / ".git/refs/heads/ralph/other").write_text("7" * 40 + "\n")
    tree.inside.git("checkout", "-q", "--detach")
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


class _Out(CancelToken):
    @property
    def out_of_time(self) -> bool:
        """There is no time left."""
        return True


def test_a_snapshot_is_whole_too(tree: Tree) -> None:
    """A gc deletes the objects of a snapshot while it waits: git stores them again."""
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    git = Git(tree.repo.path, git_environment(os.environ), cancel=_WhileWaiting(gc))
    kept = snapshot(tree.linked, git, agent_id=ID, session=SESSION, number=1)
    gc.finish()
    assert kept.ref is not None
    assert _is_whole(tree.repo, kept.ref)


@pytest.mark.parametrize(
    ("content", "age", "runs"),
    [
        ("{pid} {host}", 0, True),
        ("1 {host}", 0, True),
        ("1234567 another-host", 0, True),
        ("1234567 another-host", 61 * 60, False),
        ("{pid} {host}", 24 * 3600, False),
        ("{zombie} {host}", 0, False),
        ("4194305 {host}", 0, False),
        ("1180591620717411303424 {host}", 0, False),
        ("{host}", 0, False),
        ("", 0, False),
    ],
)
def test_a_lock_counts_while_its_gc_lives(tmp_path: Path, content: str, age: float, *, runs: bool) -> None:
    """A process of this host that is no later one with its pid, or one of another host for an hour."""
    path = tmp_path / "gc.pid"
    with subprocess.Popen("true") as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie until the block ends
        path.write_text(content.format(pid=os.getpid(), zombie=ended.pid, host=socket.gethostname()))
        os.utime(path, (time.time() - age,) * 2)
        assert (beside_gc.running_gc(tmp_path) is not None) == runs


def test_only_a_file_is_a_lock(tmp_path: Path) -> None:
    """An agent can put anything in its place."""
    os.mkfifo(tmp_path / "gc.pid")
    assert beside_gc.running_gc(tmp_path) is None
    assert beside_gc.running_gc(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("words", "environ", "config", "keeps"),
    [
        (["gc", "--auto"], {}, None, True),
        (["gc"], {}, None, False),
        (["gc", "--auto", "--prune=now"], {}, None, False),
        (["gc", "--auto", "--pru=now"], {}, None, False),
        (["-c", "gc.PruneExpire=now", "gc", "--auto"], {}, None, False),
        (["gc", "--auto"], {"GIT_CONFIG_PARAMETERS": "'gc.pruneExpire'='now'"}, None, False),
        (["gc", "--auto"], {}, "now", False),
    ],
)
def test_a_gc_that_git_starts_keeps_new_objects(
    repo: Repo, words: list[str], environ: dict[str, str], config: str | None, *, keeps: bool
) -> None:
    """Its options and ``gc.pruneExpire`` can say otherwise."""
    if config:
        repo.git("config", "gc.pruneExpire", config)
    git = Git(repo.path, git_environment(os.environ))
    waiting = (sys.executable, "-c", "print(flush=True); input()", *words)
    with subprocess.Popen(
        waiting, env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert beside_gc.keeps_new_objects(git, process.pid) == keeps
        (repo.path / ".git/gc.pid").write_text(f"{process.pid} {socket.gethostname()}")
        assert (beside_gc.wait_for_gc(repo.path / ".git", git, 0.0, CancelToken()) is None) == keeps


def test_git_starts_a_gc_with_the_option_auto(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this word in its command line, a save knows that it need not wait."""
    for number in range(2):  # packs
        repo.write(f"new-{number}", f"{number}\n")
        repo.commit("new")
        repo.git("repack", "-q")
    trace = repo.path / ".git/trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    repo.git("-c", "gc.autoPackLimit=1", "-c", "gc.autoDetach=false", "commit", "--allow-empty", "-qm", "new")
    assert re.search("run_command: .*git gc .*--auto", trace.read_text())
