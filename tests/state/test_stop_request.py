"""The request to end a session, and damaged request files."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from ralph_wrap.state.stop_request import NoRequestError, StopMode, StopRequests, ask, is_urgent, read
from ralph_wrap.system.log import Log
from ralph_wrap.system.polling import POLL_INTERVAL
from tests.support.sessions import read_events
from tests.support.wait import eventually

GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"now\n",
    "half": b'{"version": 1, "how": "no',
    "not UTF-8": b'{"version": 1, "how": "\xff"}',
    "a list": b"[]",
    "a text": b'"now"',
    "null": b"null",
    "deep": b"[" * 3000,
    "huge": json.dumps({"version": 1, "how": "now", "padding": "x" * 100_000}).encode(),
    "newer": b'{"version": 2, "how": "now"}',
    "no version": b'{"how": "now"}',
    "no how": b'{"version": 1}',
    "another how": b'{"version": 1, "how": "later"}',
    "a list as how": b'{"version": 1, "how": ["now"]}',
}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Return a session's own directory."""
    directory = tmp_path / "sessions" / "one"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture(autouse=True)
def _log(session: Path) -> Iterator[None]:
    """Use its log, which prints nowhere."""
    log = Log(os.open(os.devnull, os.O_WRONLY), terminal=False, colour=False)
    log.attach(session / "events.jsonl")
    with log.in_use():
        yield


def _logged(session: Path) -> list[str]:
    return [event["event"] for event in read_events(session)]


@pytest.mark.parametrize(("first", "second"), list(product(StopMode, StopMode)))
def test_the_strongest_request_stands(session: Path, first: StopMode, second: StopMode) -> None:
    """Whatever comes after it, and both requests are answered."""
    strongest = max(first, second, key=lambda how: how.strength)
    assert ask(session, first) is first
    assert ask(session, second) is strongest
    assert read(session) is strongest
    assert is_urgent(session) == (strongest is StopMode.NOW)


def test_a_stronger_request_in_the_same_moment_stands(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the weaker one has looked, and before that one is written."""
    stronger = threading.Thread(target=ask, args=(session, StopMode.NOW))
    replace = Path.replace

    def replaced(temporary: Path, path: Path) -> Path:
        if stronger.ident is None:
            stronger.start()
            stronger.join(1)
        return replace(temporary, path)

    monkeypatch.setattr(Path, "replace", replaced)
    ask(session, StopMode.AFTER_ITERATION)
    stronger.join()
    assert read(session) is StopMode.NOW


def test_strength() -> None:
    """The order in which one replaces another."""
    assert sorted(StopMode, key=lambda how: how.strength) == [
        StopMode.AFTER_ITERATION,
        StopMode.SOON,
        StopMode.NOW,
    ]


def test_there_is_no_request(session: Path) -> None:
    """Then there is nothing to read or to log."""
    assert StopRequests(session).look() is None
    assert (read(session), is_urgent(session), _logged(session)) == (None, False, [])


@pytest.mark.parametrize("how", StopMode)
def test_a_request_is_heard_once(session: Path, how: StopMode) -> None:
    """Whether it came before the session looked or after."""
    requests = StopRequests(session)
    requests.look()
    ask(session, how)
    assert [requests.look_now(), requests.look(), requests.look_now()] == [how] * 3
    ((event, printed),) = [(entry["event"], entry["how"]) for entry in read_events(session)]
    assert (event, printed) == ("stop.requested", how.value)
    assert StopRequests(session).look() is how


def test_a_stronger_request_is_heard(session: Path) -> None:
    """A weaker one, from whichever command, is not."""
    requests = StopRequests(session)
    for how, then in ((StopMode.SOON, StopMode.SOON), (StopMode.NOW, StopMode.NOW)):
        ask(session, how)
        assert requests.look_now() is then
    (session / "stop").unlink()
    ask(session, StopMode.AFTER_ITERATION)
    assert requests.look_now() is StopMode.NOW
    assert _logged(session) == ["stop.requested", "stop.requested"]


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_reported_once(session: Path, content: bytes) -> None:
    """It stops nothing and crashes nothing, and a request in its place is heard."""
    path = session / "stop"
    requests = StopRequests(session)
    path.write_bytes(content)
    assert [requests.look_now(), requests.look_now()] == [None, None]
    assert not is_urgent(session)
    with pytest.raises(NoRequestError):
        read(session)
    assert _logged(session) == ["stop.not_understood"]
    assert path.read_bytes() == content
    ask(session, StopMode.SOON)
    assert requests.look_now() is StopMode.SOON


def test_keys_of_later_versions_do_not_matter(session: Path) -> None:
    """Negative control: the rest is a request."""
    (session / "stop").write_text('{"version": 1, "how": "now", "invented_later": [1]}')
    assert read(session) is StopMode.NOW


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "dangling"])
def test_a_request_that_is_no_file_is_reported_and_not_followed(
    session: Path, tmp_path: Path, kind: str
) -> None:
    """Nothing hangs; a good request behind a link is none, and is not overwritten by one."""
    path, good = session / "stop", tmp_path / "good"
    good.write_text('{"version": 1, "how": "now"}')
    before = good.read_bytes()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(good if kind == "link" else tmp_path / "absent")
    assert StopRequests(session).look() is None
    assert _logged(session) == ["stop.not_understood"]
    if kind == "directory":
        with pytest.raises(OSError, match="directory"):
            ask(session, StopMode.SOON)
        assert list(session.glob(".stop.*")) == []
    else:
        assert ask(session, StopMode.SOON) is read(session) is StopMode.SOON
    assert (good.read_bytes(), (tmp_path / "absent").exists()) == (before, False)


@pytest.mark.parametrize("which", ["the session's directory", "the one of all sessions"])
def test_no_request_leaves_the_registry(session: Path, tmp_path: Path, which: str) -> None:
    """A directory that an agent has replaced by a symlink is not written to."""
    outside = tmp_path / "outside"
    (outside / "one").mkdir(parents=True)
    directory = session if which.startswith("the session") else session.parent
    directory.rename(tmp_path / "moved")
    directory.symlink_to(outside / "one" if directory == session else outside)
    with pytest.raises(OSError, match="symlink"):
        ask(session, StopMode.NOW)
    assert [path for path in outside.rglob("*") if path.is_file()] == []


def test_a_request_is_seen_within_the_interval(session: Path) -> None:
    """Also by a session that never ends an iteration, and not by reading the file each time."""
    requests = StopRequests(session)
    requests.look()
    began = time.monotonic()
    ask(session, StopMode.SOON)
    assert requests.due <= time.monotonic() + POLL_INTERVAL
    eventually(requests.look, "the request")
    assert time.monotonic() - began >= POLL_INTERVAL / 2


def test_a_deleted_directory_is_made_anew(session: Path) -> None:
    """Once, after the deletion had time to end; a directory that comes back by itself is left alone."""
    restored: list[float] = []

    def restore() -> bool:
        restored.append(time.monotonic())
        session.mkdir()
        return True

    requests = StopRequests(session, restore=restore)
    moved = session.with_name("moved")
    session.rename(moved)
    requests.look_now()
    moved.rename(session)
    requests.look_now()
    assert restored == []
    began = time.monotonic()
    session.rename(moved)
    eventually(lambda: requests.look_now() or restored, "the directory")
    assert [moment - began >= 1.0 for moment in restored] == [True]
