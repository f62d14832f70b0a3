"""Show the progress of a session: a rule between iterations, and the last line of the terminal.

Only a terminal that shows the line makes the session wake up for it: each second of the first hour, and each
minute afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Self

from ralph_wrap.config import LoopLimits
from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, count_commits, git_environment, resolve_commit
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.listener import OutputListener
from ralph_wrap.system.log import current
from ralph_wrap.system.text import span

_MINUTE, _HOUR = 60, 60 * 60


class Progress:
    """Shows the progress of a session until the context ends.

    Arguments:
        limits: the maximum number of iterations.
        context: names the directory in which commits are counted.
        listener: knows the tokens of the agent.
        shown: the terminal can show the line.
        clock: returns seconds.

    """

    def __init__(
        self,
        limits: LoopLimits,
        context: IterationContext,
        listener: OutputListener,
        *,
        shown: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_shown = shown and current().shows_progress
        self._most = limits.max_iterations
        self._git = Git(context.cwd, git_environment(context.environ))
        self._listener = listener
        self._clock = clock
        self._begun = clock()
        self._base: str | None = None
        self._commits: int | None = None
        self._number = 0
        self._words = ""
        self._also = ""

    def add(self, fact: str) -> None:
        """Show a fact about the last iteration until the next call."""
        self._also = fact

    def begin(self, number: int) -> None:
        """Show that an iteration begins, and count the commits."""
        is_next = number > max(self._number, 1)  # not the first one, and no repetition
        self._number = number
        if self._is_shown:
            self._count()
        if is_next:
            current().rule(" · ".join(self._facts()))
        if self._is_shown:
            self.show()

    def count_down(self, what: str, end: float) -> float:
        """Show how long a wait still takes, and return the time of the next step, at the latest its end.

        Arguments:
            what: what ends then.
            end: as the clock counts.

        """
        if not current().shows_progress:
            return end  # the only step
        now = self._clock()
        self.say(f"ralph-wrap: {what} in {span(max(0, math.ceil(end - now)))}")
        return now + 1

    @property
    def due(self) -> float:
        """The time at which the line must be redrawn, as the clock counts."""
        if not self._is_shown or self._words:
            return math.inf
        passed = self._clock() - self._begun
        step = 1 if passed < _HOUR else _MINUTE
        return self._begun + (passed // step + 1) * step

    def say(self, words: str) -> None:
        """Show a text in place of the progress; an empty text shows the progress again."""
        self._words = words
        if words or self._is_shown:
            self.show()
        else:
            self.hide()

    def show(self) -> None:
        """Redraw the line if its text has changed."""
        if self._words or self._is_shown:
            current().progress(self._words or self._text())

    def hide(self) -> None:
        """Hide the line until the next call of show."""
        current().progress("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()
        self._is_shown = False

    def _count(self) -> None:
        try:
            if self._base is None:
                self._base = resolve_commit(self._git, "HEAD") or ""
            self._commits = count_commits(self._git, self._base, "HEAD") if self._base else None
        except (GitError, OSError):
            self._commits = None

    def _text(self) -> str:
        return f"ralph-wrap: {', '.join(self._facts())}"

    def _facts(self) -> list[str]:
        of = f" of {self._most}" if self._most else ""
        facts = [f"iteration {self._number}{of}" if self._number else "setup"]
        facts.append(span(self._clock() - self._begun))
        spent = self._listener.spent
        if spent is not None and spent.cost is not None:
            facts.append(f"${spent.cost:.2f}")
        elif spent is not None:
            facts.append(f"{spent.tokens:,} tokens")
        if self._commits is not None:
            facts.append(f"{self._commits} commit{'' if self._commits == 1 else 's'}")
        if self._also:
            facts.append(self._also)
        return facts
