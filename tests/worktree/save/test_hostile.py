"""Agents that hide their work from git, on purpose or by accident, and those that lay traps."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import IsolationError
from ralph_wrap.state.ids import agent_ids_in
from ralph_wrap.worktree.save import commits, whole
from tests.support.needs import needs_other_users
from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM, run
from tests.support.trees import ID, SESSION, WIP, Tree, in_git, make_tree, on_disk
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo


@pytest.fixture
def tree(repo: Repo) -> Tree:
    """Return a worktree with an ignore rule and a directory."""
    repo.write("dir/tracked.txt", "tracked\n")
    repo.write(".gitignore", "*.ignored\nbuild/\n")
    repo.commit("more")
    return make_tree(repo)


def test_files_below_a_gitlink_keep_the_worktree(tree: Tree) -> None:
    """A repository that was added and then lost its .git leaves files that git does not look at."""
    make_repo(tree.path / "app")
    tree.inside.git("add", "app")
    tree.inside.git("commit", "-q", "-m", "a gitlink by accident")
    shutil.rmtree(tree.path / "app" / ".git")
    outcome = tree.finish()
    assert outcome.kept == "git does not look at the files below the submodule's path app"
    assert (tree.path / "app" / "file.txt").exists()


def test_keeping_dirty_work_still_saves_commits(tree: Tree) -> None:
    """--on-dirty keep is about files; a clean worktree goes, and its commits must not go with it."""
    tree.inside.git("checkout", "-q", "--detach")
    commit = tree.inside.commit("on no branch")
    outcome = tree.finish(keep_dirty=True)
    assert outcome.kept is None
    assert tree.repo.git("rev-parse", WIP) == commit


def test_names_that_differ_in_case_only(tree: Tree) -> None:
    """core.ignoreCase makes git take a new file for a tracked one."""
    tree.inside.git("config", "core.ignoreCase", "true")
    tree.inside.write("FILE.TXT", "another file\n")
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    assert in_git(tree.repo, WIP) == before


def test_a_mode_that_was_hidden(tree: Tree) -> None:
    """core.fileMode as it was before the agent counts."""
    tree.inside.git("config", "core.fileMode", "false")
    (tree.path / "file.txt").chmod(0o755)
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    assert in_git(tree.repo, WIP) == before


def test_a_replaced_commit(tree: Tree) -> None:
    """Git replace makes a changed tree look committed."""
    tree.inside.write("file.txt", "changed\n")
    tree.inside.git("add", "file.txt")
    changed = tree.inside.git("commit-tree", "-m", "x", tree.inside.git("write-tree"))
    tree.inside.git("replace", tree.linked.base, changed)
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    tree.repo.git("replace", "-d", tree.linked.base)
    assert in_git(tree.repo, WIP) == before


def test_a_deleted_file_with_the_skip_worktree_flag(tree: Tree) -> None:
    """Outside a sparse checkout an absent file is a deleted one."""
    tree.inside.git("update-index", "--skip-worktree", "file.txt")
    (tree.path / "file.txt").unlink()
    before = on_disk(tree.path)
    tree.finish()
    assert in_git(tree.repo, WIP) == before


def test_a_directory_that_cannot_be_searched(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git takes the files in it for unchanged; root may search any, so its right is taken away here."""
    (tree.path / "dir" / "tracked.txt").write_text("changed\n")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("/dir") and real(path, mode))
    assert tree.finish().kept == "directory dir cannot be searched"


def test_a_bare_repository_of_which_a_part_is_ignored(tree: Tree) -> None:
    """Its objects would be gone."""
    tree.inside.write(".gitignore", "objects/\n")
    tree.inside.commit("ignore objects")
    tree.inside.git("init", "-q", "--bare", "store.git")
    (tree.path / "store.git" / "objects" / "precious").touch()
    outcome = tree.finish()
    assert outcome.kept is not None
    assert "nested repository store.git cannot be saved" in outcome.kept


def test_a_tag_that_only_the_worktree_knows(tree: Tree) -> None:
    """What it tags is kept."""
    commit = tree.inside.commit("tagged")
    tree.inside.git("tag", "-a", "-m", "t", "v1")
    tree.inside.git("update-ref", "refs/worktree/mark", tree.inside.git("rev-parse", "v1"))
    tree.inside.git("tag", "-d", "v1")
    tree.inside.git("reset", "-q", "--hard", "HEAD~1")
    (tree.linked.registration / "logs" / "HEAD").unlink()
    outcome = tree.finish()
    assert outcome.saved is not None
    assert [tree.repo.git("rev-parse", f"{ref}^{{commit}}") for ref in outcome.saved.snapshots] == [commit]


def test_borrowed_objects_keep_the_worktree(tree: Tree) -> None:
    """Without it the repository would lack them."""
    alternates = tree.repo.path / ".git" / "objects" / "info" / "alternates"
    (tree.path / "build").mkdir()
    alternates.write_text(f"{tree.path}/build\n")
    outcome = tree.finish()
    assert outcome.kept is not None
    assert "borrows objects" in outcome.kept


def test_patches_in_progress_keep_the_worktree(tree: Tree) -> None:
    """Git am holds patches that are nowhere else."""
    (tree.linked.registration / "rebase-apply").mkdir()
    (tree.linked.registration / "rebase-apply" / "applying").touch()
    outcome = tree.finish()
    assert outcome.kept is not None
    assert "git am is in progress" in outcome.kept


@pytest.mark.parametrize("unstarted", [False, True])
def test_a_reflog_that_is_too_large_keeps_the_worktree(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, unstarted: bool
) -> None:
    """The part that is not read may name a commit, also where no agent is known to have worked."""
    monkeypatch.setattr(commits, "_LARGEST", 10)
    outcome = tree.finish(unstarted=unstarted)
    assert outcome.kept is not None
    assert "too large to look for commits" in outcome.kept


@pytest.mark.parametrize("name", ["ralph-wrap-index", "index.lock"])
def test_nothing_that_lies_about_is_used_or_written_through(tree: Tree, name: str) -> None:
    """A file or link that an agent put where we might work."""
    precious = tree.repo.path.parent / "precious"
    precious.write_text("precious\n")
    (tree.linked.registration / name).symlink_to(precious)
    tree.inside.git("update-index", "--assume-unchanged", "file.txt", check=False)
    (tree.path / "file.txt").write_text("changed\n")
    before = on_disk(tree.path)
    assert tree.finish().kept is None
    assert precious.read_text() == "precious\n"
    assert in_git(tree.repo, WIP) == before


def test_a_snapshot_ref_of_another_program(tree: Tree) -> None:
    """Its name is not one of ours, and it does no harm."""
    tree.inside.git("update-ref", f"refs/ralph/snapshots/{ID}/not-a-number", "HEAD")
    commit = tree.inside.commit("reset away")
    tree.inside.git("reset", "-q", "--hard", "HEAD~1")
    outcome = tree.finish()
    assert outcome.kept is None
    assert outcome.saved is not None
    assert [tree.repo.git("rev-parse", ref) for ref in outcome.saved.snapshots] == [commit]


def test_an_open_file_keeps_the_worktree(tree: Tree) -> None:
    """A process that writes to it by a descriptor needs no working directory."""
    script = f"exec 3>>{tree.path}/log; cat"
    with subprocess.Popen(("sh", "-c", script), stdin=subprocess.PIPE, cwd="/") as process:
        try:
            eventually((tree.path / "log").exists, "an open file")
            outcome = tree.finish()
        finally:
            process.kill()
    assert outcome.kept is not None
    assert outcome.kept.startswith("processes work in it: ")


def _do_after_save(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], *, always: bool = False
) -> None:
    """Do something after the first save, or after each one."""
    real, saves = whole.save, count()

    def save(*arguments: object, **options: object) -> object:
        saved = real(*arguments, **options)  # type: ignore[arg-type]
        if next(saves) == 0 or always:
            action()
        return saved

    monkeypatch.setattr(import_module("ralph_wrap.worktree.remove"), "save", save)


def test_a_commit_during_the_removal_is_saved(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the worktree's reflog names the commit: afterwards, the session's branch is checked out again."""

    def commit() -> None:
        tree.inside.git("checkout", "-q", "--detach")
        tree.inside.commit("late")
        tree.inside.git("checkout", "-q", f"ralph/{ID}")

    _do_after_save(monkeypatch, commit)
    outcome = tree.finish()
    assert outcome.kept is None
    assert outcome.saved is not None
    (ref,) = outcome.saved.snapshots
    assert tree.repo.git("log", "-1", "--format=%s", ref) == "late"


def test_a_file_that_is_opened_during_the_removal_keeps_the_worktree(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written yet, but the process can write at any time: the last look finds it."""
    with contextlib.ExitStack() as stack:

        def open_file() -> None:
            script = f"exec 3>>{tree.path}/file.txt; echo opened; cat"
            process = subprocess.Popen(
                ("sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"opened\n"

        _do_after_save(monkeypatch, open_file)
        outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith("processes work in it: ")
    assert (tree.path / "file.txt").exists()


def test_a_file_written_during_the_removal_is_saved(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the save and the rename a writer from outside may come: all is saved once more."""
    _do_after_save(monkeypatch, lambda: tree.inside.write("late", "precious\n"))
    assert tree.finish().kept is None
    assert tree.repo.show(f"{WIP}:late") == b"precious\n"


def test_what_is_staged_during_the_removal_is_saved(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file differs then from what was saved, only the index does."""
    tree.inside.write("file.txt", "on disk\n")
    blob = tree.inside.git("hash-object", "-w", tree.repo.write("theirs", "staged\n"))
    _do_after_save(
        monkeypatch, lambda: tree.inside.git("update-index", "--cacheinfo", f"100644,{blob},file.txt")
    )
    assert tree.finish().kept is None
    assert (tree.repo.show(f"{WIP}:file.txt"), tree.repo.show(f"{WIP}^2:file.txt")) == (
        b"on disk\n",
        b"staged\n",
    )


def test_files_that_change_after_each_save_keep_the_worktree(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No save would be the last one; the worktree stays where it was."""
    numbers = count()
    _do_after_save(monkeypatch, lambda: tree.inside.write("late", f"{next(numbers)}\n"), always=True)
    outcome = tree.finish()
    assert outcome.kept == "something was changed in it while it was being removed"
    assert (tree.path / "late").read_text() == "2\n"


def test_no_write_from_outside_is_lost(tree: Tree) -> None:
    """One that succeeds while the worktree ends is on the branch, or still in the worktree."""
    written: list[str] = []
    done = threading.Event()

    def write() -> None:
        while not done.is_set() and len(written) < 100:
            name = f"late-{len(written)}"
            try:
                (tree.path / name).write_text(name)
            except FileNotFoundError:
                return
            written.append(name)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        tree.finish()
    finally:
        done.set()
        writer.join()
    saved = set(in_git(tree.repo, WIP)) if WIP in tree.repo.branches() else set()
    there = {os.fsencode(path.name) for path in tree.path.glob("late-*")}
    assert {os.fsencode(name) for name in written} <= saved | there


def test_a_split_index_survives_a_kept_worktree(tree: Tree) -> None:
    """Our own commands neither split an index nor expire what another one needs."""
    tree.inside.git("config", "splitIndex.sharedIndexExpire", "now")
    tree.inside.git("update-index", "--split-index")
    make_repo(tree.path / "nested")
    tree.inside.write("new", "n\n")
    assert tree.finish().kept is not None
    assert "new" in tree.inside.git("status", "--porcelain")


def test_a_conflicting_worktree_add_of_another_process(tree: Tree) -> None:
    """Its half-written registration makes git fail for a moment; we try again."""
    broken = tree.linked.registration.with_name("half-made")
    broken.mkdir()
    (broken / "commondir").touch()
    (broken / "HEAD").write_text("ref: refs/heads/main\n")
    (broken / "gitdir").write_text("/nowhere/.git\n")
    timer = threading.Timer(0.05, shutil.rmtree, [broken])
    timer.start()
    try:
        assert tree.finish().kept is None
    finally:
        timer.join()


@pytest.mark.parametrize("entry", ["trash", "agents", "sessions", "."])
def test_a_symlink_among_our_directories_is_not_followed(
    repo: Repo, tmp_path: Path, script: Callable[[str], str], entry: str
) -> None:
    """An agent could otherwise have the next session delete or overwrite anything."""
    victim = tmp_path / "victim"
    (victim / SESSION).mkdir(parents=True)
    run(repo.path, "-n", "1", "--", script("true"))
    ours = repo.path / ".ralph" / "run" / entry
    ours.rename(tmp_path / "moved")
    ours.symlink_to(victim)
    result = run(repo.path, "-n", "1", "--", script("true"))
    assert (result.status, "is a symlink, which is not followed" in result.stderr) == (125, True)
    assert sorted(victim.rglob("*")) == [victim / SESSION]


def test_a_trash_that_becomes_a_symlink_meanwhile(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """Looked at anew each time."""
    victim = tmp_path / "victim"
    (victim / SESSION).mkdir(parents=True)
    agent = script(f'cd "$RALPH_PROJECT/.ralph/run" && rmdir trash && ln -s {victim} trash')
    result = run(repo.path, "-n", "1", "--", agent)
    assert result.status == 0
    assert sorted(victim.rglob("*")) == [victim / SESSION]
    assert repo.worktrees() == []


def test_children_from_before_the_session_are_left_alone(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """``server & exec ralph-wrap run`` makes them ours by parentage, and still not the agent's."""
    agent = script("true")
    line = f"cat <{tmp_path}/fifo & echo $! >{tmp_path}/pid; exec {PROGRAM} run -n 1 -- {agent}"
    os.mkfifo(tmp_path / "fifo")
    held = os.open(tmp_path / "fifo", os.O_RDWR)
    try:
        subprocess.run(("sh", "-c", line), cwd=repo.path, check=True, stderr=subprocess.DEVNULL)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it is there, or this raises
    finally:
        os.close(held)


@needs_other_users
def test_a_project_of_another_user_with_a_directory_of_root(repo: Repo, script: Callable[[str], str]) -> None:
    """The owner of the repository counts, not of the directory that a user stands in."""
    repo.write("sub/file", "x\n")
    repo.commit("sub")
    for path in [repo.path.parent, repo.path, *repo.path.rglob("*")]:
        os.chown(path, 1234, 1234, follow_symlinks=False)
    os.chown(repo.path / "sub", 0, 0)
    for parent in repo.path.parents[:-2]:
        parent.chmod(0o755)
    result = run(repo.path, "-n", "1", "-C", "sub", "--", script("id -u"))
    assert result.stdout == b"1234\n"
    assert (repo.path / ".git" / "refs" / "heads" / "ralph").stat().st_uid == 1234


def test_an_id_whose_branch_appears_after_the_look(repo: Repo, script: Callable[[str], str]) -> None:
    """Without --branch a session never goes on with a branch of the user."""
    repo.git("branch", f"ralph/{ID}")
    with pytest.raises(IsolationError, match="already exists"):
        make_tree(repo)
    assert repo.git("rev-parse", f"ralph/{ID}") == repo.head
    assert agent_ids_in(f"refs/heads/ralph/{ID}\n".encode()) == {ID}
    assert run(repo.path, "-n", "1", "--", script("true")).report["id"] != ID
