"""Text of an agent on the terminal of a person: colours pass, and nothing else that a terminal obeys.

OSC 52 writes the clipboard. Other sequences change the title, move the cursor over earlier lines, or answer
on standard input. They become visible text, and so do letters that reverse a line.
"""

from __future__ import annotations

import codecs
import re

_COLOUR = r"\x1b\[[0-9;:]{0,64}m"  # ECMA-48: SGR
_RESET = b"\x1b[0m"
_HIDDEN = re.compile(r"(?:\[|(?<![34]8;5);)0*8[;m]")  # conceal; the 8 of 38;5;8 is a colour
_WORD = re.compile(rf"{_COLOUR}|\r\n|[^\n\t -~]")
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,64})?|\r)\Z")


class ColoursOnly:
    """Lets colours, lines and visible letters through. Everything else becomes visible text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""
        self._coloured = False

    def feed(self, piece: bytes) -> bytes:
        """Return the next piece for the terminal; a sequence that may go on waits for its end."""
        text = self._rest + self._decoder.decode(piece)
        begun = _BEGUN.search(text)
        self._rest = begun[0] if begun else ""
        return self._shown(text[: len(text) - len(self._rest)])

    def finish(self) -> bytes:
        """Return the last piece, and give the terminal its own colours back."""
        last = self._shown(self._rest + self._decoder.decode(b"", final=True))
        self._rest = ""
        return last + (_RESET if self._coloured else b"")

    def _shown(self, text: str) -> bytes:
        return _WORD.sub(self._word, text).encode()

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        if word == "\r\n" or word.isprintable():
            return word
        if len(word) > 1 and not _HIDDEN.search(word):
            self._coloured = True
            return word
        return "\n" if word == "\r" else word.encode("unicode_escape").decode()
