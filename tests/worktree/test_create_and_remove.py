"""Worktrees are made whole or not at all, and removed only if they are ours and no process is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import BranchBusyError, IsolationError, StoppedError
from ralph_wrap.system import files
from ralph_wrap.worktree import trash as trash_
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, NewWorktree
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.ignore import appended
from ralph_wrap.worktree.ownership import WorktreeOwner
from tests.support.cancelling import cancelled
from tests.support.git_shim import have_git_register, shim_git
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.repo import Repo, make_repo
from tests.support.trees import ID, SESSION, WIP, located, make_tree
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing_left(repo: Repo) -> None:
    assert repo.branches() == ["main"]
    assert repo.worktrees() == []
    assert not list((repo.path / ".git").glob("worktrees/*"))
    assert not list(repo.path.glob(".ralph/worktrees/*"))


def test_the_registration_is_locked_and_names_the_session(repo: Repo) -> None:
    """Git's prune and remove leave it alone, and a person sees why."""
    make_tree(repo)
    assert "locked a test" in repo.git("worktree", "list", "--porcelain").split("\n")


def test_a_worktree_survives_prune_gc_and_remove(repo: Repo) -> None:
    """What the host's user may run at any time does no harm."""
    tree = make_tree(repo)
    repo.git("worktree", "prune", "--expire=now")
    repo.git("gc", "-q", "--prune=now")
    repo.git("worktree", "remove", "--force", tree.path, check=False)
    assert tree.inside.git("status", "--porcelain") == ""


def test_a_worktree_works_under_another_path(repo: Repo, tmp_path: Path) -> None:
    """As on the host, where the project is somewhere else than in the container."""
    tree = make_tree(repo)
    tree.inside.write("new", "n\n")
    elsewhere = tmp_path / "elsewhere"
    repo.path.rename(elsewhere)
    moved = Repo(elsewhere / tree.path.relative_to(repo.path))
    assert moved.git("status", "--porcelain") == "?? new"
    assert moved.git("rev-parse", "HEAD") == tree.linked.base


def test_what_names_a_worktree_outlives_a_power_failure(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git syncs none of it: with empty files the owner of the worktree would be unknown."""
    synced: set[Path] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    tree = make_tree(repo)
    registration = tree.linked.registration
    names = {registration / name for name in ("HEAD", "commondir", "gitdir", "locked")} | {tree.path / ".git"}
    directories = {registration, registration.parent, tree.path, tree.path.parent}
    branch = tree.linked.common_dir / "refs" / "heads" / tree.linked.branch
    assert names | directories | {branch, branch.parent, branch.parent.parent} <= synced


def test_a_branch_that_is_packed_at_once_outlives_a_power_failure(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no file of its own that could be synced."""
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_file_system", synced.append)
    tree = make_tree(repo, registered=lambda _: repo.git("pack-refs", "--all"))
    assert synced == [tree.linked.common_dir]


def test_a_branch_that_is_packed_meanwhile_fails_no_start(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``git gc`` of another process deletes its file between two steps of ours."""
    synced: list[Path] = []
    start = files.start_fsync

    def late(*paths: Path) -> Callable[[], None]:
        repo.git("pack-refs", "--all")
        return start(*paths)

    monkeypatch.setattr(files, "start_fsync", late)
    monkeypatch.setattr(files, "sync_file_system", synced.append)
    tree = make_tree(repo)
    assert synced == [tree.linked.common_dir]


def test_no_tracking_is_configured(repo: Repo) -> None:
    """Writing the shared configuration is what makes many starts at once fail."""
    repo.git("config", "branch.autoSetupMerge", "always")
    before = (repo.path / ".git" / "config").read_bytes()
    make_tree(repo)
    assert (repo.path / ".git" / "config").read_bytes() == before


def test_no_hook_runs(repo: Repo) -> None:
    """A failing post-checkout hook makes git report failure for a complete worktree."""
    hook = repo.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch ran\nexit 1\n", executable=True)
    tree = make_tree(repo)
    assert not (tree.path / "ran").exists()
    assert hook.exists()


def test_relative_pointers_are_not_asked_for(repo: Repo) -> None:
    """Git 2.48 would write an extension into the shared configuration that others do not know."""
    repo.git("config", "worktree.useRelativePaths", "true")
    before = (repo.path / ".git" / "config").read_bytes()
    make_tree(repo)
    assert (repo.path / ".git" / "config").read_bytes() == before


@pytest.mark.parametrize("step", ["worktree add", "read-tree --reset"])
@pytest.mark.parametrize(
    "how", ["exit 1", "kill -KILL $$", '"$REAL" "$@"; exit 1'], ids=["fails", "dies", "late"]
)
def test_a_failed_attempt_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, how: str
) -> None:
    """Whether git fails before, after or in the middle of its work."""
    have_git_register(repo.path)
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f'*" {step} "*) {how} ;;'))
    with pytest.raises(IsolationError, match=f"git {step.split(maxsplit=1)[0]}"):
        make_tree(repo)
    _nothing_left(repo)


def test_a_signal_during_the_checkout_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session does not wait for the checkout of a large repository to end."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exec sleep 600 ;;'))
    where, repository = located(repo)
    with pytest.raises(StoppedError):
        create(
            where,
            repository,
            NewWorktree(
                repo.path / ".ralph/worktrees" / SESSION, f"ralph/{ID}", repo.head, WorktreeOwner("a test")
            ),
            CheckoutWatch(cancelled()),
        )
    _nothing_left(repo)


def test_an_attempt_never_touches_what_was_there(repo: Repo) -> None:
    """A directory in the way belongs to the user."""
    precious = repo.write(f".ralph/worktrees/{SESSION}/precious", "p\n")
    with pytest.raises(IsolationError, match="is there already"):
        make_tree(repo)
    assert precious.read_text() == "p\n"
    assert repo.branches() == ["main"]


def test_an_existing_branch_is_continued(repo: Repo) -> None:
    """And not taken away by a failed attempt, nor called ours."""
    repo.git("branch", f"ralph/{ID}")
    repo.commit("main goes on")
    tree = make_tree(repo, continued=True)
    assert tree.linked.branch_created is False
    assert tree.inside.head == repo.git("rev-parse", "main~1")


def test_a_failed_attempt_keeps_an_existing_branch(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a branch that this very call made is undone."""
    repo.git("branch", f"ralph/{ID}")
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;'))
    with pytest.raises(IsolationError):
        make_tree(repo, continued=True)
    assert repo.branches() == ["main", f"ralph/{ID}"]


def test_a_failure_of_unknown_cause_has_a_command_that_shows_it(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails as long as git does, and otherwise leaves nothing behind."""
    before = repo.git("worktree", "list")
    with monkeypatch.context() as broken:
        broken.setenv("PATH", shim_git(tmp_path / "shim", '*" read-tree --reset "*) exit 1 ;;'))
        with pytest.raises(IsolationError) as caught:
            make_tree(repo)
    hint = caught.value.hint.partition(": ")[2]
    with monkeypatch.context() as broken:
        broken.setenv("PATH", shim_git(tmp_path / "other", '*" worktree add "*) echo no-room >&2; exit 1 ;;'))
        failed = subprocess.run(("sh", "-c", hint), check=False, capture_output=True)
        assert (failed.returncode, failed.stderr) == (1, b"no-room\n")
    subprocess.run(("sh", "-c", hint), check=True, capture_output=True)
    assert repo.git("worktree", "list") == before
    assert not repo.path.with_name(f"{repo.path.name}.probe").exists()


def test_a_branch_that_is_checked_out_is_refused(repo: Repo) -> None:
    """Two worktrees on one branch would overwrite each other's commits."""
    repo.git("worktree", "add", "-q", "-b", f"ralph/{ID}", repo.path.parent / "other")
    with pytest.raises(BranchBusyError, match="other"):
        make_tree(repo, continued=True)


def test_a_branch_in_the_way_is_named(repo: Repo) -> None:
    """Refs are files: a branch ralph leaves no room for ralph/<id>."""
    repo.git("branch", "ralph")
    with pytest.raises(IsolationError) as caught:
        make_tree(repo)
    assert caught.value.hint == f"branch ralph is in the way of ralph/{ID}: git branch -m ralph another-name"


def _break_pointer(path: Path, _registration: Path) -> None:
    other = make_repo(path.parent.parent.parent.parent / "trap")
    (path / ".git").write_text(f"gitdir: {other.path}/.git\n")


def _remove_pointer(path: Path, _registration: Path) -> None:
    (path / ".git").unlink()


def _point_back_elsewhere(_path: Path, registration: Path) -> None:
    (registration / "gitdir").write_text("/somewhere/else/.git\n")


def _swap_directory(path: Path, _registration: Path) -> None:
    path.rename(path.with_name("moved-away"))
    path.mkdir()
    (path / "precious").touch()


def _symlink_directory(path: Path, _registration: Path) -> None:
    path.rename(path.with_name("moved-away"))
    path.symlink_to("moved-away")


def _move_away(path: Path, _registration: Path) -> None:
    path.rename(path.with_name("moved-away"))


@pytest.mark.parametrize(
    "disown",
    [_break_pointer, _remove_pointer, _point_back_elsewhere, _swap_directory, _symlink_directory, _move_away],
    ids=lambda disown: disown.__name__.strip("_"),
)
def test_a_worktree_that_is_not_ours_any_more_stays(repo: Repo, disown: Callable[[Path, Path], None]) -> None:
    """Both directions of ownership must hold, or nothing is removed."""
    tree = make_tree(repo)
    disown(tree.path, tree.linked.registration)
    before = sorted((repo.path / ".ralph" / "worktrees").rglob("*"))
    outcome = tree.finish()
    assert outcome.kept is not None
    assert sorted((repo.path / ".ralph" / "worktrees").rglob("*")) == before
    assert tree.linked.registration.is_dir()


def test_a_process_inside_keeps_the_worktree(repo: Repo) -> None:
    """Git removes the directory under a shell that stands in it; its next file would be lost."""
    tree = make_tree(repo)
    inner = tree.path / "sub"
    inner.mkdir()
    with subprocess.Popen(("cat",), cwd=inner, stdin=subprocess.PIPE) as process:
        try:
            outcome = tree.finish()
        finally:
            process.kill()
    assert outcome.kept == f"processes work in it: cat ({process.pid})"
    assert tree.finish().kept is None


@needs_mounts
def test_a_mount_inside_keeps_the_worktree(repo: Repo) -> None:
    """Deleting the worktree would empty what is mounted in it."""
    tree = make_tree(repo)
    with mounted(tree.path / "cache", "-t", "tmpfs", "none") as cache:
        (cache / "precious").touch()
        outcome = tree.finish()
        assert outcome.kept == f"something is mounted in it: {cache}"
        assert (cache / "precious").exists()


@needs_mounts
def test_trash_on_another_file_system(repo: Repo) -> None:
    """A rename cannot cross it; then the worktree goes from where it is."""
    tree = make_tree(repo)
    tree.inside.write("new", "n\n")
    with mounted(repo.path / ".ralph" / "run", "-t", "tmpfs", "none"):
        assert tree.finish().kept is None
    assert not tree.path.exists()
    assert repo.show(f"{WIP}:new") == b"n\n"


def test_a_failed_removal_puts_the_worktree_back(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the registration is gone, the directory can come back from the trash."""
    tree = make_tree(repo)
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", '*" worktree remove "*) exit 1 ;;'))
    outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith("it cannot be removed: git worktree failed (1)")
    monkeypatch.undo()
    assert tree.inside.git("status", "--porcelain") == ""


def test_the_trash_is_emptied_in_the_background(tmp_path: Path) -> None:
    """The session does not wait for it, and it ends all the same."""
    trash = tmp_path / "trash"
    directory = tmp_path / "a worktree"
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "file").touch()
    (directory / "deep").chmod(0o500)
    (trash / f"{SESSION}.leaving").mkdir(parents=True)
    (trash / "not-of-a-session").mkdir()
    trash_.discard(directory, trash / SESSION, lambda _: True)
    assert not directory.exists()
    eventually(lambda: not (trash / SESSION).exists(), "an empty trash")
    assert trash_.empty_trash(trash) == ((), ())
    assert sorted(path.name for path in trash.iterdir()) == [f"{SESSION}.leaving", "not-of-a-session"]


def test_a_deep_tree_is_deleted(tmp_path: Path) -> None:
    """Deeper than a process may have open directories, and than a path may be long."""
    directory = inner = tmp_path / SESSION
    directory.mkdir()
    descriptor = os.open(inner, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=descriptor)
        below = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    trash_.discard(directory, tmp_path / "trash", lambda _: True)
    eventually(lambda: not [*tmp_path.glob(f"{SESSION}*")], "the deletion to end")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b".ralph/worktrees/\n"),
        (b"a\n", b"a\n.ralph/worktrees/\n"),
        (b"a", b"a\n.ralph/worktrees/\n"),
        (b"a\r\nb\r\n", b"a\r\nb\r\n.ralph/worktrees/\r\n"),
        (b"a\r\nb", b"a\r\nb\r\n.ralph/worktrees/\r\n"),
        (b"\xff\n", b"\xff\n.ralph/worktrees/\n"),
    ],
)
def test_the_rule_respects_the_file(before: bytes, after: bytes) -> None:
    """Line ends stay, and the file ends with one: a line that is appended later is no part of the rule."""
    assert appended(before) == after
