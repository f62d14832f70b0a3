"""The messages to a session: whole or not there, in order, and whatever an agent does to them."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.state import told
from ralph_wrap.state.told import Inbox

if TYPE_CHECKING:
    from pathlib import Path


def _texts(directory: Path) -> list[str]:
    return [message.text for message in told.waiting(directory)]


def test_messages_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the clock was set back in between."""
    for text in ("one", "two"):
        told.tell(tmp_path, text, now=False)
    monkeypatch.setattr("ralph_wrap.state.told.time.time_ns", lambda: 1)
    told.tell(tmp_path, "three", now=True)
    assert _texts(tmp_path) == ["one", "two", "three"]


def test_many_at_once_are_all_there(tmp_path: Path) -> None:
    """Whoever tells one after another is heard in that order, beside others."""

    def tell(who: int) -> None:
        for number in range(20):
            told.tell(tmp_path, f"{who} {number}", now=False)

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(tell, range(4))]
    found = [text.split() for text in _texts(tmp_path)]
    for who in range(4):
        assert [int(number) for name, number in found if name == str(who)] == [*range(20)]


@pytest.mark.parametrize("text", ["", " \n", "x" * (told.LONGEST + 1), "ä" * (told.LONGEST // 2 + 1)])
def test_a_message_has_a_size(tmp_path: Path, text: str) -> None:
    """One that is empty or too long is an error in plain words, and leaves nothing."""
    with pytest.raises(UsageError, match=r"is empty|bytes, and may have 16,384"):
        told.tell(tmp_path, text, now=False)
    assert not (tmp_path / "messages").exists()


def test_all_that_wait_have_a_size(tmp_path: Path) -> None:
    """A prompt has to hold them; after an iteration has read them there is room."""
    for _ in range(4):
        told.tell(tmp_path, "x" * told.LONGEST, now=False)
    with pytest.raises(RalphError, match="4 messages wait already"):
        told.tell(tmp_path, "x", now=False)
    inbox = Inbox(tmp_path)
    assert inbox.take(sys.maxsize).count(b"x") == 4 * told.LONGEST
    inbox.note_started(1)
    inbox.note_ended(1, well=True)
    told.tell(tmp_path, "x", now=False)
    assert _texts(tmp_path) == ["x"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "text": "x"}',
        '{"version": 1}',
        '{"version": 1, "text": "\\ud800"}',
        "dir",
    ],
)
def test_what_is_no_message_is_left_alone(tmp_path: Path, content: str) -> None:
    """An agent can write there: the others are read, and no promise waits for it."""
    told.tell(tmp_path, "mine", now=False)
    path = tmp_path / "messages" / f"{7:020}-deadbeef-now"
    path.mkdir() if content == "dir" else path.write_text(content)
    inbox = Inbox(tmp_path)
    assert inbox.take(sys.maxsize) == b"mine\n\n"
    assert (inbox.has_news(), inbox.is_urgent()) == (False, False)
    inbox.note_started(1)
    inbox.note_ended(1, well=True)
    assert [*(tmp_path / "messages").iterdir()] == [path]


def test_no_symlink_is_followed(tmp_path: Path) -> None:
    """Neither by who tells nor by the session."""
    elsewhere, session = tmp_path / "elsewhere", tmp_path / "session"
    (elsewhere / "messages").mkdir(parents=True)
    session.mkdir()
    (session / "messages").symlink_to(elsewhere / "messages")
    with pytest.raises(OSError, match="a symlink is not followed"):
        told.tell(session, "x", now=False)
    told.tell(elsewhere, "x", now=False)
    assert told.waiting(session) == []
    assert told.count_unread(session) == 0


def test_a_number_without_a_successor_hides_no_message(tmp_path: Path) -> None:
    """An agent has written the highest one."""
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / f"{'9' * 20}-00000000").write_text(json.dumps({"version": 1, "text": "old"}))
    told.tell(tmp_path, "new", now=False)
    assert _texts(tmp_path) == ["old", "new"]


def test_a_message_that_goes_meanwhile_stops_nothing(tmp_path: Path) -> None:
    """A user has deleted the directory: the agent has the message all the same."""
    told.tell(tmp_path, "x", now=False)
    inbox = Inbox(tmp_path)
    assert inbox.take(sys.maxsize) == b"x\n\n"
    for path in (tmp_path / "messages").iterdir():
        path.unlink()
    inbox.note_started(1)
    inbox.note_ended(1, well=True)
    assert inbox.take(sys.maxsize) == b""


def test_messages_of_unrelated_sessions_stay(tmp_path: Path) -> None:
    """An agent id may come again; only sessions that went on from one another give their messages."""
    names = [
        "20260101T000000Z-aaaa",
        "20260102T000000Z-aaaa",
        "20260103T000000Z-aaaa",
        "20260104T000000Z-bbbb",
    ]
    for name in names:
        (tmp_path / name).mkdir()
        told.tell(tmp_path / name, name, now=False)
    own = tmp_path / "20260105T000000Z-aaaa"
    own.mkdir()
    told.tell(own, "mine", now=False)
    assert told.take_over(own, [tmp_path], own.name, names[1]) == 2
    assert _texts(own) == [names[1], names[2], "mine"]
    assert _texts(tmp_path / names[0]) == [names[0]]
    assert _texts(tmp_path / names[3]) == [names[3]]
