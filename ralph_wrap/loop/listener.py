"""Read the output of an agent: its readable form, the promise, tokens and cost, and failures."""

from __future__ import annotations

from typing import NamedTuple

from ralph_wrap.agents.output import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    Event,
    FinalAnswer,
    OutputReader,
    SkippedLine,
    ToolCall,
    UnparsedLine,
    Usage,
    UsageLimitReached,
)
from ralph_wrap.agents.output.transcript import TranscriptFormatter
from ralph_wrap.config import AgentSettings
from ralph_wrap.loop.answer import NO_ANSWER, Answer, AnswerReader

_NO_COST = Usage(0)
_SHOWN_ALONE = (AgentMessage, ToolCall, AgentWarning)  # the most frequent events
_FAILURES = (UsageLimitReached, AgentFailure)


class IterationOutput(NamedTuple):
    """The result of reading one iteration.

    Attributes:
        answer: whether the final answer keeps the promise, or asks for a person.
        failure: the failure that the agent reported; ``None`` if there is none.
        spent: the tokens and cost that it reported; ``None`` if nothing.
        session: name of the agent's own session; empty if it is unknown.
        shown: readable output that is not printed yet.

    """

    answer: Answer
    failure: UsageLimitReached | AgentFailure | None = None
    spent: Usage | None = None
    session: str = ""
    shown: bytes = b""


class OutputListener:
    """Reads the standard output of the agent of one session.

    It searches only the final answer for the promise. So the output of a tool, the prompt, or a thought of
    the agent cannot keep the promise. For an agent that prints plain text, the whole output is the answer.
    The same holds if an agent should print a format, and has not printed one line of it.

    Arguments:
        agent: the format of the output, and whether it is printed unchanged.
        until: the promise.
        blocked: the text with which the agent asks for a person.

    """

    def __init__(self, agent: AgentSettings, until: str, blocked: str = "") -> None:
        output = agent.invocation.output
        self._output = output
        self._reader = None if output == "text" else OutputReader(output)
        self._readable = None if agent.raw else TranscriptFormatter()
        self._plain = AnswerReader(until, blocked)
        self._marks = until, blocked
        self._prompt = b""
        self._before = _NO_COST
        self._overall = "", 0
        self._begin()

    @property
    def spent(self) -> Usage | None:
        """Tokens and cost of the whole session so far; ``None`` if the agent reports nothing."""
        if self._spent is None:
            return None if self._before is _NO_COST else self._before
        return _sum(self._before, self._spent)

    @property
    def current(self) -> Usage | None:
        """Tokens and cost of this iteration alone; ``None`` if the agent reports nothing."""
        return self._spent

    @property
    def promised(self) -> bool:
        """Whether a final answer ends the loop; plain text has no final answer before its end."""
        return self._answer.promise.kept or self._answer.blocked

    @property
    def has_answered(self) -> bool:
        """Whether the final answer or a failure has arrived, and the agent spent nothing since."""
        return self._answered

    def change_format(self, output: str) -> None:
        """Read another format from now on; called between two iterations."""
        if output != self._output:
            self._output = output
            self._reader = None if output == "text" else OutputReader(output)

    def expect_echo(self, prompt: bytes) -> None:
        """Name the prompt of the next iteration: an answer that repeats it keeps no promise."""
        self._prompt = prompt
        self._plain.expect_echo(prompt)

    def hear(self, piece: bytes) -> bytes:
        """Read the next piece of output, and return its readable form."""
        if self._reader is None:
            self._plain.feed(piece)
            return piece
        return self._take(self._reader.feed(piece), piece)

    def finish(self) -> IterationOutput:
        """Return the result since the last call; the last line counts even without a newline."""
        shown = b""
        if self._reader is not None:
            shown = self._take(self._reader.finish(), b"")
            if self._readable is not None:
                shown += self._readable.finish()
        plain = self._plain.finish()
        answer = self._answer if self._has_format else plain
        heard = IterationOutput(answer, self._failure, self._spent, self._session, shown)
        if self._spent is not None:
            self._before = _sum(self._before, self._spent)
            self._overall = self._session, self._counted
        self._begin()
        return heard

    def _begin(self) -> None:
        self._has_format = False
        self._answer = NO_ANSWER
        self._answered = False
        self._failure: UsageLimitReached | AgentFailure | None = None
        self._spent: Usage | None = None
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
            self._has_format = True
            return
        if isinstance(event, UnparsedLine):
            self._plain.feed(event.line + b"\n")
            return
        self._has_format = self._has_format or not isinstance(event, SkippedLine)
        if isinstance(event, Usage):
            self._spent = self._of_iteration(event) if event.overall else event
            self._answered = False
        elif isinstance(event, FinalAnswer):
            self._answered, self._answer, self._failure = True, self._read(event.text), None
        elif isinstance(event, _FAILURES):
            self._answered, self._answer, self._failure = True, NO_ANSWER, event
        elif isinstance(event, AgentSessionId):
            self._session = event.session

    def _of_iteration(self, spent: Usage) -> Usage:
        """Subtract the tokens that the agent's own session had before this iteration."""
        self._counted = spent.tokens
        session, before = self._overall
        if session != self._session or before > spent.tokens:  # a new session, or its counter restarted
            before = 0
        return spent._replace(tokens=spent.tokens - before, overall=False)

    def _read(self, answer: str) -> Answer:
        reader = AnswerReader(*self._marks, self._prompt)
        reader.feed(answer.encode("utf-8", "surrogatepass"))
        return reader.finish()


def _sum(usage: Usage, other: Usage) -> Usage:
    costs = [spent.cost for spent in (usage, other) if spent.cost is not None]
    return Usage(usage.tokens + other.tokens, sum(costs) if costs else None, usage.turns + other.turns)
