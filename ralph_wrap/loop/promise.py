"""Find the promise in the answer of an agent.

The promise counts if it is a line of its own, or the last sentence of the last line. Markdown marks around
it, punctuation after it, and colours change nothing. As a part of a sentence it never counts: "I cannot say
DONE yet". Neither does it behind ``>``, in a quotation, or behind ``+``, in a difference of files, or where
an agent of plain text shows the prompt.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANK = " \t\r\n\f\v\u00a0"
_EMPHASIS = "*_~`"
_OPENING = _BLANK + _EMPHASIS + "#-"
_MARKS = (_OPENING + ">+").encode("ascii", "ignore")
_SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")  # ECMA-48: colours, and whatever else has this form
_QUOTED = re.compile(r"[\s*_~`#-]*[>+]")
_CLOSING = _BLANK + _EMPHASIS + ".!\u2026\u3002\uff01"
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)[.!?\u2026\u3002\uff01\uff1f]\Z")
_QUOTES = _EMPHASIS + "\"')]\u00bb\u201d\u2019"
_LONGEST = 4096  # bytes that are kept of a line before its end, beside the promise


class Promise(NamedTuple):
    """The result of a search.

    Attributes:
        kept: the answer keeps the promise.
        seen: the answer contains its text, perhaps at a position that does not count.

    """

    kept: bool
    seen: bool


class PromiseFinder:
    """Looks for the promise in text that comes in pieces, in constant memory.

    Arguments:
        until: the text of the promise; white space around it is ignored. An empty one is never found.
        prompt: what the agent was given; a line of the answer that repeats it does not count.

    """

    def __init__(self, until: str, prompt: bytes = b"") -> None:
        self._until = until.strip()
        self._wanted = self._until.encode("utf-8", "surrogateescape")
        self._begun = self._last = b""
        self._kept = self._seen = False
        self.expect_echo(prompt)

    def expect_echo(self, prompt: bytes) -> None:
        """Name the prompt of the next answer.

        A promise that is a line of its own in the prompt is the same line in an answer. There the line before
        it tells the two apart.
        """
        self._repeated: set[bytes] = set()  # lines with more than the promise
        self._before: set[bytes] = set()  # lines right before a promise alone
        previous = b""
        for line in prompt.split(b"\n") if self._wanted and self._wanted in prompt else []:
            if self._wanted in line:
                found, bare = (
                    (self._before, previous) if self._is_line(line) else (self._repeated, _bare(line))
                )
                found.update({bare} - {b""})
            previous = _bare(line) or previous

    def feed(self, piece: bytes) -> None:
        """Search the next piece."""
        if not self._wanted or self._kept:
            return
        text = self._begun + piece
        ended, newline, begun = text.rpartition(b"\n")
        ended = _SEQUENCE.sub(b"", ended)
        self._seen = self._seen or self._wanted in text or self._wanted in ended
        if self._wanted in ended:
            self._kept = self._has_promise(ended.split(b"\n"))
        if newline:
            self._remember(ended)
        self._begun = self._shortened(begun)

    def finish(self) -> Promise:
        """Return what was found, also in a last line without a newline; then start again."""
        last = _SEQUENCE.sub(b"", self._begun)
        self._seen = self._seen or (bool(self._wanted) and self._wanted in last)
        if self._seen and not self._kept:
            self._kept = self._has_promise([last])
            self._remember(last)
            self._kept = self._kept or self._ends(self._last)
        found = Promise(self._kept, self._seen)
        self._begun = self._last = b""
        self._kept = self._seen = False
        return found

    def _has_promise(self, lines: list[bytes]) -> bool:
        """Return whether one of some lines, which follow the last one, is the promise alone."""
        previous = _bare(self._last)
        for line in lines:
            if self._wanted in line and self._is_line(line) and previous not in self._before:
                return True
            previous = _bare(line) or previous
        return False

    def _remember(self, lines: bytes) -> None:
        """Keep the last line that has more than white space and Markdown marks."""
        words = lines.rstrip(_MARKS)
        if words:
            begin = words.rfind(b"\n") + 1
            end = lines.find(b"\n", len(words))
            self._last = self._shortened(lines[begin : end if end >= 0 else None])

    def _shortened(self, line: bytes) -> bytes:
        """Shorten a line to the bytes that decide."""
        size = len(self._wanted) + _LONGEST
        if len(line) <= size:
            return line
        line = line.lstrip()
        words = line.rstrip()
        blank = b" " if len(words) < len(line) else b""
        # The letter stands for what was cut off: the promise is no line of its own here.
        return (b"x" + words[-size:] if len(words) > size else words) + blank

    def _is_line(self, line: bytes) -> bool:
        parts = self._parts(line)
        return parts is not None and not parts[0].strip(_OPENING)

    def _ends(self, line: bytes) -> bool:
        parts = self._parts(line)
        if parts is None or _QUOTED.match(parts[0]) or _bare(line) in self._repeated:
            return False
        before = parts[0].rstrip(_BLANK + _EMPHASIS)
        if self._until[0].isalnum() and not any(letter in _BLANK for letter in parts[0][len(before) :]):
            return False  # "file.DONE"
        return _SENTENCE_END.search(before.rstrip(_QUOTES)) is not None

    def _parts(self, line: bytes) -> tuple[str, str] | None:
        """Return the text around the last promise of a line; ``None`` if more than marks comes after it."""
        if self._wanted not in line or not self._wanted:
            return None
        before, found, after = line.decode("utf-8", "surrogateescape").rpartition(self._until)
        return (before, after) if found and not after.strip(_CLOSING) else None


def _bare(line: bytes) -> bytes:
    """Return a line without the marks and the white space around its words."""
    return line.strip(_MARKS)
