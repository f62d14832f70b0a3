"""Listen to an agent: what is shown, whether it keeps its promise, what it has spent, why it has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.agents.output import (
    Answered,
    Called,
    Failed,
    Known,
    Limited,
    Reader,
    Said,
    Skipped,
    Spent,
    Stray,
    Trouble,
)
from ralph_wrap.agents.output.transcript import Readable
from ralph_wrap.system.output_relay import LineFinder

if TYPE_CHECKING:
    from ralph_wrap.agents.output import Event
    from ralph_wrap.config import Settings

_NO_COST = Spent(0)
_SHOWN_ALONE = (Said, Called, Trouble)  # most of what an agent tells


class Heard(NamedTuple):
    """What was heard in one iteration.

    Attributes:
        promised: the final answer holds the promise.
        failure: the agent has said that it failed; ``None`` if it has not.
        spent: what it has reported; ``None`` if nothing.
        session: by which it can take up its session again; empty if it has not told.
        shown: what is still to be shown.

    """

    promised: bool
    failure: Limited | Failed | None = None
    spent: Spent | None = None
    session: str = ""
    shown: bytes = b""


class Listener:
    """Hears the standard output of the agent of one session.

    The promise is looked for in the final answer alone, so that neither a tool, nor the prompt, nor what the
    agent thinks can keep it. Whoever prints plain text has no other answer than all of it; so has one who was
    expected to print a format, and has not printed a line of it.

    Arguments:
        settings: the promise, the format of the output, and whether it is shown as it comes.

    """

    def __init__(self, settings: Settings) -> None:
        output = settings.manner.output
        self._reader = None if output == "text" else Reader(output)
        self._readable = None if settings.raw else Readable()
        self._plain = LineFinder(settings.until)
        self._until = settings.until
        self._before = _NO_COST
        self._overall = "", 0
        self._begin()

    @property
    def spent(self) -> Spent | None:
        """What the agent has reported so far in the whole session; ``None`` if it reports nothing."""
        if self._spent is None:
            return None if self._before is _NO_COST else self._before
        return _sum(self._before, self._spent)

    @property
    def current(self) -> Spent | None:
        """The same in this iteration alone."""
        return self._spent

    @property
    def promised(self) -> bool:
        """Whether a final answer was heard that holds the promise; plain text has none before its end."""
        return self._promised

    @property
    def has_answered(self) -> bool:
        """Whether the final answer was heard, or why there is none, and nothing was spent since."""
        return self._answered

    def hear(self, piece: bytes) -> bytes:
        """Take the next piece, and return what is shown in its place."""
        if self._reader is None:
            self._plain.feed(piece)
            return piece
        return self._take(self._reader.feed(piece), piece)

    def finish(self) -> Heard:
        """Tell what was heard since the last call; the last line counts even without its newline."""
        shown = b""
        if self._reader is not None:
            shown = self._take(self._reader.finish(), b"")
            if self._readable is not None:
                shown += self._readable.finish()
        plain = self._plain.finish()
        promised = self._promised or (plain and not self._told)
        heard = Heard(promised, self._failure, self._spent, self._session, shown)
        if self._spent is not None:
            self._before = _sum(self._before, self._spent)
            self._overall = self._session, self._counted
        self._begin()
        return heard

    def _begin(self) -> None:
        self._told = False
        self._promised = False
        self._answered = False
        self._failure: Limited | Failed | None = None
        self._spent: Spent | None = None
        self._session = ""
        self._counted = 0

    def _take(self, events: list[Event], piece: bytes) -> bytes:
        shown = []
        for event in events:
            self._note(event)
            if self._readable is not None:
                shown.append(self._readable.show(event))
        return piece if self._readable is None else b"".join(shown)

    def _note(self, event: Event) -> None:
        if isinstance(event, _SHOWN_ALONE):
            self._told = True
            return
        if isinstance(event, Stray):
            self._plain.feed(event.line + b"\n")
            return
        self._told = self._told or not isinstance(event, Skipped)
        if isinstance(event, Spent):
            self._spent = self._of_iteration(event) if event.overall else event
            self._answered = False
        elif isinstance(event, Answered):
            self._answered, self._promised, self._failure = True, self._is_promise(event.text), None
        elif isinstance(event, Limited | Failed):
            self._answered, self._promised, self._failure = True, False, event
        elif isinstance(event, Known):
            self._session = event.session

    def _of_iteration(self, spent: Spent) -> Spent:
        """Return what was spent of its own session's tokens since the iteration began."""
        self._counted = spent.tokens
        session, before = self._overall
        if session != self._session or before > spent.tokens:  # another one, or it has begun to count anew
            before = 0
        return spent._replace(tokens=spent.tokens - before, overall=False)

    def _is_promise(self, answer: str) -> bool:
        finder = LineFinder(self._until)
        finder.feed(answer.encode("utf-8", "surrogatepass"))
        return finder.finish()


def _sum(one: Spent, other: Spent) -> Spent:
    costs = [spent.cost for spent in (one, other) if spent.cost is not None]
    return Spent(one.tokens + other.tokens, sum(costs) if costs else None, one.turns + other.turns)
