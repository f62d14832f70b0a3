"""What an agent's answer says about the loop: the work is done, or a person is needed.

Both texts are looked for by the rules of :mod:`ralph_wrap.loop.promise`. A question comes with the
second one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ralph_wrap.loop.promise import Promise, PromiseFinder
from ralph_wrap.system.text import readable

_REMEMBERED = 1 << 16  # bytes of the answer in which a question is looked for
_LONGEST = 2000  # characters of a question
_MARKS = " \t*_~`#->"
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")


class Answer(NamedTuple):
    """What was found in an answer.

    Attributes:
        promise: says that the work is done.
        blocked: says that a person is needed; then the promise does not count.
        question: what the agent asks then; empty if it asks nothing.

    """

    promise: Promise
    blocked: bool
    question: str = ""


NO_ANSWER = Answer(Promise(kept=False, seen=False), blocked=False)
"""The answer of an agent that has not answered."""


class AnswerReader:
    """Reads an answer that comes in pieces, in constant memory.

    Arguments:
        until: the text of the promise; an empty one is never found.
        blocked: the text with which an agent asks for a person; an empty one is never found.
        prompt: what the agent was given; a line of the answer that repeats it does not count.

    """

    def __init__(self, until: str, blocked: str, prompt: bytes = b"") -> None:
        self._promise = PromiseFinder(until, prompt)
        self._blocked = PromiseFinder(blocked, prompt)
        self._mark = blocked.strip()
        self._end = bytearray()

    def expect_echo(self, prompt: bytes) -> None:
        """Name the prompt of the next answer."""
        self._promise.expect_echo(prompt)
        self._blocked.expect_echo(prompt)

    def feed(self, piece: bytes) -> None:
        """Read the next piece."""
        self._promise.feed(piece)
        if self._mark:
            self._blocked.feed(piece)
            self._end += piece
            if len(self._end) > 2 * _REMEMBERED:
                del self._end[:-_REMEMBERED]

    def finish(self) -> Answer:
        """Return what was found, then start again."""
        promise, is_blocked = self._promise.finish(), self._blocked.finish().kept
        text, self._end = bytes(self._end), bytearray()
        if not is_blocked:
            return Answer(promise, blocked=False)
        asked = question(text.decode("utf-8", "replace"), self._mark)
        return Answer(promise._replace(kept=False, seen=False), blocked=True, question=asked)


def question(answer: str, mark: str) -> str:
    """Return what an agent asks: the text after the last mark, or else the last paragraph before it."""
    before, found, after = "\n".join(map(readable, answer.split("\n"))).rpartition(mark)
    if not found:
        return ""
    beside, _, following = after.partition("\n")
    asked = (after if beside.strip(f"{_MARKS}.!") else following).strip()
    if not asked:
        asked = _PARAGRAPHS.split(before.rstrip(f"{_MARKS}\n"))[-1].strip()
    return asked if len(asked) <= _LONGEST else f"{asked[: _LONGEST - 1]}…"
