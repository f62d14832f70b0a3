"""``ralph-wrap ps --watch``: in place on a terminal, elsewhere when something has changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Self

import pytest

from ralph_wrap.state.claim import SessionClaim, claim_id
from ralph_wrap.state.registry import Registry
from ralph_wrap.system.liveness import myself
from tests.support.sessions import PROGRAM
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import CAP, eventually, never

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

NONE = "No session is running. To see finished ones: ralph-wrap ps --all\n"
CLEAR = b"\x1b[H\x1b[2J"


class Watched:
    """``ps --watch`` that writes to a file; leaving the context kills it."""

    def __init__(self, project: Path, output: Path, *arguments: str) -> None:
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                (PROGRAM, "ps", "--watch", *arguments),
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.PIPE,
            )

    def wait_for(self, words: str) -> None:
        """Wait until something was written."""
        eventually(lambda: words in self.output.read_text(), f"{words!r} in {self.output}")

    def finish(self, number: int) -> tuple[int, bytes]:
        """End it by a signal, and return its status and what it had to say."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=CAP)
        return self.process.returncode, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def home(repo: Repo) -> Registry:
    """Return the registry of the repository."""
    registry = Registry(repo.path / ".ralph" / "run")
    registry.prepare()
    return registry


def _claim(home: Registry) -> SessionClaim:
    return claim_id(
        home, myself(), lambda _="": set(), time.time(), lambda record: record._replace(agent="claude")
    )


@pytest.fixture
def claim(home: Registry) -> Iterator[SessionClaim]:
    """Return a session that lives."""
    claim = _claim(home)
    yield claim
    claim.release()


def test_a_terminal_is_drawn_anew(repo: Repo, claim: SessionClaim) -> None:
    """In place, whether something has changed or not; Ctrl-C ends it with 130 and without a word."""
    with Terminal(PROGRAM, "ps", "--watch", cwd=repo.path) as terminal:
        eventually(lambda: len(_tables(terminal)) >= 2, "a second table")
        tables = _tables(terminal)
        terminal.type(CTRL_C)  # where it is shown, and the terminal loses what was not read yet
        assert terminal.finish() == 130
        assert terminal.screen.decode().rpartition("^C")[2].strip() == ""
    assert all(table.startswith("TITLE ") and claim.record.id in table for table in tables)


def _tables(terminal: Terminal) -> list[str]:
    """Return what was drawn, each time from an empty screen on, without a table that is not whole yet."""
    before, *drawn = terminal.read().decode().split(CLEAR.decode())
    assert before == ""
    return [table for table in drawn if table.count("\r\n") >= 2]


def test_elsewhere_a_table_is_a_change(repo: Repo, home: Registry, tmp_path: Path) -> None:
    """The first one, and one for each change; growing older is none, nor is the use of a processor."""
    with Watched(repo.path, tmp_path / "out") as watched:
        watched.wait_for(NONE)
        claim = _claim(home)
        watched.wait_for(claim.record.id)
        before = watched.output.read_text()
        never(lambda: watched.output.read_text() != before, "another table", windows=6)
        claim.update(iteration=7)
        watched.wait_for("  7  ")
        assert watched.output.read_text().count("STATE") == 2
        claim.release()  # in two steps, and each of them is a change: it is finished, then its record leaves
        eventually(lambda: watched.output.read_text().endswith(NONE), "the end of the table")
        assert watched.finish(signal.SIGINT) == (130, b"")
    assert b"\x1b" not in watched.output.read_bytes()


def test_a_program_gets_an_envelope_for_each_change(repo: Repo, home: Registry, tmp_path: Path) -> None:
    """One a line."""
    with Watched(repo.path, tmp_path / "out", "--json") as watched:
        watched.wait_for("\n")
        claim = _claim(home)
        watched.wait_for(claim.record.id)
        claim.release()
        assert watched.finish(signal.SIGINT) == (130, b"")
    envelopes = [json.loads(line) for line in watched.output.read_text().splitlines()]
    ids = [[entry["id"] for entry in envelope["data"]] for envelope in envelopes]
    assert ids[:2] == [[], [claim.record.id]]


def test_a_program_on_a_terminal_gets_no_more_than_that(repo: Repo, home: Registry) -> None:
    """One envelope for each change there, too, and nothing that clears a screen."""
    with Terminal(PROGRAM, "ps", "--watch", "--json", cwd=repo.path) as terminal:
        eventually(lambda: terminal.read().count(b"\n") == 1, "an envelope")
        never(lambda: terminal.read().count(b"\n") > 1, "another one without a change", windows=6)
        claim = _claim(home)
        eventually(lambda: terminal.read().count(b"\n") == 2, "another one")
        claim.release()
        eventually(lambda: terminal.read().count(b"\n") == 3, "the last one")
        envelopes = terminal.screen.splitlines()
    assert [len(json.loads(envelope)["data"]) for envelope in envelopes] == [0, 1, 0]


def test_it_ends_with_its_reader(repo: Repo) -> None:
    """No reader is left for the next table."""
    with subprocess.Popen(
        (PROGRAM, "ps", "--watch"), cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == NONE.encode()
            process.stdout.close()
            process.stdout = None
            _, errors = process.communicate(timeout=CAP)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")


def test_without_watch_it_ends(repo: Repo) -> None:
    """After one answer."""
    done = subprocess.run((PROGRAM, "ps"), cwd=repo.path, capture_output=True, check=True, env=os.environ)
    assert done.stdout == NONE.encode()
