"""The output of an agent: where it goes, and what becomes of it without a reader."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import logged
from tests.support.processes import left, status_of
from tests.support.sessions import Session, run
from tests.support.wait import eventually, never, seldom, steady

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
TALKER = os.fspath(Path(__file__).parent.parent / "support" / "talkative_agent.py")
ODD = bytes(range(256)) + b"\xff\xfe\xc3(\x1b[31mred\x1b[0m\r\x1b]0;title\x07no newline"


def test_bytes_pass_unchanged(repo: Repo, tmp_path: Path) -> None:
    """NUL, invalid UTF-8, colours and a missing last newline reach stdout and output.log."""
    odd = tmp_path / "odd"
    odd.write_bytes(ODD)
    result = run(repo.path, "-n", "1", "--", "cat", odd)
    assert result.stdout == ODD
    assert result.output_log == ODD


def test_each_stream_goes_to_its_own_descriptor(repo: Repo) -> None:
    """And both of them into output.log, as they come."""
    agent = f"printf one; {logged('one')}echo two >&2; {logged('two')}printf three"
    result = run(repo.path, "-n", "1", *SH, agent)
    assert result.stdout == b"onethree"
    assert [line for line in result.stderr.splitlines() if not line.startswith('{"at"')] == ["two"]
    assert result.output_log == b"onetwo\nthree"


def test_output_of_every_iteration_is_kept(repo: Repo) -> None:
    """One after the other, in one log."""
    result = run(repo.path, "-n", "3", *SH, 'echo "$RALPH_ITERATION"')
    assert result.output_log == result.stdout == b"1\n2\n3\n"


def test_a_hundred_megabytes_pass_in_constant_memory(repo: Repo, tmp_path: Path) -> None:
    """The reader gets every byte, and the wrapper does not grow by 10 MB."""
    go = tmp_path / "go"
    with Session(repo.path, "-n", "1", "--", sys.executable, TALKER, "100", go) as session:
        session.wait_for("agent.started")
        pid = session.process.pid
        seldom(lambda: status_of(pid, "voluntary_ctxt_switches"), "wake-ups", windows=1)
        before = status_of(pid, "VmRSS")
        go.touch()
        digest = hashlib.sha256()
        most = before
        assert session.process.stdout is not None
        while piece := os.read(session.process.stdout.fileno(), 1 << 20):
            digest.update(piece)
            most = max(most, _memory(pid))
        result = session.finish()
    assert result.status == 0
    assert digest.hexdigest() == go.read_text()
    log = session.directory / "output.log"
    with log.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == go.read_text()
    log.unlink()
    assert most - before < 10_000


def _memory(pid: int) -> int:
    try:
        return status_of(pid, "VmRSS")
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0  # it has ended


def test_a_reader_that_goes_away_does_not_end_the_loop(repo: Repo) -> None:
    """As with head -c 1: every iteration runs, and the log has everything."""
    reading, writing = os.pipe()
    agent = 'echo "$RALPH_ITERATION"; head -c 200000 /dev/zero'
    with os.fdopen(writing, "wb") as ours, Session(repo.path, "-n", "3", *SH, agent, stdout=ours) as session:
        ours.close()
        assert os.read(reading, 1) == b"1"
        os.close(reading)
        result = session.finish()
    assert (result.status, result.report["iterations"]) == (0, 3)
    assert result.output_log == b"".join(b"%d\n" % n + bytes(200_000) for n in (1, 2, 3))
    assert "reader.left" in result.names


@pytest.fixture
def unread() -> Iterator[int]:
    """Yield the writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    yield writing
    os.close(writing)
    os.close(reading)


def test_a_reader_that_never_reads_does_not_keep_a_session(repo: Repo, home: Path, unread: int) -> None:
    """TERM ends it while the agent hangs in write: what was written is logged, what was done is saved."""
    agent = (
        "import os\n"
        "count = os.open('count', os.O_WRONLY | os.O_CREAT)\n"
        "for number in range(10**6):\n"
        "    os.write(1, b'%09d\\n' % number)\n"
        "    os.pwrite(count, b'%09d' % number, 0)\n"
    )
    with (
        os.fdopen(os.dup(unread), "wb") as ours,
        Session(repo.path, "--", sys.executable, "-c", agent, stdout=ours) as session,
    ):
        started = session.wait_for("agent.started")
        count = Path(f"/proc/{started['pid']}/cwd/count")
        eventually(count.exists, "output")
        steady(count.read_text, "the agent's output")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert result.status == 128 + signal.SIGTERM
    saved = result.report["saved"]
    written = int(repo.show(f"{saved}:count"))
    assert written > 10_000
    assert result.output_log == b"".join(b"%09d\n" % number for number in range(written + 1))
    assert left(home) == {}


def test_an_agent_without_a_reader_is_not_idle(repo: Repo, unread: int) -> None:
    """Our reader keeps it from going on, so --idle-timeout does not count."""
    agent = "head -c 300000 /dev/zero; exec sleep 1000"
    with (
        os.fdopen(os.dup(unread), "wb") as ours,
        Session(repo.path, "--idle-timeout", "2s", *SH, agent, stdout=ours) as session,
    ):
        session.wait_for("agent.started")
        never(lambda: session.process.poll() is not None, "the session has ended", windows=6)
        session.send(signal.SIGTERM)
        result = session.finish()
    assert "limit.reached" not in result.names


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_session_runs_with_descriptors_closed(repo: Repo, closed: str) -> None:
    """Output is in the log, work is saved, and no file of ours gets the number of a standard stream."""
    agent = "echo out; echo err >&2; cat; echo left > left; exit 3"
    under = ("sh", "-c", f'exec "$@" {closed}', "sh")
    result = run(repo.path, "-n", "1", *SH, agent, under=under)
    assert result.status == 3
    assert sorted(result.output_log.splitlines()) == [b"err", b"out"]
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert result.stdout == (b"" if ">&- 2" in closed or closed == ">&-" else b"out\n")
    if "2>&-" not in closed:
        assert result.stderr.splitlines()[-1].startswith('{"at"')


def test_a_process_of_an_earlier_iteration_may_go_on_talking(repo: Repo, home: Path, tmp_path: Path) -> None:
    """What it says during the second iteration is passed on, and it ends with the session."""
    go = tmp_path / "go"
    agent = (
        'if [ "$RALPH_ITERATION" = 1 ]; then\n'
        f"  (while [ ! -e {go} ]; do sleep 0.05; done; echo from the first; exec sleep 1000) &\n"
        "else\n"
        f'  touch {go}; until grep -q first "$RALPH_PROJECT"/.ralph/run/sessions/*/output.log\n'
        "  do sleep 0.05; done; echo from the second\n"
        "fi"
    )
    result = run(repo.path, "-n", "2", "--grace", "1s", *SH, agent)
    assert result.status == 0
    assert result.stdout == b"from the first\nfrom the second\n"
    assert left(home) == {}


def test_an_agent_may_close_its_output_and_live_on(repo: Repo, tmp_path: Path) -> None:
    """The end of its output is not its end."""
    go, closed = tmp_path / "go", tmp_path / "closed"
    agent = f"exec >&- 2>&-; touch {closed}; while [ ! -e {go} ]; do sleep 0.05; done; echo > after; exit 4"
    with Session(repo.path, "-n", "1", *SH, agent) as session:
        eventually(closed.exists, "the agent")
        never(lambda: session.process.poll() is not None, "the session has ended")
        go.touch()
        result = session.finish()
    assert result.status == 4
    assert repo.show(f"{result.report['saved']}:after") == b"\n"


def test_much_output_at_the_very_end_is_not_lost(repo: Repo) -> None:
    """A slow reader gets everything although the agent is long gone."""
    # More than our pipe holds, so that some of it waits; not more than both, so that the agent can end.
    with Session(repo.path, "-n", "1", "--", "head", "-c", "100000", "/dev/zero") as session:
        session.wait_for("agent.exited")
        result = session.finish()
    assert result.stdout == bytes(100_000)
    assert "output.given_up" not in result.names


def test_both_streams_may_be_one_file(repo: Repo, tmp_path: Path) -> None:
    """As with > file 2>&1: nothing is overwritten."""
    both = tmp_path / "both"
    under = ("sh", "-c", f'exec "$@" > {both} 2>&1', "sh")
    run(repo.path, "-n", "2", *SH, "echo out; echo err >&2", under=under)
    lines = [line for line in both.read_text().splitlines() if not line.startswith('{"at"')]
    assert sorted(lines) == ["err", "err", "out", "out"]
