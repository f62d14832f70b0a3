"""A ``git gc --prune=now`` beside a save."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save import beside_gc
from ralph_wrap.worktree.save.checkpoint import snapshot
from ralph_wrap.worktree.save.commits import unreachable
from tests.support.git_shim import shim_git
from tests.support.repo import Repo
from tests.support.sessions import run
from tests.support.submodules import held, inside, make_project
from tests.support.trees import ID, SESSION, WIP, Tree, make_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
        listed = repo.git(
            "rev-list", "--objects", "--missing=allow-any", "--all", "--reflog", "--indexed-objects"
        )
        self.reachable = keeps | {line.split()[0] for line in listed.splitlines()}

    def finish(self) -> None:
        """Delete every other object, as ``git prune`` does at the end of ``git gc --prune=now``, and end."""
        if not self._lock.exists():
            return
        for path in self._objects.glob("??/*"):
            if path.parent.name + path.name not in self.reachable:
                path.unlink()
        self._lock.unlink()


class WhileWaiting(CancelToken):
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
    outcome = tree.finish(cancel=WhileWaiting(gc))
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
    outcome = tree.finish(cancel=WhileWaiting(gc))
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
    outcome = tree.finish(cancel=WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert _is_whole(tree.repo, f"ralph/{ID}")


def test_a_lost_commit_keeps_the_worktree(tree: Tree) -> None:
    """Nothing can make a commit again; its files are still in the worktree."""
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    outcome = tree.finish(cancel=WhileWaiting(gc))
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


def test_no_missing_commit_counts_as_contained_in_a_branch(tree: Tree) -> None:
    """Also if a branch lacks its commit, too, so that git looks once more without such branches."""
    (tree.repo.path / ".git/refs/heads/ralph").mkdir(exist_ok=True)
    (tree.repo.path / ".git/refs/heads/ralph/other").write_text("7" * 40 + "\n")
    with pytest.raises(GitError):
        unreachable(Git(tree.path, git_environment(os.environ)), ["8" * 40])


class _Out(CancelToken):
    @property
    def out_of_time(self) -> bool:
        """There is no time left."""
        return True


def test_a_snapshot_is_whole_too(tree: Tree) -> None:
    """A gc deletes the objects of a snapshot while it waits: git stores them again."""
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    git = Git(tree.repo.path, git_environment(os.environ))
    kept = snapshot(tree.linked, git, agent_id=ID, session=SESSION, number=1, hurry=WhileWaiting(gc))
    gc.finish()
    assert kept.ref is not None
    assert _is_whole(tree.repo, kept.ref)


def test_a_base_that_a_gc_has_deleted_is_not_missed(tree: Tree) -> None:
    """The agent has left it, and no branch contains it. What the branch has now is whole."""
    tree.inside.git("checkout", "-q", "--orphan", "other")
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("anew")
    tree.inside.git("checkout", "-q", "-B", f"ralph/{ID}")
    tree.repo.git("checkout", "-q", "-B", "main", f"ralph/{ID}")
    tree.repo.git("branch", "-q", "-D", "other")
    tree.repo.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    tree.repo.git("gc", "-q", "--prune=now")
    assert not _is_whole(tree.repo, tree.linked.base)
    assert tree.finish().kept is None


def _outside_of_a_sparse_checkout(inside: Repo) -> None:
    inside.git("sparse-checkout", "set", "--no-cone", "/dir/")
    inside.write("outside.txt", "new\n")


def _to_be_added(inside: Repo) -> None:
    inside.write("empty.txt", "new\n")
    inside.git("add", "--intent-to-add", "empty.txt")


@pytest.mark.parametrize("change", [_outside_of_a_sparse_checkout, _to_be_added])
def test_files_that_git_add_leaves_out_are_stored_again(tree: Tree, change: Callable[[Repo], None]) -> None:
    """They are saved a second time as they were the first time."""
    gc = SlowGc(tree.repo)
    tree.inside.write("dir/new.txt", "new\n")
    change(tree.inside)
    outcome = tree.finish(cancel=WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert _is_whole(tree.repo, WIP)


def test_beside_a_nested_repository_the_other_files_are_stored_again(tree: Tree) -> None:
    """Git cannot add a repository without a commit, so the worktree stays. The other files are saved."""
    gc = SlowGc(tree.repo)
    tree.inside.write("new.txt", "new\n")
    tree.inside.git("init", "-q", "nested")
    outcome = tree.finish(cancel=WhileWaiting(gc))
    gc.finish()
    assert outcome.kept == "nested repository nested cannot be saved"
    assert _is_whole(tree.repo, WIP)


def test_a_repeated_save_has_the_index_of_a_submodule(tmp_path: Path) -> None:
    """The first save has added all files to its copy of the index."""
    project = make_project(tmp_path / "world")
    tree = project.tree()
    sub = inside(tree)
    sub.write("file.txt", "staged\n")
    sub.git("add", "file.txt")
    sub.write("file.txt", "on the disk\n")
    gc = SlowGc(project.repo)
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish(cancel=WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert [*held(project.store)] == ["commit-1"]
    assert project.store.git("show", "refs/ralph/snapshots/00aa/commit-1^2:file.txt") == "staged"


def test_what_a_sparse_partial_clone_lacks_is_not_stored_again(repo: Repo, tmp_path: Path) -> None:
    """Its remote has promised a file that is not checked out. The other files are stored again."""
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "partial")
    repo.git("clone", "-q", "--filter=blob:none", f"file://{repo.path}", clone.path)
    tree = make_tree(clone)
    tree.inside.git("sparse-checkout", "set", "--no-cone", "/dir/")
    repo.write("theirs.txt", "theirs\n")
    repo.commit("theirs")
    tree.inside.git("pull", "-q", "origin", "main")
    gc = SlowGc(clone)
    gc.reachable |= {tree.inside.git("rev-parse", "HEAD^{tree}")}
    tree.inside.write("dir/new.txt", "new\n")
    outcome = tree.finish(cancel=WhileWaiting(gc))
    gc.finish()
    assert outcome.kept is None
    assert clone.git("show", f"{WIP}:dir/new.txt") == "new"


def test_a_gc_deletes_nothing_that_comes_from_a_clone(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when the objects are in the repository and have no ref yet, and ends before they get one."""
    directory = repo.path / ".git"
    cases = f"""*" update-ref "*)
    if [ -n "$(find {directory}/objects/pack -name '*.idx')" ]; then
        touch {tmp_path}/began
        env -i PATH="$PATH" "$REAL" -C {directory} gc --quiet --prune=now
    fi ;;"""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "bin", cases))
    work = "echo a > a; git add a; git commit -qm a; echo b > b"
    result = run(repo.path, "-n", "1", "--isolation", "clone", "--", "sh", "-ec", work)
    assert result.status == 0, result.stderr
    assert (tmp_path / "began").exists()
    assert repo.git("show", f"{result.report['saved']}:b") == "b", result.stderr
    repo.git("fsck", "--full", "--strict")
    assert [*(repo.path / ".git/objects/pack").glob("*.keep")] == []
