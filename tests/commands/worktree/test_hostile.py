"""What a review found that could lose work, or touch what is not ours."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap import git
from ralph_wrap.errors import IsolationError, RefusedError
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch
from ralph_wrap.worktree.managed.create import ManagedOptions, make
from ralph_wrap.worktree.managed.find import find
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata
from ralph_wrap.worktree.remove import remove
from tests.support.git_shim import shim_git
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.wait import CAP, eventually, never


def called(cwd: Path, *arguments: str, session: str = "s1") -> tuple[int, Any]:
    """Run ``ralph-wrap worktree``; return its status, and the data or error of its envelope."""
    ended = command("worktree", *arguments, cwd=cwd, env={"RALPH_SESSION_ID": session})
    envelope = json.loads(ended.stdout)
    return ended.status, envelope["data" if ended.status == 0 else "error"]


def created(repo: Repo, *arguments: str) -> Repo:
    """Make a worktree and return it."""
    status, data = called(repo.path, "create", "Try it", *arguments)
    assert status == 0, data
    return Repo(Path(data["path"]))


def test_a_directory_that_another_process_made_is_not_removed(repo: Repo, tmp_path: Path) -> None:
    """Two repositories want the same path: the one that fails leaves what the other has made."""
    other = make_repo(tmp_path / "other")
    directory = tmp_path / "shared"
    starts = [
        subprocess.Popen(
            (PROGRAM, "worktree", "create", "x", "--path", directory),
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for cwd in (repo.path, other.path)
    ]
    assert sorted(start.wait(3 * CAP) for start in starts) == [0, 6]
    assert Repo(directory).git("status", "--porcelain") == ""


def test_an_undo_leaves_what_was_there(repo: Repo, tmp_path: Path) -> None:
    """A directory that was there before is not ours to remove, empty or not."""
    directory = tmp_path / "there"
    directory.mkdir()
    where = git.Git(repo.path, git.git_environment(os.environ))
    mark = WorktreeMetadata(branch="b", base=repo.head, branch_created=True)
    with pytest.raises(IsolationError):
        make(where, git.locate_repository(where), directory, mark, ManagedOptions(), CheckoutWatch())
    assert (directory.is_dir(), repo.branches()) == (True, ["main"])


@pytest.mark.parametrize("work", ["rm data; mkdir data; echo W > data/w", "rm data; echo W > data"])
def test_work_in_the_place_of_a_link_is_saved(repo: Repo, work: str) -> None:
    """The link is hidden from git, not what an agent puts there."""
    (repo.path / "data").mkdir()
    ended = run(repo.path, "-n", "1", "--link", "data", "--", "sh", "-c", work)
    saved = ended.report["saved"]
    assert saved, ended.stderr
    assert repo.git("ls-tree", "-r", "--name-only", saved).split()[0].startswith("data")


def test_the_same_in_a_worktree_of_other_programs(repo: Repo) -> None:
    """It is refused, and named."""
    (repo.path / "data").mkdir()
    inside = created(repo, "--link", "data")
    (inside.path / "data").unlink()
    inside.write("data/w", "W\n")
    status, error = called(repo.path, "cleanup", str(inside.path))
    assert (status, "data" in error["message"]) == (5, True)
    assert (inside.path / "data" / "w").exists()


def test_a_sessions_layout_is_not_inherited(repo: Repo, tmp_path: Path) -> None:
    """By what its agent does elsewhere: another session, another repository."""
    repo.write("docs/d", "d\n")
    repo.commit("docs")
    (repo.path / "data").mkdir()
    other = make_repo(tmp_path / "other")
    other.write("data/w", "W\n")
    inner = "mkdir data; echo W > data/w; ls docs"
    agent = f"git -C {other.path} add -A; {PROGRAM} run -n 1 -- sh -c '{inner}'"
    run(repo.path, "-n", "1", "--base", "fresh", "--link", "data", "--", "sh", "-c", agent)
    assert other.git("diff", "--cached", "--name-only") == "data/w"
    saved = [branch for branch in repo.branches() if branch.endswith("-wip")]
    assert [repo.git("show", f"{branch}:data/w") for branch in saved] == ["W"]
    assert repo.git("show", f"{saved[0]}:docs/d") == "d"


def test_a_commit_made_during_the_removal_brings_the_worktree_back(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a detached HEAD nothing else would hold it."""
    inside = created(repo, "--hooks", "on")
    inside.git("checkout", "-q", "--detach")
    where = git.Git(repo.path, git.git_environment(os.environ))
    tree, _ = find(git.locate_repository(where).common_dir, inside.path)

    def commit(_: object) -> None:
        inside.git("commit", "-q", "--allow-empty", "-m", "late")

    monkeypatch.setattr(import_module("ralph_wrap.worktree.remove"), "sync_repository", commit)
    trash = repo.path / ".ralph" / "run" / "trash"
    with pytest.raises(RefusedError):
        remove(tree, where, trash, "20260102T030405Z-aaaa", check=lambda _: None)
    assert inside.git("log", "-1", "--format=%s") == "late"


def test_a_branch_that_alone_holds_its_beginning_is_not_deleted(repo: Repo) -> None:
    """Entered from a detached HEAD with a commit of its own."""
    repo.git("checkout", "-q", "--detach")
    repo.git("commit", "-q", "--allow-empty", "-m", "alone")
    assert called(repo.path, "enter", "a")[0] == 0
    repo.git("checkout", "-q", "main")
    status, error = called(repo.path, "exit", "--action", "remove")
    assert (status, "alone" in error["message"]) == (5, True)


@pytest.mark.parametrize("what", ["cleanup", "exit"])
def test_a_mark_does_not_make_a_session_ours_to_remove(repo: Repo, what: str) -> None:
    """Its agent can write one."""
    with Session(repo.path, "--", "sh", "-c", "echo new > new; sleep 600") as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/new")], "the agent's work")
        [registration] = repo.path.glob(".git/worktrees/*")
        branch = f"ralph/{registration.name[-4:]}"
        mark = WorktreeMetadata(branch=branch, base=repo.head, branch_created=True, session="s1")
        (registration / "ralph-wrap.json").write_text(json.dumps({"version": 1, **mark._asdict()}))
        path = repo.path / ".ralph" / "worktrees" / registration.name
        arguments = (
            ("cleanup", str(path), "--force")
            if what == "cleanup"
            else ("exit", "--action", "remove", "--discard-changes")
        )
        status, _ = called(repo.path, *arguments)
        assert status in {0, 7}  # a no-op, or not ours
        assert (path / "new").exists()
        session.process.terminate()
        session.finish()


def test_a_branch_that_was_renamed_is_not_mistaken(repo: Repo) -> None:
    """The user has made another branch with the old name since."""
    inside = created(repo)
    inside.git("branch", "-m", "better-name")
    repo.git("branch", "quick-build-try-it")
    status, data = called(repo.path, "cleanup", str(inside.path), "--force", "--keep-branch=false")
    assert (status, data["branchDeleted"]) == (0, False)
    assert {"better-name", "quick-build-try-it"} <= {*repo.branches()}


def test_an_exit_does_not_meet_another_sessions_worktree(repo: Repo, tmp_path: Path) -> None:
    """One that was moved away, to a place of the same name as the other's."""
    (tmp_path / "else").mkdir()
    assert called(repo.path, "enter", "foo")[0] == 0
    assert called(repo.path, "enter", "y", session="other")[0] == 0
    worktrees = repo.path / ".ralph" / "worktrees"
    moved = tmp_path / "else" / "y"
    repo.git("worktree", "move", "-f", "-f", str(worktrees / "foo"), str(moved))
    subprocess.run(("rm", "-rf", moved), check=True)
    status, _ = called(repo.path, "exit", "--action", "remove")
    assert status != 0
    assert (worktrees / "y").is_dir()


def test_a_tracked_directory_is_not_linked(repo: Repo) -> None:
    """Not even where a sparse checkout leaves its place free."""
    repo.write("docs/d", "d\n")
    repo.write("src/s", "s\n")
    repo.commit("two directories")
    ended = run(repo.path, "--sparse", "src", "--link", "docs", "--", "true")
    assert (ended.status, "docs' cannot be linked" in ended.stderr) == (2, True)


def test_a_link_is_not_made_behind_a_symlink(repo: Repo, tmp_path: Path) -> None:
    """Another branch may have one where the checkout has a directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    repo.git("switch", "-q", "-c", "other")
    (repo.path / "a").symlink_to(outside)
    repo.commit("a link")
    repo.git("switch", "-q", "main")
    (repo.path / "a" / "b").mkdir(parents=True)
    run(repo.path, "-n", "1", "--base", "other", "--link", "a/b", "--", "true")
    assert [*outside.iterdir()] == []


@pytest.mark.parametrize("link", [".ralph", ".ralph/run", ".ralph/worktrees"])
def test_enter_follows_no_symlink(repo: Repo, tmp_path: Path, link: str) -> None:
    """It is a conflict, and nothing is made behind it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo.path / link).parent.mkdir(exist_ok=True)
    (repo.path / link).symlink_to(outside)
    status, error = called(repo.path, "enter", "foo")
    assert (status, error["code"]) == (6, "conflict")
    assert [*outside.iterdir()] == []


def test_a_configuration_that_git_copies_stays_in_force(repo: Repo) -> None:
    """The main checkout's own, where the user has one."""
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "user.email", "work@corp.invalid")
    inside = created(repo)
    assert inside.git("config", "user.email") == "work@corp.invalid"
    assert inside.git("config", "core.hooksPath") == "/dev/null"


def test_a_removal_that_was_killed_is_taken_back(repo: Repo, tmp_path: Path) -> None:
    """With its directory in the trash and its registration in place: the next one finds it again."""
    inside = created(repo)
    inside.write("new", "n\n")
    shim = tmp_path / "shim"
    environ = {"PATH": shim_git(shim, '*" worktree remove "*) kill -9 $PPID $$ ;;')}
    command("worktree", "cleanup", inside.path, "--force", cwd=repo.path, env=environ)
    assert not inside.path.exists()
    assert [*repo.path.glob(".ralph/run/trash/*.leaving/new")]
    status, error = called(repo.path, "cleanup", str(inside.path))
    assert (status, "uncommitted: new" in error["message"]) == (5, True)
    assert (inside.path / "new").read_text() == "n\n"
    assert called(repo.path, "cleanup", str(inside.path), "--force")[0] == 0
    assert (repo.worktrees(), [*repo.path.glob(".git/worktrees/*")]) == ([], [])


def test_a_removal_whose_git_lives_on_is_not_taken_back(repo: Repo, tmp_path: Path) -> None:
    """That git would delete what has come back: the next command waits until it has done its work."""
    inside = created(repo)
    inside.write("new", "n\n")
    gate = tmp_path / "gate"
    held = f'*" worktree remove "*) kill -9 $PPID; until [ -e {gate} ]; do sleep 0.02; done ;;'
    environ = {"PATH": shim_git(tmp_path / "shim", held)}
    command("worktree", "cleanup", inside.path, "--force", cwd=repo.path, env=environ)
    argv = (PROGRAM, "worktree", "cleanup", inside.path)
    with subprocess.Popen(argv, cwd=repo.path, stdout=subprocess.PIPE) as second:
        never(lambda: second.poll() is not None or inside.path.exists(), "an end before that of git")
        gate.touch()
        stdout, _ = second.communicate(timeout=CAP)
    assert (second.returncode, json.loads(stdout)["error"]["code"]) == (4, "not_found")
    assert (repo.worktrees(), [*repo.path.glob(".git/worktrees/*")]) == ([], [])
