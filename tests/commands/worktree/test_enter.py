"""``ralph-wrap worktree enter`` and ``exit``: the documented pair of tools, by the installed program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.directory_listing import listing
from tests.support.needs import program
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM, Session
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def answered(repo: Repo, *arguments: str, **environ: str) -> tuple[int, Any]:
    """Run ``ralph-wrap worktree`` and return its status, and the data or error of its envelope."""
    ended = subprocess.run(
        (PROGRAM, "worktree", *arguments),
        cwd=repo.path,
        env={**os.environ, "RALPH_SESSION_ID": "s1", **environ},
        capture_output=True,
        check=False,
    )
    envelope = json.loads(ended.stdout)
    assert (envelope["version"], envelope["tool"], envelope["success"]) == (
        1,
        "worktree",
        ended.returncode == 0,
    )
    return ended.returncode, envelope["data" if ended.returncode == 0 else "error"]


def entered(repo: Repo, name: str = "try", *arguments: str, **environ: str) -> Repo:
    """Enter a worktree and return it."""
    status, data = answered(repo, "enter", name, *arguments, **environ)
    assert status == 0, data
    return Repo(repo.path / ".ralph" / "worktrees" / name)


def state(repo: Repo) -> dict[str, object]:
    """Return everything that an exit could change."""
    return {"files": listing(repo.path / ".ralph" / "worktrees"), **repo.fingerprint()}


def test_enter_makes_a_worktree_on_a_branch(repo: Repo) -> None:
    """The fields are those of the documented tool."""
    status, data = answered(repo, "enter", "try")
    path = repo.path / ".ralph" / "worktrees" / "try"
    assert (status, data) == (
        0,
        {
            "path": str(path),
            "branch": "ralph/try",
            "basedOn": repo.git("rev-parse", "HEAD"),
            "originalCwd": str(repo.path),
            "tmuxSession": None,
        },
    )
    assert Repo(path).git("symbolic-ref", "HEAD") == "refs/heads/ralph/try"
    assert repo.git("status", "--porcelain") == "?? .gitignore"


def test_a_second_enter_is_a_conflict(repo: Repo) -> None:
    """One worktree at a time; another session may have one of its own."""
    entered(repo)
    status, error = answered(repo, "enter", "other")
    assert (status, error["code"]) == (6, "conflict")
    assert "is already in" in error["message"]
    assert answered(repo, "enter", "other", RALPH_SESSION_ID="s2")[0] == 0


@pytest.mark.parametrize(
    "name", ["a/b", "..", "-x", "a\nb", "x" * 300, "x.lock", "", "beef", "beef-wip", ".hidden", "a b", "a..b"]
)
def test_a_bad_name_is_a_usage_error(repo: Repo, name: str) -> None:
    """Nothing is made."""
    before = state(repo)
    status, error = answered(repo, "enter", "--", name)
    assert (status, error["code"]) == (2, "usage")
    assert state(repo) == before


def test_a_name_below_which_there_are_branches_is_refused(repo: Repo) -> None:
    """Git cannot have both ralph/x and ralph/x/y."""
    repo.git("branch", "ralph/x/y")
    before = repo.fingerprint()
    status, error = answered(repo, "enter", "x")
    assert (status, error["code"]) == (6, "conflict")
    assert repo.fingerprint() == before


def test_a_name_that_is_taken_is_a_conflict(repo: Repo) -> None:
    """Of another session, or kept by this one."""
    entered(repo)
    assert answered(repo, "exit", "--action", "keep")[0] == 0
    status, error = answered(repo, "enter", "try")
    assert (status, error["code"]) == (6, "conflict")


def test_without_a_session_nothing_is_entered(repo: Repo) -> None:
    """It is said how to name one."""
    for arguments in (("enter", "try"), ("exit", "--action", "keep")):
        status, error = answered(repo, *arguments, RALPH_SESSION_ID="")
        assert (status, error["hint"]) == (2, "--session ANY-NAME")
    assert answered(repo, "enter", "try", "--session", "mine", RALPH_SESSION_ID="")[0] == 0


# Exit


@pytest.mark.parametrize("action", ["keep", "remove"])
def test_exit_of_nothing_is_a_no_op(repo: Repo, action: str) -> None:
    """So is that of a session that has not entered the one that is there; nothing is touched."""
    entered(repo, RALPH_SESSION_ID="another")
    repo.git("worktree", "add", "-q", "-b", "mine", str(repo.path / ".ralph" / "worktrees" / "mine"))
    before = state(repo)
    status, data = answered(repo, "exit", "--action", action)
    assert (status, data["action"], data["removed"], data["path"]) == (0, action, False, None)
    assert data["message"].startswith("No-op")
    assert state(repo) == before


def test_exit_outside_of_a_repository_is_a_no_op(tmp_path: Path) -> None:
    """There is nothing that could have been entered."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    status, data = answered(Repo(elsewhere), "exit", "--action", "remove")
    assert (status, data["removed"]) == (0, False)


def test_keep_leaves_everything(repo: Repo) -> None:
    """Worktree and branch stay; the session may enter another one."""
    inside = entered(repo)
    inside.write("new", "n\n")
    status, data = answered(repo, "exit", "--action", "keep")
    assert (status, data["removed"], data["path"], data["originalCwd"]) == (
        0,
        False,
        str(inside.path),
        str(repo.path),
    )
    assert (inside.path / "new").read_text() == "n\n"
    assert answered(repo, "enter", "other")[0] == 0


def test_remove_deletes_worktree_and_branch(repo: Repo) -> None:
    """A clean exit leaves nothing, and the name is free for another worktree."""
    inside = entered(repo)
    status, data = answered(repo, "exit", "--action", "remove")
    assert (status, data["removed"], data["branch"]) == (0, True, "ralph/try")
    assert not inside.path.exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    entered(repo)


def test_remove_from_inside(repo: Repo) -> None:
    """An agent that works in it may ask for that: its own processes are no strangers."""
    inside = entered(repo)
    status, data = answered(inside, "exit", "--action", "remove")
    assert (status, data["originalCwd"]) == (0, str(repo.path))
    assert not inside.path.exists()


def test_remove_refuses_while_a_stranger_works_in_it(repo: Repo) -> None:
    """It would write into a directory that is lost."""
    inside = entered(repo)
    with subprocess.Popen(("sleep", "600"), cwd=inside.path) as stranger:
        try:
            status, error = answered(repo, "exit", "--action", "remove", "--discard-changes")
            assert (status, error["code"]) == (5, "refused")
            assert f"sleep ({stranger.pid})" in error["message"]
        finally:
            stranger.kill()
    assert inside.path.exists()
    assert answered(repo, "exit", "--action", "remove")[0] == 0


MERGE = """
git checkout -q -b other && echo a > README && git commit -qam a && git checkout -q ralph/try
echo b > README && git commit -qam b
! git merge other
"""

LOSSES = {
    "an untracked file": ("echo x > new", "uncommitted: new"),
    "a changed file": ("echo x > README", "uncommitted: README"),
    "a commit": ("git commit -q --allow-empty -m 'My work'", "My work"),
    "a merge in progress": (MERGE, "in progress: merge"),
    "a detached commit": ("git checkout -q --detach && git commit -q --allow-empty -m Detached", "Detached"),
    "a repository of its own": ("git init -q inner && git -C inner commit -q --allow-empty -m x", "inner"),
}


@pytest.mark.parametrize(("work", "named"), LOSSES.values(), ids=LOSSES.keys())
def test_remove_refuses_what_would_be_lost(repo: Repo, work: str, named: str) -> None:
    """And names it; nothing has changed, ignored files are counted; --discard-changes removes it."""
    repo.write("README", "first\n")
    repo.git("add", "README")
    repo.git("commit", "-qm", "A file")
    inside = entered(repo)
    inside.write("build.tmp", "x")
    (repo.path / ".git" / "info" / "exclude").write_text("*.tmp\n")
    subprocess.run(("sh", "-c", work), cwd=inside.path, check=True, capture_output=True)
    before = state(repo)
    status, error = answered(repo, "exit", "--action", "remove")
    assert (status, error["code"]) == (5, "refused")
    assert named in error["message"]
    assert "ignored files: 1" in error["message"]
    assert state(repo) == before
    status, data = answered(repo, "exit", "--action", "remove", "--discard-changes")
    assert (status, data["removed"]) == (0, True)
    assert not inside.path.exists()


def test_the_answer_names_the_first_ignored_files_that_went(repo: Repo) -> None:
    """And counts them all."""
    (repo.path / ".git" / "info" / "exclude").write_text("*.tmp\n")
    inside = entered(repo)
    for number in range(7):
        inside.write(f"{number}.tmp", "x")
    status, data = answered(repo, "exit", "--action", "remove")
    assert (status, data["removed"]) == (0, True)
    names = "0.tmp, 1.tmp, 2.tmp, 3.tmp, 4.tmp and 2 more"
    assert data["message"].endswith(f"; ignored files deleted with it: 7 ({names})")


def test_what_the_original_branch_has_by_now_is_not_lost(repo: Repo) -> None:
    """It is looked at as it is, not as it was when the worktree was entered."""
    inside = entered(repo)
    inside.git("commit", "-q", "--allow-empty", "-m", "Work")
    assert answered(repo, "exit", "--action", "remove")[0] == 5
    repo.git("merge", "-q", "--ff-only", "ralph/try")
    assert answered(repo, "exit", "--action", "remove")[0] == 0


def test_commits_that_another_branch_holds_are_said_to_be_there(repo: Repo) -> None:
    """They are not on the original branch, so it is refused all the same."""
    inside = entered(repo)
    inside.git("commit", "-q", "--allow-empty", "-m", "Work")
    repo.git("branch", "copy", "ralph/try")
    status, error = answered(repo, "exit", "--action", "remove")
    assert status == 5
    assert "Work (also on copy)" in error["message"]


def test_a_mark_cannot_have_another_branch_deleted(repo: Repo) -> None:
    """An agent can write it."""
    entered(repo)
    [mark] = repo.path.glob(".git/worktrees/*/ralph-wrap.json")
    for lie in ("main", "ralph/beef", "ralph/beef-wip"):
        loaded = json.loads(mark.read_text())
        repo.git("branch", "--force", lie, "main") if lie != "main" else None
        mark.write_text(json.dumps({**loaded, "branch": lie}))
        status, data = answered(repo, "exit", "--action", "remove", "--discard-changes")
        assert (status, data["removed"]) == (0, False)
        assert repo.git("rev-parse", lie)


def test_no_commit_yet(tmp_path: Path) -> None:
    """There is nothing to start from; the hint can be typed."""
    (tmp_path / "empty").mkdir()
    empty = Repo(tmp_path / "empty")
    empty.git("init", "-q")
    status, error = answered(empty, "enter", "try")
    assert (status, error["hint"]) == (4, "git add -A && git commit --allow-empty -m start")


def test_an_agent_in_a_session_enters_beside_its_own_worktree(repo: Repo) -> None:
    """RALPH_SESSION_ID is there; the new worktree is the project's, not inside the session's."""
    script = f"{PROGRAM} worktree enter side >out && {PROGRAM} worktree exit --action remove >out2"
    with Session(repo.path, "-n", "1", "--keep-worktree", "--", "sh", "-c", script) as session:
        result = session.finish()
    [worktree] = repo.path.glob(".ralph/worktrees/*")
    data = json.loads((worktree / "out").read_text())["data"]
    assert data["path"] == str(repo.path / ".ralph" / "worktrees" / "side")
    assert json.loads((worktree / "out2").read_text())["data"]["removed"] is True
    assert result.status == 0


# tmux


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a tmux server of this test, which ends with it."""
    program("tmux", "tmux").check()
    (tmp_path / "tmux").mkdir()
    environ = {"TMUX_TMPDIR": str(tmp_path / "tmux"), "TMUX": "", "TERM": "xterm"}
    yield environ
    subprocess.run(("tmux", "kill-server"), env={**os.environ, **environ}, check=False, capture_output=True)


def sessions(server: dict[str, str]) -> list[str]:
    """Return the names of the server's sessions."""
    listed = subprocess.run(
        ("tmux", "list-sessions", "-F", "#{session_name}"),
        env={**os.environ, **server},
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.split()


def test_a_tmux_session_is_started_in_it_and_killed_on_remove(repo: Repo, server: dict[str, str]) -> None:
    """Its shell works in the worktree, which is no obstacle."""
    inside = entered(repo, "try", "--tmux", **server)
    assert sessions(server) == ["ralph-try"]
    shown = subprocess.run(
        ("tmux", "display-message", "-p", "-t", "=ralph-try:", "#{pane_current_path}"),
        env={**os.environ, **server},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == str(inside.path)
    status, data = answered(repo, "exit", "--action", "remove", **server)
    assert (status, data["tmuxSession"]) == (0, "ralph-try"), data
    assert sessions(server) == []
    assert not inside.path.exists()


def test_it_is_left_and_named_on_keep(repo: Repo, server: dict[str, str]) -> None:
    """So that it can be attached to again; a refused removal leaves it, too."""
    inside = entered(repo, "try", "--tmux", **server)
    inside.write("new", "n\n")
    assert answered(repo, "exit", "--action", "remove", **server)[0] == 5
    assert sessions(server) == ["ralph-try"]
    status, data = answered(repo, "exit", "--action", "keep", **server)
    assert (status, data["tmuxSession"]) == (0, "ralph-try")
    assert sessions(server) == ["ralph-try"]


def test_a_session_of_the_same_name_is_a_conflict(repo: Repo, server: dict[str, str]) -> None:
    """It may belong to any user; nothing is left of the worktree."""
    subprocess.run(("tmux", "new-session", "-d", "-s", "ralph-try"), env={**os.environ, **server}, check=True)
    status, error = answered(repo, "enter", "try", "--tmux", **server)
    assert (status, error["code"]) == (6, "conflict")
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert sessions(server) == ["ralph-try"]


def test_a_session_that_took_the_name_since_is_not_killed(repo: Repo, server: dict[str, str]) -> None:
    """Only one that was started in the worktree."""
    entered(repo, "try", "--tmux", **server)
    for command in (
        ("new-session", "-d", "-s", "other"),  # a server without sessions ends
        ("kill-session", "-t", "=ralph-try"),
        ("new-session", "-d", "-s", "ralph-try", "-c", "/"),
    ):
        subprocess.run(("tmux", *command), env={**os.environ, **server}, check=True)
    eventually(lambda: "ralph-try" in sessions(server), "the other session")
    assert answered(repo, "exit", "--action", "remove", **server)[0] == 0
    assert sessions(server) == ["other", "ralph-try"]


def test_a_server_that_ends_with_its_last_session_is_no_error(
    repo: Repo, tmp_path: Path, server: dict[str, str]
) -> None:
    """A session that it took in its last moment ends with it: it is started again."""
    real = shutil.which("tmux")
    shim = tmp_path / "shim" / "tmux"
    shim.parent.mkdir()
    shim.write_text(
        '#!/bin/sh\n[ "$1" = new-session ] && mkdir "$0.ended" 2>/dev/null && '
        f'{{ echo server exited unexpectedly >&2; exit 1; }}\nexec {real} "$@"\n'
    )
    shim.chmod(0o755)
    entered(repo, "try", "--tmux", **server, PATH=f"{shim.parent}:{os.environ['PATH']}")
    assert shim.with_name("tmux.ended").is_dir()
    assert sessions(server) == ["ralph-try"]


def test_an_error_after_its_start_ends_it(repo: Repo, tmp_path: Path, server: dict[str, str]) -> None:
    """Nobody would know it: no mark names it. Here another process locks the worktree in this moment."""
    shim = tmp_path / "shim" / "tmux"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\n{shutil.which("tmux")} "$@" || exit\n'
        f'[ "$1" != new-session ] || for it in {repo.path}/.git/worktrees/*; do echo x > $it/locked; done\n'
    )
    shim.chmod(0o755)
    status, _ = answered(repo, "enter", "try", "--tmux", **server, PATH=f"{shim.parent}:{os.environ['PATH']}")
    assert (status != 0, sessions(server)) == (True, [])


def test_without_tmux(repo: Repo, tmp_path: Path) -> None:
    """It is said what to install; nothing is left."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for name in ("git", "env", "sh"):
        (bin_directory / name).symlink_to(shutil.which(name) or "")
    status, error = answered(repo, "enter", "try", "--tmux", PATH=str(bin_directory))
    assert (status, error["message"]) == (2, "tmux is not installed")
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
