"""Find the promise in the answer of an agent.

The promise counts if it is a line of its own, or the last sentence of the last line. Markdown marks around
it, and punctuation after it, change nothing. As a part of a sentence it never counts: "I cannot say DONE
yet".
"""

from __future__ import annotations

from ralph_wrap.system import deferred
from ralph_wrap.system.named_tuple import NamedTuple

_BLANK = " \t\r\n\f\v\u00a0"
_EMPHASIS = "*_~`"
_OPENING = _BLANK + _EMPHASIS + "#>+-"
_OPENING_BYTES = _OPENING.encode("ascii", "ignore")
_CLOSING = _BLANK + _EMPHASIS + ".!\u2026\u3002\uff01"
_SENTENCE_END = deferred.pattern(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)[.!?\u2026\u3002\uff01\uff1f]\Z")
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

    """

    def __init__(self, until: str) -> None:
        self._until = until.strip()
        self._wanted = self._until.encode("utf-8", "surrogateescape")
        self._begun = self._last = b""
        self._kept = self._seen = False

    def feed(self, piece: bytes) -> None:
        """Search the next piece."""
        if not self._wanted or self._kept:
            return
        text = self._begun + piece
        ended, newline, begun = text.rpartition(b"\n")
        if self._wanted in text:
            self._seen = True
            self._kept = any(self._is_line(line) for line in ended.split(b"\n") if self._wanted in line)
        if newline:
            self._remember(ended)
        self._begun = self._shortened(begun)

    def finish(self) -> Promise:
        """Return what was found, also in a last line without a newline; then start again."""
        if self._seen and not self._kept:
            self._remember(self._begun)
            self._kept = self._is_line(self._begun) or self._ends(self._last)
        found = Promise(self._kept, self._seen)
        self._begun = self._last = b""
        self._kept = self._seen = False
        return found

    def _remember(self, lines: bytes) -> None:
        """Keep the last line that has more than white space and Markdown marks."""
        words = lines.rstrip(_OPENING_BYTES)
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
        if parts is None:
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
