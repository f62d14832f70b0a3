"""An agent's output on its way through real pipes."""

from __future__ import annotations

import os
import select
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.output_relay import OutputRelay
from tests.support.cancelling import cancelled
from tests.support.mounts import fill, mounted
from tests.support.needs import needs_mounts
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph_wrap.system.cancel import CancelToken

pytestmark = pytest.mark.timeout(60)  # what must not block fails soon

EVERYTHING = bytes(range(256)) * 4000
"""A megabyte of every byte there is: more than all pipes on the way hold together."""


@dataclass
class Carried:
    """A relay and what it has reported."""

    relay: OutputRelay
    heard: list[bytes] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def once(self) -> None:
        """Wait shortly, and move what can be moved, as the driver does."""
        poll = select.poll()
        for descriptor, events in self.relay.interest().items():
            poll.register(descriptor, events)
        self.relay.handle({descriptor for descriptor, _ in poll.poll(10)})

    def until_end_of(self, agent: subprocess.Popen[bytes]) -> None:
        """Carry everything that an agent writes."""
        while agent.poll() is None:
            self.once()
        self.relay.drain()
        assert self.relay.flush(20, cancel=NEVER) == 0


@contextmanager
def _carrying(log: Path, stdout: int, stderr: int) -> Iterator[Carried]:
    heard: list[bytes] = []
    troubles: list[str] = []
    relay = OutputRelay(log, (stdout, stderr), heard.append, troubles.append)
    try:
        yield Carried(relay, heard, troubles)
    finally:
        relay.close()


@contextmanager
def _agent(relay: OutputRelay, *argv: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose output the relay carries."""
    stdout, stderr = relay.writing_ends
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr) as agent:
        try:
            yield agent
        finally:
            agent.kill()


@contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Make a pipe; reading it does not wait."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with FileIO(reading) as reader, FileIO(writing, "w") as writer:
        yield reader, writer


@contextmanager
def _file(path: Path) -> Iterator[int]:
    with path.open("ab") as file:
        yield file.fileno()


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """Return a file that holds EVERYTHING."""
    path = tmp_path / "big"
    path.write_bytes(EVERYTHING)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of a log."""
    return tmp_path / "output.log"


# Bytes that pass


def test_bytes_pass_unchanged_through_pipes(tmp_path: Path, big: Path, log: Path) -> None:
    """From the agent to the reader of our stdout, into the log, and to the listener."""
    arrived = tmp_path / "arrived"
    with (
        _file(arrived) as target,
        subprocess.Popen(("cat",), stdin=subprocess.PIPE, stdout=target) as reader,
        _file(tmp_path / "stderr") as stderr,
    ):
        assert reader.stdin is not None
        with (
            _carrying(log, reader.stdin.fileno(), stderr) as carried,
            _agent(carried.relay, "cat", big) as agent,
        ):
            carried.until_end_of(agent)
    assert arrived.read_bytes() == log.read_bytes() == b"".join(carried.heard) == EVERYTHING
    assert carried.troubles == []


def test_the_two_streams_are_kept_apart(tmp_path: Path, log: Path) -> None:
    """Each goes to its own reader; only stdout is listened to; the log holds both."""
    out, err = tmp_path / "out", tmp_path / "err"
    with (
        _file(out) as stdout,
        _file(err) as stderr,
        _carrying(log, stdout, stderr) as carried,
        _agent(carried.relay, "sh", "-c", "echo answer; echo trouble >&2") as agent,
    ):
        carried.until_end_of(agent)
    assert (out.read_bytes(), err.read_bytes()) == (b"answer\n", b"trouble\n")
    assert sorted(log.read_bytes().splitlines()) == [b"answer", b"trouble"]
    assert carried.heard == [b"answer\n"]


def test_the_pipes_outlive_an_agent(tmp_path: Path, log: Path) -> None:
    """They are those of the session: the next agent finds them open."""
    out = tmp_path / "out"
    with _file(out) as stdout, _carrying(log, stdout, stdout) as carried:
        for word in ("one", "two"):
            with _agent(carried.relay, "echo", word) as agent:
                carried.until_end_of(agent)
    assert out.read_bytes() == log.read_bytes() == b"one\ntwo\n"


# Readers


def test_a_reader_that_stands_still_blocks_nothing(big: Path, log: Path) -> None:
    """The agent waits, we do not; once it reads again it gets every byte."""
    with (
        _pipe() as (reader, stdout),
        _pipe() as (_, stderr),
        _carrying(log, stdout.fileno(), stderr.fileno()) as carried,
        _agent(carried.relay, "cat", big) as agent,
    ):

        def stuck() -> bool:
            carried.once()
            return select.POLLOUT in carried.relay.interest().values()

        eventually(stuck, "a full pipe")
        for _ in range(10):
            carried.relay.handle({stdout.fileno()})
        assert (agent.poll(), carried.relay.is_held_up) == (None, True)
        received = b""

        def received_all() -> bool:
            nonlocal received
            carried.once()
            received += reader.read(1 << 16) or b""
            return len(received) >= len(EVERYTHING)

        eventually(received_all, "everything")
        assert received == EVERYTHING
        assert (agent.wait(), carried.relay.is_held_up) == (0, False)


def test_one_pipe_for_both_streams_blocks_nothing(big: Path, log: Path) -> None:
    """``2>&1``: there is room for one write, and both streams have something to say."""
    with (
        _pipe() as (_, both),
        _carrying(log, both.fileno(), both.fileno()) as carried,
        _agent(carried.relay, "sh", "-c", 'cat "$1" & cat "$1" >&2', "sh", big),
    ):

        def both_stuck() -> bool:
            carried.once()
            return set(carried.relay.interest().values()) == {select.POLLOUT}

        eventually(both_stuck, "a full pipe")
        for _ in range(10):
            carried.relay.handle({both.fileno()})


def test_a_reader_that_went_away_is_reported_once(big: Path, log: Path) -> None:
    """The agent goes on, and its output is in the log and listened to."""
    with (
        _pipe() as (reader, stdout),
        _pipe() as (_, stderr),
        _carrying(log, stdout.fileno(), stderr.fileno()) as carried,
        _agent(carried.relay, "cat", big) as agent,
    ):
        reader.close()
        carried.until_end_of(agent)
        assert agent.returncode == 0
    assert carried.troubles == ["stdout"]
    assert log.read_bytes() == b"".join(carried.heard) == EVERYTHING


def test_a_stream_that_was_closed_from_the_start_is_left_out(log: Path) -> None:
    """``>&-``: no reader misses it."""
    closed = 1 << 20
    with (
        _pipe() as (_, stderr),
        _carrying(log, closed, stderr.fileno()) as carried,
        _agent(carried.relay, "echo", "word") as agent,
    ):
        carried.until_end_of(agent)
    assert (log.read_bytes(), carried.troubles) == (b"word\n", [])


def test_flushing_ends_when_the_user_hurries(big: Path, log: Path) -> None:
    """The reader is not waited for; what it did not get is counted, and is in the log."""
    with (
        _pipe() as (reader, stdout),
        _pipe() as (_, stderr),
        _carrying(log, stdout.fileno(), stderr.fileno()) as carried,
        _agent(carried.relay, "head", "-c", "100000", big) as agent,
    ):
        while agent.poll() is None:
            carried.once()
        carried.relay.drain()
        given_up = carried.relay.flush(3600, cancel=cancelled())
        assert len(reader.read(1 << 20) or b"") + given_up == 100_000
        assert given_up > 0
    assert log.read_bytes() == EVERYTHING[:100_000]


@pytest.mark.parametrize(("patience", "cancel"), [(0.5, NEVER), (3600, cancelled())], ids=["time", "signal"])
def test_a_slow_reader_does_not_hold_the_end_up(log: Path, patience: float, cancel: CancelToken) -> None:
    """It takes 40 kB a second, so there is always room again before the wait for room ends."""
    with (
        _pipe() as (reader, stdout),
        _pipe() as (_, stderr),
        _carrying(log, stdout.fileno(), stderr.fileno()) as carried,
    ):
        carried.relay.show(EVERYTHING[:400_000])
        ended = threading.Event()

        def read_slowly() -> None:
            while not ended.wait(0.1):
                reader.read(4096)

        slow = threading.Thread(target=read_slowly)
        slow.start()
        try:
            given_up = carried.relay.flush(patience, cancel)
        finally:
            ended.set()
            slow.join()
    assert given_up > 100_000


# The end of an iteration


@pytest.mark.parametrize("reader_is_there", [True, False])
def test_draining_ends(log: Path, reader_is_there: object) -> None:
    """Although a process that was left running fills the pipe as fast as it is emptied."""
    with (
        _pipe() as (reader, stdout),
        _pipe() as (_, stderr),
        _carrying(log, stdout.fileno(), stderr.fileno()) as carried,
        _agent(carried.relay, "yes"),
    ):
        if not reader_is_there:
            reader.close()
        while not carried.heard:
            carried.once()
        carried.relay.drain()
        assert len(b"".join(carried.heard)) < 8 << 20


# The log


@pytest.mark.parametrize("target", ["/dev/full", "."])
def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path, big: Path, target: str) -> None:
    """A full disk, or something else in its place; the output passes all the same."""
    out = tmp_path / "out"
    with (
        _file(out) as stdout,
        _carrying(tmp_path / target, stdout, stdout) as carried,
        _agent(carried.relay, "cat", big) as agent,
    ):
        carried.until_end_of(agent)
    assert carried.troubles == ["log"]
    assert out.read_bytes() == b"".join(carried.heard) == EVERYTHING


def test_a_log_goes_on_where_it_was(tmp_path: Path, log: Path) -> None:
    """Nothing that is in it is overwritten."""
    log.write_bytes(b"before\n")
    with (
        _file(tmp_path / "out") as stdout,
        _carrying(log, stdout, stdout) as carried,
        _agent(carried.relay, "echo", "after") as agent,
    ):
        carried.until_end_of(agent)
    assert log.read_bytes() == b"before\nafter\n"


@needs_mounts
def test_after_a_full_disk_the_log_goes_on_with_a_mark(tmp_path: Path) -> None:
    """It says how much is missing; the output passes all the time, and one message says what happened."""
    page, out = b"f" * 4096, tmp_path / "out"
    with (
        mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=64k", "none") as small,
        _file(out) as stdout,
        _carrying(small / "output.log", stdout, stdout) as carried,
    ):
        for piece, is_full in ((page, False), (b"lost", True), (b"this, too", True), (b"last", False)):
            (small / "filler").unlink(missing_ok=True)
            if is_full:
                fill(small / "filler")
            (tmp_path / "piece").write_bytes(piece)
            with _agent(carried.relay, "cat", tmp_path / "piece") as agent:
                carried.until_end_of(agent)
        written = (small / "output.log").read_bytes()
    assert out.read_bytes() == page + b"lostthis, toolast"
    mark = b"ralph-wrap: 13 bytes of output are missing here: No space left on device"
    assert written == page + b"\n" + mark + b"\nlast"
    assert carried.troubles == ["log", "log again"]
