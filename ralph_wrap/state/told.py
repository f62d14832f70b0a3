"""What a person tells a session that runs: a directory of messages in the session's directory.

``ralph-wrap tell`` puts one file there for each message, also from another container or from the host. A
rename makes the file whole. Its name begins with a number that is higher than that of every message that is
there, so messages are read in the order in which they were told. The loop begins the next prompt with them.

Once an agent has been started with a message, the file's name ends with the number of the iteration. The file
goes when that iteration has ended well. So a message is lost at no moment: after a kill, its file is there.

An agent can write there too. What is not a message is left alone, and no symlink is followed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.state import ids
from ralph_wrap.state.record import SessionRecord, read_record
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.polling import POLL_INTERVAL
from ralph_wrap.system.text import plain, shortened

log = get_logger()

LONGEST = 16 << 10
"""Bytes that a message may have."""

ALTOGETHER = 64 << 10
"""Bytes that the messages of one prompt may have."""

_NAME = "messages"
_DIGITS = 20
_FILE = re.compile(rf"\d{{{_DIGITS}}}-[0-9a-f]{{8}}(?:-now)?(?:\.\d{{1,9}})?", re.ASCII)
_FORMAT = DocumentFormat(version=1, largest=1 << 17)  # JSON writes one byte of a message as six at most
_LOOKS = 100  # at a directory that changes all the time
_SHOWN = 60  # columns of a message on a screen


class Message(NamedTuple):
    """A message that no iteration has read to its good end.

    Attributes:
        name: of its file.
        text: what the person says; bytes that are no UTF-8 are escaped as in a file name.

    """

    name: str
    text: str

    @property
    def encoded(self) -> bytes:
        """What the prompt begins with."""
        return self.text.encode("utf-8", "surrogateescape")

    @property
    def was_read(self) -> bool:
        """Whether an agent has been started with it, in an iteration that did not end well."""
        return _is_read(self.name)


def tell(directory: Path, text: str, *, now: bool) -> Path:
    """Leave a message for a session, and return its file, which is there until an agent starts with it.

    Arguments:
        directory: the directory of the session.
        now: the running iteration has to end for it.

    Raises:
        UsageError: it is empty or too long.
        RalphError: too much waits already.
        OSError: it cannot be written; nothing is left of it.

    """
    size = require_fitting(text)
    place = directory / _NAME
    for part in (directory.parent, directory, place):
        if part.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", str(part))
    place.mkdir(exist_ok=True)
    there = waiting(directory)
    if size + sum(len(message.encoded) for message in there) > ALTOGETHER:
        raise RalphError(
            f"{len(there)} messages wait already, which together may have {ALTOGETHER:,} bytes",
            "tell it when an iteration has read them: ralph-wrap ps",
        )
    names = _names(directory)
    # The time orders messages of sessions that go on from one another, also if the clock was set back.
    number = min(max([time.time_ns(), *(int(name[:_DIGITS]) + 1 for name in names)]), 10**_DIGITS - 1)
    name = f"{number:0{_DIGITS}}-{os.urandom(4).hex()}{'-now' * now}"
    files.replace(place / name, _FORMAT.encode({"text": text}))
    return place / name


def require_fitting(text: str) -> int:
    """Return how many bytes a message has.

    Raises:
        UsageError: it is empty or too long.

    """
    size = len(text.encode("utf-8", "surrogateescape"))
    if not text.strip():
        raise UsageError("the message is empty", 'ralph-wrap tell ID "Use the new database."')
    if size > LONGEST:
        raise UsageError(
            f"the message has {size:,} bytes, and may have {LONGEST:,}",
            "write it into a file that the agent can read, and tell the name of that file",
        )
    return size


def waiting(directory: Path) -> list[Message]:
    """Return the messages that no iteration has read to its good end, in the order in which they were told.

    Arguments:
        directory: the directory of the session.

    """
    return _read(directory, _names(directory))


def count_unread(directory: Path) -> int:
    """Return how many messages no agent has been started with."""
    return sum(not _is_read(name) for name in _names(directory))


def take_over(directory: Path, homes: Iterable[Path], session: str, resumes: str) -> int:
    """Bring the messages of earlier sessions here that went on from one another; return their number.

    Arguments:
        directory: the directory of the session that goes on.
        homes: directories of sessions, ``sessions`` of each registry.
        session: its id.
        resumes: the session that it goes on from. A later one with the same agent id may have tried to.

    """
    count = 0
    for home in homes:
        first = _first(home, resumes)
        ending = f"-{ids.agent_id_of(session)}"
        for earlier in sorted(path.name for path in home.glob(f"*{ending}")):
            if not first <= earlier < session:
                continue
            for name in _names(home / earlier):
                try:
                    (directory / _NAME).mkdir(exist_ok=True)
                    (home / earlier / _NAME / name).rename(directory / _NAME / name)
                    count += 1
                except OSError as error:
                    log.warning(
                        "message.left",
                        f"a message for session {earlier} stays in {home / earlier / _NAME / name}:"
                        f" {error.strerror}",
                    )
    return count


class Inbox:
    """The messages to a session, as its loop reads them.

    Arguments:
        directory: the directory of the session.

    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._taken: list[Message] = []
        self._known: set[str] = set()  # at the last prompt
        self._due = 0.0
        self._is_urgent = False

    def take(self, room: int) -> bytes:
        """Return the beginning of the next prompt; empty if nobody has told anything.

        Arguments:
            room: bytes that it may have. What does not fit waits for the iteration after that.

        """
        self._taken, self._is_urgent = [], False
        names = _names(self._directory)
        there, part = _read(self._directory, names), b""
        for message in there:
            again = b"\n(An earlier iteration had this message, too, and failed or was interrupted.)"
            more = message.encoded + again * message.was_read + b"\n\n"
            if len(part) + len(more) > min(room, ALTOGETHER + LONGEST):
                log.warning(
                    "message.waits",
                    f"{len(there) - len(self._taken)} messages do not fit into this prompt, and wait",
                    "an agent that takes its prompt as an argument gets 128 KiB at most:"
                    ' set prompt = "stdin" or "file" in [agents.NAME]',
                )
                break
            part += more
            self._taken.append(message)
        self._known = {*names}
        return part

    def note_started(self, number: int) -> None:
        """Note that an agent has been started with what was taken.

        Arguments:
            number: of its iteration.

        """
        for index, message in enumerate(self._taken):
            name = f"{message.name.partition('.')[0]}.{number}"
            try:
                (self._directory / _NAME / message.name).replace(self._directory / _NAME / name)
            except OSError as error:  # deleted, or the disk is gone; the agent has it
                log.event("message.not_noted", file=message.name, reason=str(error))
            self._taken[index] = message._replace(name=name)
            self._known.add(name)
            log.event(
                "message.delivered",
                f"message delivered, in iteration {number}: {shortened(plain(message.text), _SHOWN)}",
                iteration=number,
                text=message.text,
                again=message.was_read,
            )

    def note_ended(self, number: int, *, well: bool) -> None:
        """Note that the iteration has ended; unless it ended well, the next one gets its messages again."""
        taken, self._taken = self._taken, []
        if not taken:
            return
        if not well:
            log.event(
                "message.again",
                f"iteration {number} failed or was interrupted: the next one gets its messages again",
                iteration=number,
                count=len(taken),
            )
            return
        for message in taken:
            try:
                (self._directory / _NAME / message.name).unlink(missing_ok=True)
            except OSError as error:
                log.warning("message.stays", f"a message may come again: {error.strerror}")

    def has_news(self) -> bool:
        """Return whether a message has come since the last prompt."""
        return any(name not in self._known for name in _names(self._directory))

    def is_urgent(self) -> bool:
        """Return whether a message has come that the running iteration has to end for; look now and then."""
        if not self._is_urgent and time.monotonic() >= self._due:
            self._due = time.monotonic() + POLL_INTERVAL
            names = _names(self._directory)
            self._is_urgent = any(_is_now(name) and name not in self._known for name in names)
        return self._is_urgent


def _names(directory: Path) -> list[str]:
    """Return the names of the messages, in the order in which they were told.

    A listing may have a new name and lack an older one, if both come meanwhile. Two equal ones do not.
    """
    before: list[str] | None = None
    found: list[str] = []
    for _ in range(_LOOKS):
        found = _listed(directory)
        if found == before:
            break
        before = found
    return found


def _read(directory: Path, names: Iterable[str]) -> list[Message]:
    found = []
    for name in names:
        try:
            found.append(
                Message(name, _FORMAT.read(directory / _NAME / name, lambda said: _text(said["text"])))
            )
        except FileNotFoundError:
            continue  # the session has read it meanwhile
        except (OSError, ValueError) as error:
            log.warning("message.unreadable", f"{directory / _NAME / name} is no message: {error}")
    return found


def _listed(directory: Path) -> list[str]:
    place = directory / _NAME
    try:
        if not stat.S_ISDIR(place.lstat().st_mode) or directory.is_symlink():
            return []
        return sorted(name for name in os.listdir(place) if _FILE.fullmatch(name))  # noqa: PTH208 -- no objects
    except OSError:  # mostly because nobody has told anything
        return []


def _is_read(name: str) -> bool:
    return "." in name


def _is_now(name: str) -> bool:
    return name.endswith("-now")


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("no text")
    text.encode("utf-8", "surrogateescape")  # raises a ValueError: an agent may have written half a letter
    return text


def _first(home: Path, session: str) -> str:
    """Return the id of the first session that a session goes on from, through all in between."""
    while True:
        record = read_record(home / session / "record.json")
        if not isinstance(record, SessionRecord) or not record.resumes or record.resumes >= session:
            return session
        session = record.resumes
