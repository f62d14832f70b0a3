"""A disk that is really full: sessions can be stopped, wait for room, and leave the user's checkout alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from ralph_wrap.state.report import SessionReport, read
from ralph_wrap.system import process_table
from tests.interfaces.web.serving import pages
from tests.support.mounts import fill, mounted
from tests.support.needs import needs_mounts, needs_pid_namespaces
from tests.support.pid1 import NAMESPACE
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Session, command, run, start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.fork_server import ForkedCommand

pytestmark = needs_mounts

SH = ("--", "sh", "-c")
UNTIL_TERM = ': > ready; trap "exit 0" TERM; while :; do sleep 0.02; done'
UNTIL_GO = ': > ready; while [ ! -e "$RALPH_PROJECT/go" ]; do sleep 0.02; done'
DEAF = ': > ready; trap "" TERM; while :; do sleep 0.02; done'


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Repo]:
    """Yield a repository on a small disk."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as disk:
        yield make_repo(disk / "project")


@contextmanager
def _working(repo: Repo, script: str, *options: str) -> Iterator[Session]:
    """Yield a session whose agent works, on a disk that is full now."""
    with Session(repo.path, *options, *SH, script) as session:
        eventually(lambda: next(repo.path.glob(".ralph/worktrees/*/ready"), None), "the agent")
        fill(repo.path / "filler")
        yield session


@pytest.mark.parametrize(
    ("option", "script", "status"),
    [((), UNTIL_TERM, 143), (("--now",), DEAF, 130), (("--after-iteration",), UNTIL_GO, 0)],
    ids=["soon", "now", "after-iteration"],
)
def test_a_session_on_a_full_disk_is_stopped(
    small: Repo, option: tuple[str, ...], script: str, status: int
) -> None:
    """By a signal, in each way; the work stays in its worktree until there is room."""
    with _working(small, script, "-n", "2", "--grace", "1h") as session:
        stopping = start("stop", *option, session.directory.name[-4:], cwd=small.path)
        with stopping:
            assert stopping.stderr is not None
            said = json.loads(stopping.stderr.readline())
            assert (said["event"], "No space left on device" in said["message"]) == (
                "session.signalled",
                True,
            )
            (small.path / "go").touch()
            stdout, stderr = stopping.communicate(timeout=CAP * 3)
        assert (stopping.wait(), stdout.split()[1:]) == (0, [b"stopped"]), stderr
        ended = session.finish()
    assert ended.status == status, ended.stderr
    assert next(small.path.glob(".ralph/worktrees/*/ready"), None) is not None
    (small.path / "filler").unlink()
    agent_id = session.directory.name[-4:]
    assert command("rm", agent_id, cwd=small.path).status == 0
    assert small.show(f"ralph/{agent_id}-wip:ready") == b""


def test_rm_ends_a_session_on_a_full_disk(small: Repo) -> None:
    """It says that the work cannot be saved, not that the session is live."""
    with _working(small, UNTIL_TERM) as session:
        removed = command("rm", session.directory.name[-4:], cwd=small.path)
        session.finish()
    assert "is live" not in removed.stderr
    assert next(small.path.glob(".ralph/worktrees/*/ready"), None) is not None


@needs_pid_namespaces
def test_a_session_in_a_container_is_stopped_from_the_host(small: Repo) -> None:
    """Its pid is another one here; the other processes of the container get no signal."""
    words = (PROGRAM, "run", "-n", "1", *SH, UNTIL_TERM)
    inside = ("sh", "-c", 'sleep 600 & "$@"; status=$?; kill $! && exit $status', "sh", *words)
    with subprocess.Popen((*NAMESPACE, *inside), cwd=small.path, stderr=subprocess.DEVNULL) as container:
        try:
            eventually(lambda: next(small.path.glob(".ralph/worktrees/*/ready"), None), "the agent")
            fill(small.path / "filler")
            stopped = command("stop", "--all", cwd=small.path)
            assert (stopped.status, container.wait(CAP * 3)) == (0, 143), stopped.stderr
        finally:
            container.kill()


def test_another_process_gets_no_signal(small: Repo) -> None:
    """A record may name any process; then the stop fails, and says what is full."""
    with _working(small, UNTIL_TERM) as session, subprocess.Popen(("sleep", "600")) as bystander:
        record = small.path / ".ralph/run/agents" / f"{session.directory.name[-4:]}.json"
        (small.path / "filler").unlink()
        fields = json.loads(record.read_text())
        record.write_text(json.dumps(fields | {"pid": bystander.pid}))
        fill(small.path / "filler")
        stopped = command("stop", session.directory.name[-4:], cwd=small.path)
        assert (stopped.status, bystander.poll()) == (125, None), stopped.stderr
        assert "make room, then type the command again: df -h " in stopped.stderr
        bystander.kill()
        os.kill(fields["pid"], 15)
        session.finish()


BEARER = """
import sys, time
from ralph_wrap.system.liveness import bear_name
bear_name(sys.argv[1])
print(flush=True)
time.sleep(600)
"""


def test_a_session_without_a_handler_gets_no_signal(small: Repo) -> None:
    """SIGUSR1 would kill a process that does not catch it; the stop says that it cannot ask."""
    with _working(small, UNTIL_TERM) as session:
        agent_id = session.directory.name[-4:]
        record = small.path / ".ralph/run/agents" / f"{agent_id}.json"
        with subprocess.Popen((sys.executable, "-c", BEARER, agent_id), stdout=subprocess.PIPE) as bearer:
            assert bearer.stdout is not None
            bearer.stdout.readline()
            (small.path / "filler").unlink()
            fields = json.loads(record.read_text())
            owner = {"pid": bearer.pid, "start_time": process_table.start_time(bearer.pid)}
            record.write_text(json.dumps(fields | owner))
            fill(small.path / "filler")
            stopped = command("stop", "--after-iteration", agent_id, cwd=small.path)
            assert (stopped.status, bearer.poll()) == (125, None), stopped.stderr
            assert f"cannot ask session {session.directory.name} to stop" in stopped.stderr
            bearer.kill()
        os.kill(fields["pid"], 15)
        session.finish()


FILLING = """
: > "new-$RALPH_ITERATION"
[ "$RALPH_ITERATION" != 1 ] || cat /dev/zero > "$RALPH_PROJECT/filler" 2> /dev/null
true
"""


@contextmanager
def _looping(
    repo: Repo, narration: IO[bytes], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes] | ForkedCommand]:
    words = ("run", "-n", "5", "--name", "x", *SH, FILLING)
    process = start(*words, cwd=repo.path, env=env, stdout=subprocess.DEVNULL, stderr=narration.fileno())
    try:
        with process:
            yield process
    finally:
        process.kill()


def test_a_loop_that_cannot_be_kept_waits_for_room(small: Repo, tmp_path: Path) -> None:
    """After three iterations; it goes on by itself, and first keeps what was not kept."""
    narration = tmp_path / "narration"
    with narration.open("wb") as stderr, _looping(small, stderr) as process:
        eventually(lambda: b'"loop.paused"' in narration.read_bytes(), "the pause")
        assert next(small.path.glob(".ralph/worktrees/*/new-3"), None) is not None
        assert next(small.path.glob(".ralph/worktrees/*/new-4"), None) is None
        (small.path / "filler").unlink()
        assert process.wait(CAP * 3) == 0
    (report,) = (read(path) for path in small.path.glob(".ralph/run/sessions/*/report.json"))
    assert isinstance(report, SessionReport)
    assert (report.iterations, len(report.saved_paths)) == (5, 5)
    assert small.git("ls-tree", "--name-only", f"refs/ralph/snapshots/{report.id}/3").split()[-1] == "new-3"


def test_a_loop_that_waits_for_room_says_so(small: Repo, tmp_path: Path) -> None:
    """To a person, and in ps, review and the web page, although nothing can be written."""
    told, narration = tmp_path / "told", tmp_path / "narration"
    line = f'echo "$RALPH_EVENT: $RALPH_SUMMARY" >> {told}'
    wanted = 'notify_on = ["disk-full", "limit"]'
    small.write(".ralph/config.toml", f"notify = {json.dumps(line)}\n{wanted}\n")
    with narration.open("wb") as stderr, _looping(small, stderr, {"RALPH_TRUST": "1"}) as process:
        eventually(lambda: told.exists() and told.read_text().endswith("\n"), "the word of the pause")
        words = "waiting for room: the disk is full"
        assert words in command("ps", cwd=small.path).stdout.decode()
        [entry] = json.loads(command("ps", "--json", cwd=small.path).stdout)["data"]
        assert (entry["verdict"], entry["waits_for_room"]) == ("live", True)
        assert words in command("review", cwd=small.path).stdout.decode()
        site = pages(small.path)
        for page in ("live", f"session?id={entry['id']}"):
            assert f'<span class="tag live">{words}</span>' in site.get(page).text
        (small.path / "filler").unlink()
        eventually(lambda: told.read_text().count("\n") > 1, "the word of the end")
        assert process.wait(CAP * 3) == 0
    begins, ends, end = told.read_text().splitlines()
    assert begins.startswith("disk-full: x: the disk of ")
    assert ends == "disk-full: x: there is room on the disk again: the loop goes on"
    assert end.startswith("limit: x: ")
    assert words not in command("ps", "--all", cwd=small.path).stdout.decode()


def test_a_loop_that_waits_for_room_can_be_stopped(small: Repo, tmp_path: Path) -> None:
    """At once, although its disk is still full."""
    narration = tmp_path / "narration"
    with narration.open("wb") as stderr, _looping(small, stderr) as process:
        eventually(lambda: b'"loop.paused"' in narration.read_bytes(), "the pause")
        assert command("stop", "--all", cwd=small.path).status == 0
        assert process.wait(CAP * 3) == 143


def test_no_agent_works_in_the_users_checkout_on_a_full_disk(small: Repo) -> None:
    """The user can make room: falling back is for what cannot be mended here and now."""
    fill(small.path / "filler")
    before = sorted(small.path.iterdir())
    result = run(small.path, "-n", "1", *SH, "pwd")
    assert (result.status, result.stdout) == (125, b"")
    assert "make room, then type the command again: df -h " in result.stderr
    assert sorted(path for path in small.path.iterdir() if path.name != ".ralph") == [
        path for path in before if path.name != ".ralph"
    ]
