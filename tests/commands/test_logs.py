"""``ralph-wrap logs``: the output, following it, and its end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import status_of
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.wait import CAP, eventually, never

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")


SH = ("--", "sh", "-c")


def _follow(repo: Repo, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (PROGRAM, "logs", "-f", *arguments), cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _line(follower: subprocess.Popen[bytes]) -> bytes:
    assert follower.stdout is not None
    return follower.stdout.readline()


def _waiting(go: Path) -> str:
    return f"until [ -e {go} ]; do sleep 0.02; done"


def _id(session: Session) -> str:
    return session.directory.name.rpartition("-")[2]


# A session that has ended


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["", "-f"])
@pytest.mark.parametrize("whole", [True, False], ids=["session id", "agent id"])
def test_the_output_of_a_finished_session(repo: Repo, follow: tuple[str, ...], *, whole: bool) -> None:
    """Byte for byte what it was; following comes to its end by itself."""
    done = run(repo.path, "-n", "2", *SH, r"printf 'one\0\377\n'; printf two >&2")
    assert done.directory is not None
    shown = command("logs", *follow, done.directory.name if whole else done.report["id"], cwd=repo.path)
    assert (shown.status, shown.stderr) == (0, "")
    assert shown.stdout == done.output_log != b""


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["", "-f"])
def test_the_events_of_a_finished_session(repo: Repo, follow: tuple[str, ...]) -> None:
    """To the last one."""
    done = run(repo.path, "-n", "1", "--", "true")
    shown = command("logs", "--events", *follow, done.report["id"], cwd=repo.path)
    assert [json.loads(line) for line in shown.stdout.splitlines()] == done.events
    assert done.names[-1] == "session.released"


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["", "-f"])
def test_a_log_that_was_never_made(repo: Repo, follow: tuple[str, ...]) -> None:
    """There was no output: nothing is printed, and that is no error."""
    done = run(repo.path, "--", "/bin/sh", "-c", "true", env={"RALPH_WRAP_MAX_ITERATIONS": "1"})
    assert done.directory is not None
    (done.directory / "output.log").unlink()
    shown = command("logs", *follow, done.report["id"], cwd=repo.path)
    assert (shown.status, shown.stdout, shown.stderr) == (0, b"", "")


def test_the_newest_session_of_an_id(repo: Repo) -> None:
    """Ids come back, sessions do not."""
    done = run(repo.path, "-n", "1", *SH, "echo new")
    assert done.directory is not None
    agent_id = done.report["id"]
    older = done.directory.with_name(f"20200102T030405Z-{agent_id}")
    older.mkdir()
    record = json.loads((done.directory / "record.json").read_text())
    (older / "record.json").write_text(json.dumps(record | {"session": older.name}))
    (older / "output.log").write_text("old\n")
    assert command("logs", agent_id, cwd=repo.path).stdout == b"new\n"
    assert command("logs", older.name, cwd=repo.path).stdout == b"old\n"


# One that lives


def test_a_live_session_is_printed_as_far_as_it_is(repo: Repo) -> None:
    """Without -f the command does not wait."""
    with Session(repo.path, *SH, "echo one; exec sleep 1000") as session:
        assert session.process.stdout is not None
        assert session.process.stdout.readline() == b"one\n"
        shown = command("logs", _id(session), cwd=repo.path)
        session.send(signal.SIGTERM)
        session.finish()
    assert (shown.status, shown.stdout) == (0, b"one\n")


def test_a_log_that_is_shortened_is_followed(repo: Repo, tmp_path: Path) -> None:
    """Each line once, while the session keeps only the beginning and the end of its log."""
    repo.write(".ralph/config.toml", 'max_output = "4MB"\n')
    agent = f"echo one; {_waiting(tmp_path / 'go')}; seq 1000000 2400000; echo end"
    options = ("-n", "1", *SH, agent)
    with Session(repo.path, *options, env={"RALPH_TRUST": "1"}, stdout=subprocess.DEVNULL) as session:
        eventually(session.find_directory, "a session")
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            (tmp_path / "go").touch()
            stdout, stderr = follower.communicate(timeout=CAP)
        result = session.finish()
    assert (follower.returncode, stderr, result.status) == (0, b"", 0)
    *lines, last = stdout.splitlines()
    assert (lines[0], last) == (b"1000000", b"end")
    for before, line in itertools.pairwise(lines):  # it is a mark if the follower was slower than the session
        marks = b"max_output" in before + line
        assert marks or int(line) == int(before) + 1
    assert result.names.count("output_log.shortened") >= 2
    assert result.output_log.count(b"max_output") == 1
    assert len(result.output_log) <= 4_000_000


def test_output_is_followed_to_the_end_of_the_session(repo: Repo, tmp_path: Path) -> None:
    """Each line when it is written, the last one included, and then it ends."""
    agent = f"echo one; {_waiting(tmp_path / 'a')}; echo two; {_waiting(tmp_path / 'b')}; echo three"
    with Session(repo.path, "-n", "1", *SH, agent) as session:
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            (tmp_path / "a").touch()
            assert _line(follower) == b"two\n"
            assert follower.poll() is None
            (tmp_path / "b").touch()
            stdout, stderr = follower.communicate(timeout=CAP)
        result = session.finish()
    assert (follower.returncode, stdout, stderr) == (0, b"three\n", b"")
    assert result.status == 0


def test_events_are_followed_to_the_last_one(repo: Repo) -> None:
    """Which a session tells after it has given its id back, and its reader time to take what it wrote."""
    with Session(repo.path, "-n", "1", *SH, "head -c 100000 /dev/zero") as session:
        session.wait_for("session.registered")
        with _follow(repo, "--events", _id(session)) as follower:
            eventually((session.directory / "record.json").exists, "its id to be free")
            never(lambda: follower.poll() is not None, "ended before the session", windows=3)
            result = session.finish()  # reads
            stdout, _ = follower.communicate(timeout=CAP)
    assert [json.loads(line) for line in stdout.splitlines()] == result.events
    assert result.names[-1] == "session.released"


def test_a_log_that_is_not_there_yet_is_waited_for(repo: Repo, tmp_path: Path) -> None:
    """It is followed from its first byte on."""
    with Session(repo.path, "-n", "1", *SH, f"{_waiting(tmp_path / 'go')}; echo late") as session:
        session.wait_for("agent.started")
        log = session.directory / "output.log"
        log.rename(tmp_path / "kept")
        with _follow(repo, _id(session)) as follower:
            never(lambda: follower.poll() is not None, "not waited for")
            (tmp_path / "kept").rename(log)
            (tmp_path / "go").touch()
            stdout, _ = follower.communicate(timeout=CAP)
        session.finish()
    assert (follower.returncode, stdout) == (0, b"late\n")


def test_following_ends_with_a_session_that_is_killed(repo: Repo) -> None:
    """Everything was printed, and no process will write any more."""
    with Session(repo.path, *SH, "echo one; exec sleep 1000") as session:
        session.wait_for("agent.started")
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            session.send(signal.SIGKILL)
            stdout, stderr = follower.communicate(timeout=CAP)
    assert (follower.returncode, stdout) == (137, b"")
    assert b"was killed" in stderr


# Readers


def test_a_reader_that_goes_away_ends_it(repo: Repo) -> None:
    """At once, though there is nothing to write, and without a word: as a program that SIGPIPE ends."""
    with Session(repo.path, *SH, "echo one; exec sleep 1000") as session:
        session.wait_for("agent.started")
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            assert follower.stdout is not None
            follower.stdout.close()
            assert follower.wait(CAP) == 128 + signal.SIGPIPE
            assert follower.stderr is not None
            assert follower.stderr.read() == b""
        session.send(signal.SIGTERM)
        session.finish()


def test_head_is_a_reader(repo: Repo) -> None:
    """Of more than a pipe holds."""
    done = run(repo.path, "-n", "1", *SH, "yes | head -c 1000000")
    piped = subprocess.run(
        ("bash", "-c", f'"{PROGRAM}" logs {done.report["id"]} | head -n 1; echo ${{PIPESTATUS[0]}}'),
        cwd=repo.path,
        capture_output=True,
        timeout=CAP,
        check=True,
    )
    assert (piped.stdout, piped.stderr) == (b"y\n141\n", b"")


def test_ctrl_c_ends_following(repo: Repo) -> None:
    """Quietly; the session is not touched."""
    with Session(repo.path, *SH, "echo one; exec sleep 1000") as session:
        session.wait_for("agent.started")
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            follower.send_signal(signal.SIGINT)
            stdout, stderr = follower.communicate(timeout=CAP)
        assert (follower.returncode, stdout, stderr) == (130, b"", b"")
        assert session.process.poll() is None
        session.send(signal.SIGTERM)
        session.finish()


def test_following_costs_nothing(repo: Repo) -> None:
    """About one look a second while nothing comes."""
    with Session(repo.path, *SH, "echo one; exec sleep 1000") as session:
        session.wait_for("agent.started")
        with _follow(repo, _id(session)) as follower:
            assert _line(follower) == b"one\n"
            before = status_of(follower.pid, "voluntary_ctxt_switches")
            never(
                lambda: status_of(follower.pid, "voluntary_ctxt_switches") > before + 20,
                "it looks all the time",
                windows=4,
            )
            follower.terminate()
        session.send(signal.SIGTERM)
        session.finish()


# Bad input


@pytest.mark.parametrize("name", ["..", "../../../etc/passwd", "BEEF", "*", ""])
def test_a_text_that_names_no_session_is_not_found(repo: Repo, name: str) -> None:
    """It names no file."""
    shown = command("logs", name, cwd=repo.path)
    assert (shown.status, shown.stdout) == (4, b"")


def test_a_session_that_is_not_there(repo: Repo) -> None:
    """Status 4; nothing is made."""
    shown = command("logs", "beef", cwd=repo.path)
    assert (shown.status, shown.stdout) == (4, b"")
    assert not (repo.path / ".ralph").exists()


@pytest.mark.parametrize("what", ["log", "directory", "sessions", "fifo"])
@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["", "-f"])
def test_nothing_but_a_log_is_printed(repo: Repo, tmp_path: Path, what: str, follow: tuple[str, ...]) -> None:
    """A symlink that an agent has put there is not followed; a FIFO hangs no reader."""
    done = run(repo.path, "-n", "1", *SH, "echo secret")
    assert done.directory is not None
    directory = {"directory": done.directory, "sessions": done.directory.parent}.get(
        what, done.directory / "output.log"
    )
    directory.rename(tmp_path / "moved")
    if what == "fifo":
        os.mkfifo(directory)
    else:
        directory.symlink_to(tmp_path / "moved")
    shown = command("logs", *follow, done.report["id"], cwd=repo.path)
    assert (shown.status, shown.stdout) == (4 if what == "sessions" else 125, b"")


def test_a_record_that_cannot_be_read(repo: Repo) -> None:
    """An error that says why, and nothing is changed."""
    bad = repo.path / ".ralph/run/agents/beef.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("garbage")
    shown = command("logs", "beef", cwd=repo.path)
    assert shown.status == 125
    assert "not a record" in shown.stderr
    assert bad.read_text() == "garbage"


def test_the_disk_of_the_reader_is_full(repo: Repo) -> None:
    """That is said, and is no success."""
    done = run(repo.path, "-n", "1", *SH, "echo one")
    with Path("/dev/full").open("wb") as full:
        shown = subprocess.run(
            (PROGRAM, "logs", done.report["id"]),
            cwd=repo.path,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert shown.returncode == 125
    assert b"No space left" in shown.stderr


def test_a_session_that_ends_at_once(repo: Repo) -> None:
    """It is printed whole, however the two race."""
    for _ in range(3):
        with Session(repo.path, "-n", "1", *SH, "echo one; echo two >&2") as session:
            session.wait_for("session.registered")
            with _follow(repo, _id(session)) as follower:
                stdout, _ = follower.communicate(timeout=CAP)
            result = session.finish()
        assert sorted(stdout.split()) == [b"one", b"two"]
        assert result.output_log == stdout
