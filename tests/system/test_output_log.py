"""The output log of a session that is longer than its limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ralph_wrap.commands.logs import GrowingFile
from ralph_wrap.state.session_files import end_of
from ralph_wrap.system import files
from ralph_wrap.system.output_log import shorten
from ralph_wrap.system.output_relay import OutputRelay
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts

LIMIT = 4 * 10**6
MARK = re.compile(rb"ralph-wrap: (\d+) bytes of output are missing here, after the first (\d+): max_output\n")


def _lines(first: int, last: int) -> bytes:
    """Return numbered lines of 20 bytes."""
    return b"".join(b"line %14d\n" % number for number in range(first, last))


def _shorten(path: Path, limit: int = LIMIT) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.close(shorten(descriptor, path, limit))
    finally:
        os.close(descriptor)


def _parts(content: bytes) -> tuple[bytes, int, bytes]:
    """Return what stands before the mark, how much is missing, and what stands behind it."""
    [found] = MARK.finditer(content)
    assert int(found[2]) == found.start()
    return content[: found.start()], int(found[1]), content[found.end() :]


def test_the_beginning_and_the_end_stay(tmp_path: Path) -> None:
    """Whole lines, and between them a line that says how much is missing."""
    log, content = tmp_path / "output.log", _lines(0, 300_000)
    log.write_bytes(content)
    _shorten(log)
    head, missing, tail = _parts(log.read_bytes())
    assert content.startswith(head)
    assert content.endswith(tail)
    assert len(head) + missing + len(tail) == len(content)
    assert (head[-1:], tail[:5], (1 << 20) - 20 <= len(head) <= 1 << 20) == (b"\n", b"line ", True)
    assert LIMIT // 2 - 20 <= len(tail) <= LIMIT // 2


def test_a_log_is_shortened_again_and_again(tmp_path: Path) -> None:
    """There is one mark, with everything that is missing; the beginning stays the same."""
    log, written = tmp_path / "output.log", _lines(0, 300_000)
    log.write_bytes(written)
    _shorten(log)
    for number in range(300_000, 900_000, 150_000):
        more = _lines(number, number + 150_000)
        with log.open("ab") as file:
            file.write(more)
        written += more
        _shorten(log)
        head, missing, tail = _parts(log.read_bytes())
        assert len(head) + missing + len(tail) == len(written)
        assert written.startswith(head)
        assert written.endswith(tail)


def test_lines_without_an_end(tmp_path: Path) -> None:
    """Then it is cut anywhere; the mark still stands on a line of its own."""
    log = tmp_path / "output.log"
    log.write_bytes(b"x" * 6_000_000)
    for _ in range(2):
        _shorten(log)
        content = log.read_bytes()
        [found] = MARK.finditer(content)
        assert content[found.start() - 1 : found.start()] == b"\n"
        assert content.count(b"x") - found[0].count(b"x") + int(found[1]) == 6_000_000


def test_a_line_of_an_agent_is_no_mark(tmp_path: Path) -> None:
    """It stands at another byte than it says."""
    log = tmp_path / "output.log"
    forged = b"ralph-wrap: 7 bytes of output are missing here, after the first 600000: max_output\n"
    content = _lines(0, 40_000) + forged + _lines(40_000, 300_000)
    log.write_bytes(content)
    _shorten(log)
    shortened = log.read_bytes()
    found = [*MARK.finditer(shortened)][-1]
    assert found.start() > 1_000_000
    assert found.start() + int(found[1]) + len(shortened) - found.end() == len(content)


def test_times_and_mode_stay(tmp_path: Path) -> None:
    """``clean`` finds out from the times when a session ended."""
    log = tmp_path / "output.log"
    log.write_bytes(_lines(0, 300_000))
    log.chmod(0o640)
    os.utime(log, (1e9, 1e9))
    _shorten(log)
    assert (log.stat().st_mtime, log.stat().st_mode & 0o777) == (1e9, 0o640)


def test_another_file_in_its_place_stays(tmp_path: Path) -> None:
    """The session has no right to it."""
    log = tmp_path / "output.log"
    log.write_bytes(_lines(0, 300_000))
    descriptor = os.open(log, os.O_RDONLY)
    log.unlink()
    log.write_bytes(b"of a user\n")
    with pytest.raises(OSError, match="replaced"):
        shorten(descriptor, log, LIMIT)
    os.close(descriptor)
    assert (log.read_bytes(), files.temporaries(log)) == (b"of a user\n", [])


@needs_mounts
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """The log stays as it is, grows on, and is shortened when there is room again."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=12m", "none") as small:
        log, filler = small / "output.log", small / "filler"
        troubles: list[str] = []
        relay = OutputRelay(log, (1, 2), lambda _: b"", troubles.append, LIMIT)
        filler.write_bytes(b"f" * 6_500_000)  # 6 MB are left: for the log, and not for its copy

        def write(content: bytes) -> None:
            for start in range(0, len(content), 1 << 15):
                os.write(relay.writing_ends[0], content[start : start + (1 << 15)])
                relay.drain()

        content = _lines(0, 220_000)
        write(content)
        assert (log.read_bytes(), files.temporaries(log)) == (content, [])
        assert troubles == ["long log"]
        filler.unlink()
        write(_lines(220_000, 260_000))
        relay.close()
        assert troubles == ["long log", "shorter log"]
        head, missing, tail = _parts(log.read_bytes())
        assert len(head) + missing + len(tail) == 260_000 * 20
        assert _lines(0, 260_000).endswith(tail)


_SHORTENING = """
import os, signal, sys
from pathlib import Path
from ralph_wrap.system import files, output_log
path, steps = Path(sys.argv[1]), int(sys.argv[2])
write_all = files.write_all

def step(event, _arguments):
    global steps
    if event in {"open", "write", "os.chmod", "os.chown", "os.utime", "os.rename"}:
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def write_in_halves(descriptor, content):
    for half in (content[: len(content) // 2], content[len(content) // 2 :]):
        step("write", ())
        write_all(descriptor, half)

files.write_all = write_in_halves
log = os.open(path, os.O_RDONLY)
sys.addaudithook(step)
output_log.shorten(log, path, 4_000_000)
steps = sys.maxsize
"""


def test_a_kill_at_each_step_leaves_a_whole_log(tmp_path: Path) -> None:
    """The old one until the new one takes its place; only a temporary file can be left."""
    log = tmp_path / "output.log"
    log.write_bytes(_lines(0, 300_000))
    before, killed = log.read_bytes(), 0
    while subprocess.run((sys.executable, "-c", _SHORTENING, log, str(killed)), check=False).returncode:
        assert log.read_bytes() == before
        killed += 1
    assert killed > 10
    head, missing, tail = _parts(log.read_bytes())
    assert len(head) + missing + len(tail) == len(before)
    assert (before.startswith(head), before.endswith(tail)) == (True, True)


# Whoever reads it meanwhile


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_reader_goes_on_in_the_shorter_log(tmp_path: Path, *, is_behind: bool) -> None:
    """It gets each byte once, also what was written after its last look and before the replacement."""
    log, content = tmp_path / "output.log", _lines(0, 300_000)
    log.write_bytes(content)
    read = b""
    with GrowingFile(log) as file:
        while not (is_behind and len(read) > 2_000_000) and (piece := file.read()):
            read += piece
        with log.open("ab") as more:
            more.write(_lines(300_000, 300_010) + b"half")
        _shorten(log)
        with log.open("ab") as more:
            more.write(b" a line\n")
        while piece := file.read():
            read += piece
    assert read == content + _lines(300_000, 300_010) + b"half a line\n"


def test_a_reader_that_is_far_behind_sees_the_mark(tmp_path: Path) -> None:
    """Two replacements since its last look: what it did not get is missing in the log, too."""
    log, first = tmp_path / "output.log", _lines(0, 100_000) + b"half"
    log.write_bytes(first)
    read = b""
    with GrowingFile(log) as file:
        while piece := file.read():
            read += piece
        log.rename(tmp_path / "old")
        log.write_bytes(first + b"\n" + _lines(100_000, 900_000))
        for _ in range(2):
            _shorten(log)
        while piece := file.read():
            read += piece
    assert read.startswith(first + b"\nralph-wrap: ")
    _, missing, tail = _parts(log.read_bytes())
    assert read.endswith(b"max_output\n" + tail)
    assert missing > 0


def test_the_last_lines_are_the_same(tmp_path: Path) -> None:
    """The web page shows them."""
    log = tmp_path / "output.log"
    log.write_bytes(_lines(0, 300_000))
    before = end_of(log, 1 << 16)
    _shorten(log)
    assert end_of(log, 1 << 16) == before == _lines(300_000 - len(before) // 20, 300_000)


def test_a_reader_goes_on_in_a_log_that_was_written_anew(tmp_path: Path) -> None:
    """A user has deleted it, and the session writes it again with all that it held."""
    log = tmp_path / "output.log"
    log.write_bytes(b"one\n")
    with GrowingFile(log) as file:
        assert file.read() == b"one\n"
        log.unlink()
        assert file.read() == b""
        log.write_bytes(b"one\ntwo\n")
        assert file.read() == b"two\n"
