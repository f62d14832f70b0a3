"""``ralph-wrap merge`` while other processes change something."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.commands.merge import MergeMethod
from ralph_wrap.errors import RalphError
from ralph_wrap.system import delete_tree, files
from ralph_wrap.worktree import temporary
from ralph_wrap.worktree.trash import deletion as deletions
from tests.support import processes
from tests.support.git_shim import shim_git
from tests.support.merging import AAAA, branch, files_of, is_clean, land, left, state
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, command
from tests.support.wait import CAP, eventually


def _meanwhile(repo: Repo, tmp_path: Path, at: str, body: str) -> dict[str, str]:
    """Return an environment in which something is done once, right after a git command of ours."""
    alone = "unset GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE"
    cases = f"""*"{at}"*)
    "$REAL" "$@"; status=$?
    if mkdir {tmp_path}/done 2>/dev/null; then ({alone}; cd {repo.path} && {body}) >/dev/null 2>&1; fi
    exit $status ;;"""
    return {"PATH": shim_git(tmp_path / "bin", cases)}


def test_a_target_that_moves_meanwhile_is_left(repo: Repo, tmp_path: Path) -> None:
    """The user has moved it by hand: their commits stay, and the checkout is as it was."""
    branch(repo, "aaaa", AAAA)
    other = repo.git("commit-tree", "-p", "main", "-m", "other", "main^{tree}")
    before = files_of(repo.path)
    env = _meanwhile(repo, tmp_path, " read-tree -m -u ", f"$REAL update-ref refs/heads/main {other}")
    (landed,) = land(repo, "aaaa", env=env)
    assert (landed.outcome, repo.head, files_of(repo.path)) == ("left", other, before)
    assert (repo.git("status", "--porcelain", "--", ":!.ralph"), left(repo)) == ("", [])


def test_files_staged_meanwhile_are_kept(repo: Repo, tmp_path: Path) -> None:
    """The index is not replaced by one that does not know of it."""
    branch(repo, "aaaa", AAAA)
    before = repo.head
    env = _meanwhile(repo, tmp_path, " read-tree -m -u ", "echo mine >mine; $REAL add mine")
    (landed,) = land(repo, "aaaa", env=env)
    assert (landed.outcome, "a change was staged" in str(landed.reason)) == ("left", True), landed
    assert (repo.head, repo.git("status", "--porcelain", "--", ":!.ralph")) == (before, "A  mine")


def test_a_commit_made_meanwhile_has_all_of_it(repo: Repo, tmp_path: Path) -> None:
    """Their commit has what they saw on the disk; nothing is taken back under them."""
    branch(repo, "aaaa", AAAA)
    before = repo.head
    alone = "unset GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE"
    cases = f"""*" update-ref -m ralph-wrap merge "*)
    if mkdir {tmp_path}/done 2>/dev/null; then
        ({alone}; cd {repo.path} && $REAL commit -q -m theirs)
    fi ;;"""
    env = {"PATH": shim_git(tmp_path / "bin", cases)}
    (landed,) = land(repo, "aaaa", env=env)
    assert landed.outcome == "left"
    assert repo.git("log", "-1", "--format=%s %P") == f"theirs {before}"
    assert (repo.show("main:new/a"), is_clean(repo, repo.head)) == (b"A\n", True)


def test_a_commit_of_something_else_meanwhile_has_nothing_of_it(repo: Repo, tmp_path: Path) -> None:
    """What has come to the disk goes back, though the index is at their commit."""
    branch(repo, "aaaa", AAAA)
    body = "echo mine >mine; $REAL add mine; $REAL commit -q -m theirs"
    (landed,) = land(repo, "aaaa", env=_meanwhile(repo, tmp_path, " read-tree -m -u ", body))
    assert (landed.outcome, repo.git("log", "-1", "--format=%s")) == ("left", "theirs")
    assert ((repo.path / "file.txt").read_text(), (repo.path / "new").exists()) == ("one\n", False)
    assert is_clean(repo, repo.head)


def test_a_part_that_is_committed_meanwhile_is_kept(repo: Repo, tmp_path: Path) -> None:
    """What they have not committed goes back, and nothing else."""
    branch(repo, "aaaa", AAAA)
    alone = "unset GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE"
    cases = f"""*" update-ref -m ralph-wrap merge "*)
    if mkdir {tmp_path}/done 2>/dev/null; then
        ({alone}; cd {repo.path} && $REAL commit -q -m theirs file.txt)
    fi ;;"""
    (landed,) = land(repo, "aaaa", env={"PATH": shim_git(tmp_path / "bin", cases)})
    assert (landed.outcome, repo.git("log", "-1", "--format=%s")) == ("left", "theirs")
    assert (repo.show("main:file.txt"), (repo.path / "new").exists()) == (b"one\nA\n", False)
    assert is_clean(repo, repo.head)


@pytest.mark.parametrize("committed", ["*.log\n", None], ids=["tracked", "untracked"])
@pytest.mark.parametrize("number", range(1, 6))
def test_a_rule_that_a_user_adds_meanwhile_stays(
    repo: Repo, tmp_path: Path, committed: str | None, number: int
) -> None:
    """After whichever of our looks at the .gitignore of HEAD: it is in the file at the end."""
    if committed:
        repo.write(".gitignore", committed)
        repo.commit("ignore")
    branch(repo, "aaaa", {".gitignore": "node_modules/\n"})
    repo.write(".gitignore", f"{committed or ''}.ralph/worktrees/\n")
    looks, step = (
        tmp_path / "looks",
        "cat-file blob HEAD:.gitignore" if committed else "ls-tree -z -t --full-tree HEAD ",
    )
    cases = f"""*"{step}"*)
    "$REAL" "$@"; status=$?
    echo >>{looks}
    if [ $(wc -l <{looks}) = {number} ]; then echo mine >>{repo.path}/.gitignore; fi
    exit $status ;;"""
    land(repo, "aaaa", env={"PATH": shim_git(tmp_path / "bin", cases)})
    count = len(looks.read_text().splitlines())
    assert ("mine" in (repo.path / ".gitignore").read_text()) == (count >= number)


def test_a_long_ignore_file_is_not_cut(repo: Repo) -> None:
    """The branch brings one of more than a mebibyte; our line comes after all of it."""
    brought = "node_modules/\n" * 100_000
    branch(repo, "aaaa", {".gitignore": brought})
    repo.write(".gitignore", ".ralph/worktrees/\n")
    (landed,) = land(repo, "aaaa")
    assert landed.outcome == "landed", landed
    assert (repo.path / ".gitignore").read_text() == f"{brought}.ralph/worktrees/\n"


def test_a_lock_that_another_process_has_got_meanwhile_stays(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our lock is gone once it is the index; a process that comes right after us has its own."""
    tip = branch(repo, "aaaa", AAAA)
    rename = Path.rename

    def followed(path: Path, target: Path) -> Path:
        done = rename(path, target)
        if path.name == "index.lock":
            path.write_text("somebody's")
        return done

    monkeypatch.setattr(Path, "rename", followed)
    assert land(repo, "aaaa")[0].outcome == "landed"
    assert (repo.path / ".git" / "index.lock").read_text() == "somebody's"
    (repo.path / ".git" / "index.lock").unlink()
    assert is_clean(repo, tip)


def test_a_file_that_comes_meanwhile_is_not_overwritten(repo: Repo, tmp_path: Path) -> None:
    """Git looks once more when it writes; and what it had written goes back."""
    branch(repo, "aaaa", AAAA)
    before = state(repo)
    cases = f"""*" read-tree -m -u "*) echo mine >{repo.path}/file.txt ;;"""
    (landed,) = land(repo, "aaaa", env={"PATH": shim_git(tmp_path / "bin", cases)})
    assert landed.outcome == "left"
    assert (repo.path / "file.txt").read_text() == "mine\n"
    repo.write("file.txt", "one\n")
    assert files_of(repo.path) == before["files"]


def test_what_git_could_not_write_goes_back(repo: Repo, tmp_path: Path) -> None:
    """A checkout that fails in the middle is undone, file by file, half-written ones too."""
    branch(repo, "aaaa", AAAA | {"gone": None, "one/two/three": "three\n", "one/two": None})
    before = state(repo)
    half = "rm gone; mkdir new; printf A >new/a; printf 'one\\nA' >file.txt"
    cases = f"""*" read-tree -m -u "*) (cd {repo.path} && {half}); exit 128 ;;"""
    (landed,) = land(repo, "aaaa", env={"PATH": shim_git(tmp_path / "bin", cases)})
    assert landed.outcome == "left"
    assert state(repo) == before
    assert left(repo) == []


def test_a_full_disk_is_reported(repo: Repo, tmp_path: Path) -> None:
    """Nothing has moved."""
    branch(repo, "aaaa", AAAA)
    before = state(repo)
    cases = """*" reset --hard "*) echo "fatal: cannot write: No space left on device" >&2; exit 128 ;;"""
    with pytest.raises(RalphError, match="No space left on device"):
        land(repo, "aaaa", env={"PATH": shim_git(tmp_path / "bin", cases)})
    assert state(repo) == before
    assert left(repo) == []


def test_two_merges_at_once_land_both(repo: Repo) -> None:
    """One waits for the other, and lands on what that has made."""
    names = ("aaaa", "bbbb", "cccc")
    for name in names:
        branch(repo, name, {name: f"{name}\n"})
    running = [
        subprocess.Popen(
            (PROGRAM, "merge", name), cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for name in names
    ]
    ended = [(process.communicate(timeout=3 * CAP), process.returncode) for process in running]
    assert [status for _, status in ended] == [0, 0, 0], ended
    assert is_clean(repo, repo.head)
    assert [(repo.path / name).read_text() for name in names] == ["aaaa\n", "bbbb\n", "cccc\n"]
    assert left(repo) == []


def test_what_a_killed_merge_has_left_is_taken_away(repo: Repo) -> None:
    """Registered or not; what bears another name, or is of another project, is not touched."""
    branch(repo, "aaaa", AAAA)
    directory = repo.path / ".ralph" / "run" / "landing"
    directory.mkdir(parents=True)
    repo.git(
        "worktree",
        "add",
        "-q",
        "--detach",
        "--lock",
        "--reason",
        "ralph-wrap merge",
        directory / "land-00000001",
    )
    (directory / "land-00000002").mkdir()
    (directory / "mine").mkdir()
    other = repo.path.parent / "other"
    repo.git("worktree", "add", "-q", "--detach", other / "land-00000003")
    assert land(repo, "aaaa", method=MergeMethod.NO_FF)[0].outcome == "landed"
    assert sorted(path.name for path in directory.iterdir()) == ["mine"]
    assert [path.name for path in repo.path.glob(".git/worktrees/*")] == ["land-00000003"]
    assert (other / "land-00000003" / "file.txt").exists()


def test_a_sweep_takes_away_what_was_killed(repo: Repo) -> None:
    """Unless a process still uses it."""
    directory = repo.path / ".ralph" / "run" / "landing"
    directory.mkdir(parents=True)
    repo.git(
        "worktree",
        "add",
        "-q",
        "--detach",
        "--lock",
        "--reason",
        temporary.REASON,
        directory / "land-00000001",
    )
    lock = files.try_lock(repo.path / ".git" / "refs")
    assert lock is not None
    assert command("sweep", cwd=repo.path).status == 0
    assert left(repo) == ["land-00000001", "land-00000001"]
    lock.release()
    assert command("sweep", cwd=repo.path).status == 0
    assert left(repo) == []


@pytest.mark.parametrize("deletion", ["slow", "killed"])
def test_git_sees_no_half_deleted_worktree(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, deletion: str
) -> None:
    """A registration that cannot be moved is deleted in place, in the background. The next merge goes on."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"beside.txt": "B\n"})

    def begin(entries: list[Any], _token: str) -> None:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("HEAD", dir_fd=entry.directory)

    with monkeypatch.context() as patch:
        patch.setattr(deletions, "start", begin)
        # No token can be written: the disk is full.
        patch.setattr(delete_tree, "write_new", _full)
        assert land(repo, "aaaa", method=MergeMethod.NO_FF)[0].outcome == "landed"
    (registration,) = (repo.path / ".git" / "worktrees").iterdir()
    assert not (registration / "HEAD").exists()
    assert repo.git("fsck", "--no-dangling") == ""
    if deletion == "killed":
        shutil.rmtree(repo.path / ".ralph" / "run" / "landing" / registration.name)
    assert land(repo, "bbbb", method=MergeMethod.NO_FF)[0].outcome == "landed"
    assert left(repo) == []


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_two_projects_in_one_repository_take_turns(repo: Repo, tmp_path: Path) -> None:
    """A linked worktree may be a project of its own; both move the same branches."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"beside.txt": "B\n"})
    begun, go = tmp_path / "begun", tmp_path / "go"
    repo.write(".ralph/config.toml", f'check = "touch {begun}; while [ ! -e {go} ]; do sleep 0.05; done"\n')
    other = tmp_path / "other"
    repo.git("worktree", "add", "-q", "-b", "mine", other)
    environ = {**os.environ, "RALPH_TRUST": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen((PROGRAM, "merge", "aaaa"), cwd=repo.path, env=environ, stdout=pipe) as first:
        eventually(begun.exists, "the check")
        with subprocess.Popen(
            (PROGRAM, "merge", "bbbb", "--into", "main"), cwd=other, env=environ, stdout=pipe, stderr=pipe
        ) as second:
            assert second.stderr is not None
            assert "another merge is at work in this repository" in second.stderr.readline().decode()
            assert second.poll() is None
            go.touch()
            assert (first.wait(3 * CAP), second.wait(3 * CAP)) == (0, 0)
    assert repo.show("main:beside.txt") == b"B\n"
    assert repo.git("status", "--porcelain", "--untracked-files=no") == ""
    assert left(repo) == ["other"]


def test_ctrl_c_ends_the_check_and_nothing_lands(repo: Repo, tmp_path: Path, home: Path) -> None:
    """The status is that of a program that SIGINT ends."""
    branch(repo, "aaaa", AAAA)
    begun = tmp_path / "begun"
    repo.write(".ralph/config.toml", f'check = "touch {begun}; sleep 600"\n')
    before = state(repo)
    env = {**os.environ, "RALPH_TRUST": "1"}
    with subprocess.Popen(
        (PROGRAM, "merge", "aaaa"), cwd=repo.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        eventually(begun.exists, "the check")
        process.send_signal(signal.SIGINT)
        printed, why = process.communicate(timeout=3 * CAP)
    assert (process.returncode, printed) == (130, b"ralph/aaaa  left\n")
    assert b"ralph/aaaa: a signal came" in why
    assert (state(repo), left(repo)) == (before, [])
    eventually(lambda: processes.left(home) == {}, "nothing to run any more")


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"ref": "refs/tags/main"},
        {"new": "0" * 39 + "1"},
        {"old": "--output=x"},
        {"scratch": "../../.git"},
        {"scratch": None},
    ],
)
def test_a_note_that_cannot_be_is_set_aside(repo: Repo, changed: dict[str, Any]) -> None:
    """Nothing is done because of it, and the next one lands. Its content stays, beside an earlier one."""
    tip = branch(repo, "aaaa", AAAA)
    note = {"version": 1, "ref": "refs/heads/main", "old": repo.head, "new": tip, "scratch": "land-00000000"}
    path = repo.write(".ralph/run/landing.json", json.dumps(note | changed))
    path.with_stem("landing-1").write_text("earlier\n")
    before = files_of(repo.path)
    other = repo.write("other", "mine\n")
    assert land(repo, "aaaa")[0].outcome == "landed"
    assert (other.read_text(), left(repo)) == ("mine\n", [])
    assert path.with_stem("landing-1").read_text() == "earlier\n"
    assert json.loads(path.with_stem("landing-2").read_text()) == note | changed
    assert {name: there for name, there in before.items() if name not in AAAA} == {
        name: there for name, there in files_of(repo.path).items() if name not in {*AAAA, "new", "other"}
    }
