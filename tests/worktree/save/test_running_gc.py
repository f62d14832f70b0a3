"""How a save finds a ``git gc``, and which one it need not wait for."""

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
from ralph_wrap.git.safe.common_dir import SafeCommonDirs
from ralph_wrap.system import process_table
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save import beside_gc
from ralph_wrap.worktree.save.sync import stamps_of_gc
from tests.support.needs import needs_pid_namespaces
from tests.support.repo import Repo

if TYPE_CHECKING:
    from pathlib import Path


def _waiting(*words: str) -> tuple[str, ...]:
    """Return a command that prints a line, and waits for one, with these words as arguments."""
    return (sys.executable, "-c", "print(flush=True); input()", *words)


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
        (["gc", "--auto"], None, None, False),  # as that of another user, which we cannot read
    ],
)
def test_a_gc_that_git_starts_keeps_new_objects(
    repo: Repo, words: list[str], environ: dict[str, str] | None, config: str | None, *, keeps: bool
) -> None:
    """Its options and ``gc.pruneExpire`` can say otherwise."""
    if config:
        repo.git("config", "gc.pruneExpire", config)
    git = Git(repo.path, git_environment(os.environ))
    env = {} if environ is None else {**os.environ, **environ}
    with subprocess.Popen(
        _waiting(*words), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
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


def test_a_gc_shows_even_if_it_writes_no_pack(repo: Repo) -> None:
    """All objects are in a pack that it keeps."""
    repo.git("gc", "-q")
    before = stamps_of_gc(repo.path / ".git")
    assert before is not None
    repo.git("gc", "-q", "--keep-largest-pack", "--prune=now")
    assert stamps_of_gc(repo.path / ".git") != before


@needs_pid_namespaces
def test_a_gc_in_a_pid_namespace_of_its_own_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock has a pid that no process has here."""
    start_time = process_table.start_time
    monkeypatch.setattr(process_table, "start_time", lambda pid: None if pid == 1 else start_time(pid))
    inner = "import os; print(os.getpid(), flush=True); input()"
    words = ("unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", inner, "gc")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"1\n"
            (tmp_path / "gc.pid").write_text(f"1 {socket.gethostname()}")
            assert beside_gc.running_gc(tmp_path) is not None
        finally:
            outer.kill()


def test_the_present_configuration_says_what_a_gc_keeps(repo: Repo, tmp_path: Path) -> None:
    """Our git uses a copy that was made when the session began."""
    environ = git_environment({**os.environ, "XDG_STATE_HOME": os.fspath(tmp_path / "state")})
    common_dir = repo.path / ".git"
    git = Git(
        repo.path, environ, git_dir=common_dir, safe=SafeCommonDirs(environ, common_dir, checkout=repo.path)
    )
    with subprocess.Popen(_waiting("gc", "--auto"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert beside_gc.keeps_new_objects(git, process.pid)
        repo.git("config", "gc.pruneExpire", "now")
        assert not beside_gc.keeps_new_objects(git, process.pid)
