"""Which points of a matrix are tried."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Choose(NamedTuple):
    """Chooses the points at which a test kills.

    Attributes:
        every: each point is tried. Else it is the first point of each n-th state: where nothing on disk has
            changed since the point before, a kill leaves the same.

    """

    every: bool

    def __call__(
        self, count: int, *, first: int = 1, each: int = 1, states: Sequence[str] | None = None
    ) -> list[int]:
        """Return the numbers of the points that are tried.

        Arguments:
            count: how many points there are.
            first: the first one; there is nothing to try before it.
            each: one of this number of states is tried, unless every point is.
            states: what a kill at each point leaves (``World.states``); without them each point is a state.

        """
        numbers = range(first, count + 1)
        if self.every:
            return [*numbers]
        groups = itertools.groupby(numbers, lambda number: states[number - 1] if states else number)
        return [next(group) for _, group in groups][::each]
