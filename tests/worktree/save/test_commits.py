"""Commits that no branch of the session holds are saved."""

from __future__ import annotations

import contextlib
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.repo import make_repo
from tests.support.trees import ID, SESSION, WIP, Tree, in_git, make_tree, on_disk

if TYPE_CHECKING:
    from collections.abc import Callable


def test_commits_of_a_detached_head_get_the_branch(tree: Tree) -> None:
    """Commits on no branch would go with the worktree."""
    tree.inside.git("checkout", "-q", "--detach")
    (tree.path / "file.txt").write_text("detached\n")
    commit = tree.inside.commit("on no branch")
    outcome = tree.finish()
    assert outcome.kept is None
    assert tree.repo.git("rev-parse", WIP) == commit


def test_uncommitted_work_on_a_detached_head_stands_on_its_commits(tree: Tree) -> None:
    """One branch holds both."""
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on no branch")
    tree.inside.write("new", "n\n")
    tree.finish()
    assert tree.repo.git("rev-parse", f"{WIP}^1") == commit


def test_a_detached_head_on_a_branch_needs_nothing(tree: Tree) -> None:
    """What a branch holds already gets no second one."""
    tree.inside.commit("on the branch")
    tree.inside.git("checkout", "-q", "--detach")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert (outcome.saved.branch, outcome.saved.snapshots) == (None, ())


def test_a_detached_head_is_saved_also_if_a_branch_is_named_head(tree: Tree) -> None:
    """With such a branch, git does not say which ref the name HEAD stands for (git 2.39)."""
    tree.repo.git("update-ref", "refs/heads/HEAD", "main")
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on no branch")
    outcome = tree.finish()
    assert outcome.kept is None
    assert tree.repo.git("rev-parse", WIP) == commit


@pytest.mark.parametrize("own", ["refs/worktree/own", "refs/bisect/own", "HEAD", "worktrees/{}/HEAD"])
def test_a_branch_that_leads_to_a_ref_of_the_worktree_holds_nothing(tree: Tree, own: str) -> None:
    """Git deletes the refs of a worktree with it; the branch would then lead nowhere."""
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on a ref of the worktree")
    if own.startswith("refs/"):
        tree.inside.git("update-ref", own, commit)
        tree.inside.git("checkout", "-q", "--detach", "main")
    tree.inside.git("symbolic-ref", "refs/heads/other", own.format(tree.linked.registration.name))
    outcome = tree.finish()
    assert outcome.kept is None
    held = tree.repo.git(
        "for-each-ref", "--format=%(refname)", "--contains", commit, "refs/heads", "refs/ralph"
    )
    assert held


def test_work_on_another_branch_stands_on_that_branch(tree: Tree) -> None:
    """The agent may have made a branch of its own."""
    tree.inside.git("checkout", "-q", "-b", "feature")
    commit = tree.inside.commit("feature work")
    tree.inside.write("new", "n\n")
    tree.finish()
    assert tree.repo.git("rev-parse", "feature") == commit
    assert tree.repo.git("rev-parse", f"{WIP}^1") == commit


def test_an_unborn_branch_is_saved_without_parent(tree: Tree) -> None:
    """An orphan checkout has files but no commit to stand on."""
    tree.inside.git("checkout", "-q", "--orphan", "fresh")
    before = on_disk(tree.path)
    tree.finish()
    assert in_git(tree.repo, WIP) == before
    assert tree.repo.git("rev-list", "--count", WIP) == "1"


def test_amended_and_reset_commits_get_a_snapshot(tree: Tree) -> None:
    """Only the worktree's reflog knows them, and removal deletes that."""
    first = tree.inside.commit("to be amended")
    tree.inside.git("commit", "-q", "--allow-empty", "--amend", "-m", "amended")
    away = tree.inside.commit("to be reset away")
    tree.inside.git("reset", "-q", "--hard", "HEAD~1")
    outcome = tree.finish()
    assert outcome.saved is not None
    held = [tree.repo.git("rev-parse", ref) for ref in outcome.saved.snapshots]
    assert sorted(held) == sorted([first, away])
    tree.repo.git("reflog", "expire", "--expire=all", "--all")
    tree.repo.git("gc", "-q", "--prune=now")
    assert [tree.repo.git("cat-file", "-t", commit) for commit in (first, away)] == ["commit", "commit"]


def test_a_deleted_session_branch_keeps_its_commits(tree: Tree) -> None:
    """An agent that deletes the branch it stands on loses nothing."""
    commit = tree.inside.commit("work")
    tree.inside.git("checkout", "-q", "--detach", "main")
    tree.inside.git("branch", "-q", "-D", f"ralph/{ID}")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert [tree.repo.git("rev-parse", ref) for ref in outcome.saved.snapshots] == [commit]


def _conflict(tree: Tree) -> None:
    tree.inside.git("checkout", "-q", "-b", "side")
    tree.inside.write("file.txt", "side\n")
    tree.inside.commit("side")
    tree.inside.git("checkout", "-q", f"ralph/{ID}")
    tree.inside.write("file.txt", "ours\n")
    tree.inside.commit("ours")


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick"])
def test_an_operation_in_progress_is_saved(tree: Tree, operation: str) -> None:
    """Conflict markers, what was resolved and staged, and the commits involved all survive."""
    _conflict(tree)
    tree.inside.git(operation, "side", check=False)
    tree.inside.write("resolved", "half way\n")
    tree.inside.git("add", "resolved")
    before = on_disk(tree.path)
    assert b"<<<<<<<" in before[b"file.txt"][1]
    outcome = tree.finish()
    assert outcome.kept is None
    assert in_git(tree.repo, WIP) == before
    assert f"A {operation} was in progress." in tree.repo.git("log", "-1", "--format=%B", WIP)
    assert tree.repo.show(f"{WIP}^2:resolved") == b"half way\n"


def test_a_repository_with_sha256(tmp_path: Path) -> None:
    """Longer object ids change nothing, conflicts included."""
    repo = make_repo(tmp_path / "sha256", empty=True)
    shutil.rmtree(repo.path / ".git")
    repo.git("init", "-q", "--object-format=sha256", "--initial-branch=main")
    repo.write("file.txt", "one\n")
    repo.commit("first")
    tree = make_tree(repo)
    _conflict(tree)
    tree.inside.git("merge", "side", check=False)
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    assert in_git(repo, WIP) == before


def test_an_automatic_stash_survives(tree: Tree) -> None:
    """Git notes the stash of rebase --autostash in a file that goes with the worktree."""
    _conflict(tree)
    tree.inside.write("dir/tracked.txt", "stashed away\n")
    tree.inside.git("rebase", "--autostash", "side", check=False)
    tree.inside.git("checkout", "-q", "-f", "--detach", "side")
    outcome = tree.finish()
    assert outcome.kept is None
    assert outcome.saved is not None
    contents = [tree.repo.show(f"{ref}:dir/tracked.txt") for ref in outcome.saved.snapshots]
    assert b"stashed away\n" in contents


def test_a_worktree_ref_survives(tree: Tree) -> None:
    """refs/worktree/* belong to one worktree and go with it."""
    commit = tree.inside.commit("marked")
    tree.inside.git("update-ref", "refs/worktree/mark", commit)
    tree.inside.git("reset", "-q", "--hard", "HEAD~1")
    Path(tree.linked.registration / "logs" / "HEAD").unlink()
    outcome = tree.finish()
    assert outcome.saved is not None
    assert [tree.repo.git("rev-parse", ref) for ref in outcome.saved.snapshots] == [commit]


def test_the_saved_commit_names_its_session(tree: Tree) -> None:
    """A person who finds the branch later can look the session up."""
    tree.inside.write("new", "n\n")
    tree.finish()
    assert tree.repo.git("log", "-1", "--format=%s", WIP) == f"ralph: saved work of session {SESSION}"


def test_ignored_files_are_counted_and_named(tree: Tree) -> None:
    """They are not saved, so the message names them."""
    tree.inside.write("a.ignored", "")
    for number in range(30):
        tree.inside.write(f"build/deep/{number}", "")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert outcome.saved.ignored_files == 31
    assert sorted(outcome.saved.ignored) == ["a.ignored", "build/"]
    assert outcome.saved.branch is None


def test_files_that_are_written_all_the_time_keep_the_worktree(tree: Tree) -> None:
    """No picture of them would be the last one, so none is taken for it."""
    done = threading.Event()
    part = tree.repo.path / ".ralph" / "part"

    def scribble() -> None:
        number = 0
        while not done.is_set():
            number += 1
            part.write_text(str(number))  # no file in the worktree is ever open
            with contextlib.suppress(FileNotFoundError):  # it is in the trash for the last look
                part.rename(tree.path / f"scribble-{number % 50}")

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        outcome = tree.finish()
    finally:
        done.set()
        writer.join()
    assert outcome.kept == "something was changed in it while it was being removed"
    assert tree.path.is_dir()


def test_a_failing_filter_keeps_the_worktree_and_saves_the_rest(tree: Tree) -> None:
    """One file that git cannot store is no reason to leave the others unsaved."""
    tree.inside.write(".gitattributes", "*.secret filter=broken\n")
    tree.inside.git("config", "filter.broken.clean", "false")
    tree.inside.git("config", "filter.broken.required", "true")
    tree.inside.write("a.secret", "x\n")
    tree.inside.write("plain", "p\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert "a.secret" in outcome.kept
    assert (tree.path / "a.secret").read_text() == "x\n"
    assert tree.repo.show(f"{WIP}:plain") == b"p\n"


def test_a_failing_filter_keeps_no_file_of_another_one_from_being_saved(tree: Tree) -> None:
    """What git-lfs cannot store, for example, does not concern the encrypted files."""
    _break_filter(tree)
    tree.inside.write(".gitattributes", "*.secret filter=broken\n*.upper filter=upper\n")
    tree.inside.git("config", "filter.upper.clean", "tr a-z A-Z")
    tree.inside.git("config", "filter.upper.required", "true")
    for name in ("a.secret", "b.upper", "plain"):
        tree.inside.write(name, "x\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith("1 file cannot be saved (a.secret)")
    assert [tree.repo.show(f"{WIP}:{name}") for name in ("b.upper", "plain")] == [b"X\n", b"x\n"]


def _break_filter(tree: Tree, clean: str = "false") -> None:
    tree.inside.write(".gitattributes", "*.secret filter=broken\n")
    tree.inside.git("config", "filter.broken.clean", clean)
    tree.inside.git("config", "filter.broken.required", "true")


@pytest.mark.parametrize(("old", "new"), [("a/b", "a"), ("a", "a/b")], ids=["to a file", "to a directory"])
def test_a_failing_filter_hides_no_change_of_a_directory(tree: Tree, old: str, new: str) -> None:
    """A directory that became a file is saved beside the file that cannot be, and the other way round."""
    tree.inside.write(old, "old\n")
    tree.inside.commit("old")
    (tree.path / old).unlink()
    if "/" in old:
        (tree.path / "a").rmdir()
    tree.inside.write(new, "new\n")
    _break_filter(tree)
    tree.inside.write("b.secret", "x\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith("1 file cannot be saved (b.secret)")
    assert tree.repo.git(
        "diff", "--no-renames", "--name-status", f"ralph/{ID}", WIP, "--", "a"
    ).splitlines() == ([f"A\t{new}", f"D\t{old}"] if new < old else [f"D\t{old}", f"A\t{new}"])


def test_a_slow_failing_filter_costs_a_few_attempts(tree: Tree, tmp_path: Path) -> None:
    """Half of many files cannot be stored. Git does not try each, and all others are saved."""
    ran = tmp_path / "ran"
    _break_filter(tree, f"echo >> {ran}; false")
    for number in range(32):
        tree.inside.write(f"{number:02}", "x\n")
        tree.inside.write(f"{number:02}.secret", "x\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith("32 files cannot be saved")
    names = tree.repo.git("ls-tree", "--name-only", WIP).split()
    assert [name for name in names if name.isdecimal()] == [f"{number:02}" for number in range(32)]
    assert len(ran.read_text().splitlines()) <= 3


@pytest.mark.parametrize("index", [b"garbage", None])
def test_a_broken_index_keeps_the_worktree_and_saves_the_files(tree: Tree, index: bytes | None) -> None:
    """Staged work cannot be known, so the worktree stays; the files on disk are saved all the same.

    A power failure can leave no index: git does not wait for the disk when it has written one.
    """
    tree.inside.write("new", "n\n")
    if index is None:
        (tree.linked.registration / "index").unlink()
    else:
        (tree.linked.registration / "index").write_bytes(index)
    outcome = tree.finish()
    assert outcome.kept is not None
    assert f"index {'cannot be read' if index else 'is missing'}, what was staged" in outcome.kept
    assert tree.repo.git("diff", "--name-status", "main", WIP) == "A\tnew"
    assert tree.repo.show(f"{WIP}:new") == b"n\n"


def _nested_untracked(tree: Tree) -> str:
    make_repo(tree.path / "vendor" / "x")
    return "vendor/x"


def _nested_without_commit(tree: Tree) -> str:
    make_repo(tree.path / "vendor" / "x", empty=True)
    return "vendor/x"


def _nested_ignored(tree: Tree) -> str:
    make_repo(tree.path / "build" / "deep" / "x")
    return "build/deep/x"


def _nested_in_tracked_directory(tree: Tree) -> str:
    tree.inside.git("init", "-q", "dir")
    return "dir"


def _nested_bare_and_ignored(tree: Tree) -> str:
    tree.inside.git("init", "-q", "--bare", "build/cache.git")
    bare = ("--git-dir", "build/cache.git")
    empty = tree.inside.git(*bare, "hash-object", "-t", "tree", "-w", "/dev/null")
    commit = tree.inside.git(*bare, "commit-tree", "-m", "its own", empty)
    tree.inside.git(*bare, "update-ref", "refs/heads/main", commit)
    return "build/cache.git"


def _nested_worktree(tree: Tree) -> str:
    tree.inside.git("worktree", "add", "-q", "-b", "below", "build/below")
    return "build/below"


@pytest.mark.parametrize(
    "nest",
    [
        _nested_untracked,
        _nested_without_commit,
        _nested_ignored,
        _nested_in_tracked_directory,
        _nested_bare_and_ignored,
        _nested_worktree,
    ],
    ids=lambda nest: nest.__name__.strip("_"),
)
def test_a_nested_repository_keeps_the_worktree(tree: Tree, nest: Callable[[Tree], str]) -> None:
    """Its commits cannot be saved from outside; everything around it is."""
    directory = nest(tree)
    tree.inside.write("beside", "b\n")
    tree.inside.write("dir/tracked.txt", "changed\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert f"nested repository {directory} cannot be saved" in outcome.kept
    assert (tree.path / directory).is_dir()
    assert tree.repo.show(f"{WIP}:beside") == b"b\n"
    assert tree.repo.show(f"{WIP}:dir/tracked.txt") == b"changed\n"


def test_keeping_dirty_work_saves_nothing_and_removes_nothing(tree: Tree) -> None:
    """On request the worktree itself is what is kept."""
    tree.inside.write("new", "n\n")
    outcome = tree.finish(keep_dirty=True)
    assert outcome.kept == "1 uncommitted path"
    assert WIP not in tree.repo.branches()
    assert (tree.path / "new").exists()


def test_a_damaged_reflog_in_a_reftable_keeps_the_worktree(tmp_path: Path) -> None:
    """Git lists it up to a commit that it cannot read, and newer versions end with 0: the rest is lost."""
    repo = make_repo(tmp_path / "project", empty=True)
    shutil.rmtree(repo.path / ".git")
    repo.git("init", "-q", "-b", "main", "--ref-format=reftable", check=False)
    if not (repo.path / ".git" / "reftable").is_dir():
        pytest.skip("this git has no reftables")
    repo.write("file.txt", "one\n")
    repo.commit("one")
    tree = make_tree(repo)
    tree.inside.git("checkout", "-q", "--detach")
    tree.inside.commit("in the reflog alone")
    damaged = tree.inside.commit("damaged")
    tree.inside.git("checkout", "-q", f"ralph/{ID}")
    path = repo.path / ".git" / "objects" / damaged[:2] / damaged[2:]
    path.chmod(0o600)
    path.write_bytes(b"")
    outcome = tree.finish()
    assert "the reflog of HEAD cannot be read to its end" in (outcome.kept or "")
    assert tree.path.is_dir()
