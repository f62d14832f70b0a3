"""The branch follows on a remote, while the loop goes on."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.remote import push_error
from ralph_wrap.system.process import CompletedCommand
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("trusted")

SH = ("--", "sh", "-c")
COMMIT = 'echo "$RALPH_ITERATION" > counted; git add counted; git commit -qm "$RALPH_ITERATION"'

AGAIN = "echo again > counted; git commit -qam again"


@pytest.fixture
def remote(repo: Repo, tmp_path: Path) -> Repo:
    """Return a bare repository that the project pushes to."""
    path = tmp_path / "remote.git"
    path.mkdir()
    there = Repo(path)
    there.git("init", "-q", "--bare")
    repo.git("remote", "add", "origin", str(path))
    repo.write(".ralph/config.toml", 'push = "origin"\n')
    return there


def pushed(remote: Repo) -> dict[str, str]:
    """Return the branches of the remote, with the subject of each one's last commit."""
    rows = remote.git("for-each-ref", "--format=%(refname:short) %(subject)").splitlines()
    return dict(row.split(" ", 1) for row in rows)


def pushes(result: Result) -> list[str]:
    """Return the pushes that succeeded, by the commit that was pushed."""
    return [event["commit"] for event in result.events if event["event"] == "branch.pushed"]


def test_commits_are_pushed_and_saved_work_is_not(repo: Repo, remote: Repo) -> None:
    """The last commit is there when the session has ended."""
    result = run(repo.path, "-n", "3", *SH, f"{COMMIT}; echo x > uncommitted")
    assert pushed(remote) == {result.report["branch"]: "3"}
    assert result.report["saved"]
    assert pushes(result)[-1] == repo.git("rev-parse", result.report["branch"])


def test_each_commit_is_pushed_while_the_loop_goes_on(repo: Repo, remote: Repo) -> None:
    """Not the first and the last alone; and nothing of them stays open."""
    there = f"git -C {remote.path} log --all --format=%s | grep -qx $((RALPH_ITERATION - 1))"
    gate = f'[ "$RALPH_ITERATION" = 1 ] || until {there}; do sleep 0.05; done'
    script = f"{gate}; {COMMIT}; ls /proc/$PPID/fd | wc -l"
    result = run(repo.path, "-n", "5", *SH, script)
    assert [event["event"] for event in result.events].count("branch.pushed") == 5
    assert len({*result.stdout.splitlines()[2:]}) == 1


def test_nothing_else_is_pushed(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """Whatever the configuration has pushed besides."""
    inner = make_repo(tmp_path / "inner")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    repo.commit("with a submodule")
    repo.git("commit", "-q", "--allow-empty", "-m", "mine", cwd=repo.path / "sub")
    inner.git("checkout", "-q", "--detach")
    repo.git("config", "push.followTags", "true")
    repo.git("config", "push.recurseSubmodules", "on-demand")
    before = inner.git("for-each-ref")
    result = run(repo.path, "-n", "1", *SH, f"{COMMIT}; git tag -a -m secret secret")
    assert pushed(remote) == {result.report["branch"]: "1"}
    assert inner.git("for-each-ref") == before


def test_the_agent_may_push_too(repo: Repo, remote: Repo) -> None:
    """What it has pushed of its branch is no obstacle to the rest."""
    result = run(repo.path, "-n", "1", *SH, f'{COMMIT}; git push -q origin "$RALPH_BRANCH"; {AGAIN}')
    assert pushed(remote) == {result.report["branch"]: "again"}
    assert result.warnings == []


def test_a_question_on_the_terminal_is_not_asked(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """No person is there to answer it, and it would stand in the agent's output."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        "#!/bin/sh\n(true </dev/tty) 2>/dev/null || { echo no terminal >&2; exit 1; }\nread x </dev/tty\n"
    )
    ssh.chmod(0o755)
    repo.git("remote", "set-url", "origin", "ssh://me@example.invalid/x")
    command = (PROGRAM, "run", "-p", "x", "-n", "1", *SH, COMMIT)
    with Terminal(*command, cwd=repo.path, env={"GIT_SSH": str(ssh)}) as terminal:
        assert terminal.finish() == 0
    assert "was not pushed to origin: " in terminal.words
    assert "no terminal; fatal: Could not read from remote repository." in terminal.words
    assert pushed(remote) == {}


@pytest.mark.usefixtures("remote")
def test_a_git_that_finds_no_bare_repository_gets_its_path(repo: Repo) -> None:
    """With safe.bareRepository git needs the path; the worktree is removed as usual."""
    explicit = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.bareRepository",
        "GIT_CONFIG_VALUE_0": "explicit",
    }
    result = run(repo.path, "-n", "1", *SH, COMMIT, env=explicit)
    assert result.warnings == []
    assert pushes(result) == [repo.git("rev-parse", result.report["branch"])]
    assert repo.worktrees() == []


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (b"fatal: no 'https://me:secret@host/x'\n", "fatal: no 'https://host/x'"),
        (b"ssh: denied\r\nfatal: Could not read\n\nPlease\n", "ssh: denied; fatal: Could not read"),
        (b"a\nb\n", "a"),
        (
            b"remote: Counting objects:  50% (1/2)\rFrom host\n * [new ref] a -> b\nfatal: early EOF\n",
            "fatal: early EOF",
        ),
        (b"", "git failed (128)"),
    ],
)
def test_why_it_was_not_pushed(stderr: bytes, message: str) -> None:
    """On one line, in git's or the server's words, and without a password."""
    assert push_error(CompletedCommand(128, b"", stderr)) == message


def test_an_address_may_be_relative_to_the_project(repo: Repo, remote: Repo) -> None:
    """As for git push, typed there."""
    repo.git("remote", "set-url", "origin", os.path.relpath(remote.path, repo.path))
    result = run(repo.path, "-n", "1", *SH, COMMIT)
    assert pushed(remote) == {result.report["branch"]: "1"}


def test_nothing_is_pushed_before_anything_is_committed(repo: Repo, remote: Repo) -> None:
    """A branch that is where it began has no news for another machine."""
    result = run(repo.path, "-n", "2", *SH, "echo x > uncommitted")
    assert pushed(remote) == {}
    assert pushes(result) == []


def test_what_the_agent_rewrites_is_replaced(repo: Repo, remote: Repo) -> None:
    """Its branch is its own, as long as no other user has pushed there."""
    gate = f"until git -C {remote.path} log --all --format=%s | grep -qx 1; do sleep 0.05; done"
    script = f'[ "$RALPH_ITERATION" = 1 ] || {{ {gate}; git reset -q --hard HEAD^; }}; {COMMIT}'
    result = run(repo.path, "-n", "2", *SH, script)
    assert pushed(remote) == {result.report["branch"]: "2"}
    assert "was not pushed" not in result.stderr


def test_what_another_user_has_pushed_there_stays(repo: Repo, remote: Repo) -> None:
    """A warning says so, with what to run, and the loop goes on."""
    steal = 'git push -q origin "$RALPH_BRANCH"; git -C {} update-ref "refs/heads/$RALPH_BRANCH" {}'
    other = remote.git("commit-tree", "-m", "theirs", remote.git("mktree", "-z"))
    result = run(repo.path, "-n", "2", *SH, f"{COMMIT}; {steal.format(remote.path, other)}")
    branch = result.report["branch"]
    assert result.ending == ("max-iterations", 2, 0)
    assert pushed(remote) == {branch: "theirs"}
    warnings = [entry for entry in result.warnings if entry["event"] == "push.failed"]
    assert warnings[-1]["message"] == f"{branch} was not pushed to origin: [rejected] (fetch first)"
    assert warnings[-1]["hint"] == f"git push origin {branch}"


def test_a_named_branch_only_moves_forward(repo: Repo, remote: Repo) -> None:
    """It may be the user's: a rewritten branch is refused."""
    repo.git("branch", "theirs")
    repo.git("push", "-q", "origin", "theirs")
    there = remote.git("rev-parse", "theirs")
    result = run(repo.path, "--branch", "theirs", "-n", "1", *SH, "git commit -q --amend -m other")
    assert remote.git("rev-parse", "theirs") == there
    assert "theirs was not pushed to origin: [rejected] (non-fast-forward)" in result.stderr


def test_a_remote_that_hangs_holds_nothing_up(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """The next iterations run meanwhile, and at TERM the session does not wait for it."""
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    repo.git("config", "--global", "remote.origin.receivepack", str(hanging))
    with Session(
        repo.path, "-n", "3", *SH, f'[ "$RALPH_ITERATION" -lt 3 ] || exec sleep 600; {COMMIT}'
    ) as session:
        session.wait_for("agent.started", 3)
        session.send(signal.SIGTERM)
        result = session.finish()
    branch = result.report["branch"]
    assert (result.status, result.report["commits"]) == (143, 2)
    assert f"{branch} was not pushed to origin: there was no time for it" in result.stderr
    assert pushed(remote) == {}


def test_what_has_failed_is_tried_once_more_at_the_end(repo: Repo, remote: Repo) -> None:
    """The network may be back."""
    away = remote.path.with_name("away")
    agent = f"""
case $RALPH_ITERATION in
1) mv {remote.path} {away}; {COMMIT} ;;
2) while ps --ppid $PPID -o stat=,comm= | grep -v ^Z | grep -q git; do sleep 0.05; done ;;
3) mv {away} {remote.path} ;;
esac"""
    result = run(repo.path, "-n", "3", *SH, agent)
    branch = result.report["branch"]
    assert [entry["event"] for entry in result.warnings] == ["push.failed"]
    assert pushed(remote) == {branch: "1"}


@pytest.mark.parametrize("value", ["elsewhere", "../remote.git", "--upload-pack=touch x", "ext::sh -c true"])
def test_only_a_remote_that_is_configured_is_pushed_to(repo: Repo, remote: Repo, value: str) -> None:
    """The file may be written by an agent: no address, and no option of git."""
    repo.write(".ralph/config.toml", f'push = "{value}"\n')
    result = command("run", *SH, "true", cwd=repo.path)
    assert result.status == 2
    assert f"push: {value!r} is not the name of a remote" in result.stderr
    assert repo.branches() == ["main"]
    assert pushed(remote) == {}
