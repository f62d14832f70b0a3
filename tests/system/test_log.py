"""Messages: on stderr, for a person or for a program, and in the event log."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.system.log import Commands, Log, get_logger, one_line
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator

log = get_logger()

pytestmark = pytest.mark.timeout(60)  # a log that must not hang fails soon

NASTY = "a\nb\r\x1b[2J\x07\x9b\u202e\u2028\udcff\x00\x7f\u00fc"
"""Line ends, terminal controls, direction marks and half characters: a file can be called like this."""

HARMLESS = r"a\nb\r\x1b[2J\x07\x9b\u202e\u2028\udcff\x00\x7f" + "\u00fc"


@contextmanager
def _narrated(
    *, terminal: bool = False, colour: bool = False, as_json: bool | None = None
) -> Iterator[tuple[Log, FileIO]]:
    """Make a log, and a pipe to read what it narrates from, which does not wait."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with FileIO(reading) as reader, FileIO(writing, "w"):
        teller = Log(
            writing, terminal=terminal, colour=colour, as_json=not terminal if as_json is None else as_json
        )
        try:
            with teller.in_use():
                yield teller, reader
        finally:
            teller.close()


def _read(reader: FileIO) -> bytes:
    return reader.read(1 << 16) or b""


def _timeless(line: bytes | str) -> dict[str, Any]:
    """Return an event without its time, which must be a recent one."""
    event: dict[str, Any] = json.loads(line)
    at = datetime.fromisoformat(event.pop("at"))
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    return event


def _tell_everything() -> None:
    log.event("silent.happened", count=1)
    log.event("thing.happened", "a thing happened", path="/x")
    log.warning("thing.doubted", "a thing is odd", "mend it", reason="none")
    log.error("thing.failed", "a thing broke")
    log.block("thing.ended", "it ended", "it ended:\n  well", status=0)


EVENTS: list[dict[str, Any]] = [
    {"level": "info", "event": "silent.happened", "count": 1},
    {"level": "info", "event": "thing.happened", "message": "a thing happened", "path": "/x"},
    {
        "level": "warning",
        "event": "thing.doubted",
        "message": "a thing is odd",
        "hint": "mend it",
        "reason": "none",
    },
    {"level": "error", "event": "thing.failed", "message": "a thing broke"},
    {"level": "info", "event": "thing.ended", "message": "it ended", "status": 0},
]


# Narration


def test_a_program_gets_objects() -> None:
    """One a line, time, level and name first; events without a message are not narrated."""
    with _narrated() as (_, reader):
        _tell_everything()
        lines = _read(reader).decode("ascii").splitlines()
    assert [_timeless(line) for line in lines] == EVENTS[1:]
    assert {tuple(json.loads(line))[:3] for line in lines} == {("at", "level", "event")}


def test_a_terminal_can_get_objects_too() -> None:
    """The user's choice counts, and nothing is drawn between them."""
    with _narrated(terminal=True, as_json=True) as (teller, reader):
        teller.progress("half done")
        _tell_everything()
        lines = _read(reader).splitlines()
        assert not teller.shows_progress
    assert [_timeless(line) for line in lines] == EVENTS[1:]


def test_another_log_beside_prints_in_the_same_way(tmp_path: Path) -> None:
    """It has an event log of its own."""
    for as_json in (True, False):
        with _narrated(as_json=as_json) as (teller, reader):
            with teller.for_other_session(tmp_path / "events.jsonl"):
                log.event("thing.happened", "a thing happened")
            assert _read(reader).startswith(b"{") is as_json


@pytest.mark.parametrize("terminal", [True, False])
def test_a_person_gets_sentences(terminal: bool) -> None:
    """A warning says what it is, a hint stands on its own line, a block as it was written."""
    with _narrated(terminal=terminal, as_json=False) as (_, reader):
        _tell_everything()
        printed = _read(reader).decode()
    assert printed == (
        "ralph-wrap: a thing happened\n"
        "ralph-wrap: warning: a thing is odd\n"
        "ralph-wrap: hint: mend it\n"
        "ralph-wrap: error: a thing broke\n"
        "it ended:\n"
        "  well\n"
    )


def test_each_line_of_a_hint_is_a_hint(tmp_path: Path) -> None:
    """Its commands name the project if they must."""
    with _narrated(as_json=False) as (teller, reader):
        teller.location = "-C x"
        with teller.for_other_session(tmp_path / "events.jsonl"):
            log.warning("thing.doubted", "a thing is odd", Commands.of("ralph-wrap ps", "none"))
        assert _read(reader).decode().splitlines()[1:] == [
            "ralph-wrap: hint: ralph-wrap ps -C x",
            "ralph-wrap: hint: none",
        ]


def test_a_rule_is_for_people() -> None:
    """It separates lines, and is dim where colours are allowed."""
    for colour, words in ((False, "── here ──\n"), (True, "\x1b[2m── here ──\x1b[0m\n")):
        with _narrated(terminal=True, colour=colour) as (teller, reader):
            teller.rule("here")
            assert _read(reader).decode() == words
    with _narrated() as (teller, reader):
        teller.rule("here")
        assert _read(reader) == b""


def test_a_program_may_get_more_events() -> None:
    """To one that waits for something that no person reads; never as a sentence."""
    reading, writing = os.pipe()
    with FileIO(reading) as reader, FileIO(writing, "w"):
        for as_json in (False, True):
            teller = Log(writing, terminal=True, colour=False, also=("silent.happened",), as_json=as_json)
            with teller.in_use():
                log.event("silent.happened", count=1)
                log.event("other.happened", count=1)
        assert [_timeless(line) for line in _read(reader).splitlines()] == EVENTS[:1]


def test_colours_mark_the_labels_only() -> None:
    """Where they are allowed."""
    with _narrated(terminal=True, colour=True) as (_, reader):
        _tell_everything()
        printed = _read(reader).decode()
    assert printed == (
        "ralph-wrap: a thing happened\n"
        "ralph-wrap: \x1b[33mwarning:\x1b[0m a thing is odd\n"
        "ralph-wrap: \x1b[36mhint:\x1b[0m mend it\n"
        "ralph-wrap: \x1b[31merror:\x1b[0m a thing broke\n"
        "it ended:\n"
        "  well\n"
    )


def test_no_control_characters_reach_a_terminal() -> None:
    """The name of a file in a message or a hint does nothing but stand there, on its line."""
    with _narrated(terminal=True) as (_, reader):
        log.warning("name.seen", NASTY, NASTY)
        printed = _read(reader).decode()
    assert printed == f"ralph-wrap: warning: {HARMLESS}\nralph-wrap: hint: {HARMLESS}\n"


def test_objects_are_ascii() -> None:
    """Whatever a program that reads them takes them for, and nothing is lost."""
    with _narrated() as (_, reader):
        log.event("name.seen", NASTY, path=Path(NASTY.replace("\0", "")))
        line = _read(reader)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert _timeless(line) == {
        "level": "info",
        "event": "name.seen",
        "message": NASTY,
        "path": NASTY.replace("\0", ""),
    }


def test_a_block_is_shown_although_it_is_no_text() -> None:
    """Half a character is written as its number."""
    with _narrated(terminal=True) as (_, reader):
        log.block("name.seen", "one line", "one\n\udcff")
        assert _read(reader) == b"one\n\\udcff\n"


@given(st.text(st.characters()))
def test_one_line_is_printable(words: str) -> None:
    """Anything becomes text that can be printed, and printable text stays as it is."""
    shown = one_line(words)
    assert shown.isprintable()
    assert shown == words or not words.isprintable()
    shown.encode()


# The event log


def test_all_events_are_logged(tmp_path: Path) -> None:
    """Also those that are not narrated, and those from before there was a file, in order."""
    path = tmp_path / "events.jsonl"
    with _narrated() as (teller, _):
        log.event("early.happened", "before")
        teller.attach(path, agent_id="a3f2", session_id="x-a3f2")
        _tell_everything()
    early = {"level": "info", "event": "early.happened", "message": "before"}
    identity = {"agent_id": "a3f2", "session_id": "x-a3f2"}
    logged = [_timeless(line) for line in path.read_text().splitlines()]
    assert logged == [early, *({**event, **identity} for event in EVENTS)]


@pytest.mark.parametrize(
    "wrapper", [structlog.make_filtering_bound_logger(logging.WARNING), structlog.stdlib.AsyncBoundLogger]
)
def test_structlog_of_the_calling_program_loses_no_event(tmp_path: Path, wrapper: type[Any]) -> None:
    """A program with the Python API may have configured structlog for its own log."""
    path = tmp_path / "events.jsonl"
    structlog.configure(wrapper_class=wrapper)
    try:
        with _narrated() as (teller, _):
            teller.attach(path)
            log.event("worktree.removed", "removed")
    finally:
        structlog.reset_defaults()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["worktree.removed"]


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    """Nothing that is in it is lost."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "before"}\n')
    with _narrated() as (teller, _):
        teller.attach(path)
        log.event("after.happened")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == [
        "before",
        "after.happened",
    ]


@pytest.mark.parametrize("kind", ["full disk", "directory", "symlink"])
def test_a_log_that_cannot_be_written_stops_no_session(tmp_path: Path, kind: str) -> None:
    """Narration goes on; a symlink is not followed."""
    path = {"full disk": Path("/dev/full"), "directory": tmp_path, "symlink": tmp_path / "link"}[kind]
    if kind == "symlink":
        path.symlink_to(tmp_path / "behind")
    with _narrated() as (teller, reader):
        log.event("early.happened")
        teller.attach(path)
        log.event("thing.happened", "a thing happened")
        assert _timeless(_read(reader))["message"] == "a thing happened"
    assert not (tmp_path / "behind").exists()


# Listeners


def test_a_full_disk_behind_stderr_stops_no_session(tmp_path: Path) -> None:
    """The event log has what could not be narrated."""
    with FileIO("/dev/full", "w") as full:
        teller = Log(full.fileno(), terminal=False, colour=False)
        teller.attach(tmp_path / "events.jsonl")
        with teller.in_use():
            log.event("thing.happened", "a thing happened")
        teller.close()
    assert _timeless((tmp_path / "events.jsonl").read_text())["event"] == "thing.happened"


def test_a_listener_that_went_away_stops_no_session(tmp_path: Path) -> None:
    """As above, for a pipe without a reader."""
    with _narrated() as (teller, reader):
        reader.close()
        teller.attach(tmp_path / "events.jsonl")
        log.event("thing.happened", "a thing happened")
    assert _timeless((tmp_path / "events.jsonl").read_text())["event"] == "thing.happened"


def test_a_closed_stderr_stops_no_session(tmp_path: Path) -> None:
    """As above, for ``2>&-``."""
    teller = Log(1 << 20, terminal=False, colour=False)
    teller.attach(tmp_path / "events.jsonl")
    with teller.in_use():
        log.event("thing.happened", "a thing happened")
    teller.close()
    assert _timeless((tmp_path / "events.jsonl").read_text())["event"] == "thing.happened"


def test_a_listener_that_stands_still_is_not_waited_for_long(tmp_path: Path) -> None:
    """A second for each message: a session with a message has work to save."""
    with _narrated() as (teller, reader):
        teller.attach(tmp_path / "events.jsonl")
        log.event("much.happened", "x" * 200_000)
        begun = time.monotonic()
        log.event("more.happened", "y" * 200_000)
        took = time.monotonic() - begun
        printed = _read(reader)
    assert took < CAP
    assert printed.startswith(b'{"at": ')
    names = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert names == ["much.happened", "more.happened"]


@pytest.mark.parametrize("left", [b'{"event": "bef', b'{"event": "before"}'], ids=["half", "whole"])
def test_a_line_that_another_process_has_not_ended_stays_alone(tmp_path: Path, left: bytes) -> None:
    """A session that a full disk has cut short, and the sweep that goes on with its event log."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(left)
    with _narrated() as (teller, _):
        teller.attach(path)
        log.event("after.happened")
        log.event("again.happened")
    first, *others = path.read_bytes().splitlines()
    assert first == left
    assert [json.loads(line)["event"] for line in others] == ["after.happened", "again.happened"]


def test_a_warning_that_comes_again_is_said_once_and_counted(tmp_path: Path) -> None:
    """The event log has each; another reason, and what is no warning, is said."""
    with _narrated() as (teller, reader):
        teller.attach(tmp_path / "events.jsonl")
        for number in (1, 2, 13):
            log.warning("snapshot.failed", f"no snapshot of iteration {number}: full")
        log.warning("snapshot.failed", "no snapshot of iteration 14: locked")
        log.event("thing.happened", "a thing happened")
        log.event("thing.happened", "a thing happened")
        teller.tell_repeated()
        teller.close()
        printed = [json.loads(line) for line in _read(reader).splitlines()]
    assert [each["message"] for each in printed] == [
        "no snapshot of iteration 1: full",
        "no snapshot of iteration 14: locked",
        *["a thing happened"] * 2,
        "3 times in all: no snapshot of an iteration: full",
    ]
    logged = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert logged.count("snapshot.failed") == 4


def test_a_log_that_never_has_a_file_does_not_grow(tmp_path: Path) -> None:
    """A server runs for months without one; what comes first is kept for a session that begins."""
    teller = Log(os.open(os.devnull, os.O_WRONLY), terminal=False, colour=False)
    with teller.in_use():
        for number in range(3000):
            log.event("server.event", number=number)
    path = tmp_path / "events.jsonl"
    teller.attach(path)
    teller.close()
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert numbers == [*range(1000)]
