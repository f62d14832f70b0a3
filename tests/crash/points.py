"""Which points of a matrix are tried.

The usual run takes one point of each state: where nothing on disk has changed since the point before, a kill
leaves the same. Of a large matrix it takes one of several states, and others on the next day.
``EVERY_POINT=1`` and ``SAMPLE_SEED=N`` are those of ``sampling.py``.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

from tests.support import sampling

if TYPE_CHECKING:
    from collections.abc import Sequence


def chosen(count: int, *, first: int = 1, each: int = 1, states: Sequence[str] | None = None) -> list[int]:
    """Return the numbers of the points that are tried.

    Arguments:
        count: how many points there are.
        first: the first one; there is nothing to try before it.
        each: one of this number of states is tried.
        states: what a kill at each point leaves (``World.states``); without them each point is a state.

    """
    numbers = range(first, count + 1)
    if sampling.EVERY_POINT:
        return [*numbers]
    groups = [[*group] for _, group in itertools.groupby(numbers, lambda n: states[n - 1] if states else n)]
    random = Random(sampling.seed())  # noqa: S311 -- which points are tried is no secret
    return [random.choice(group) for group in groups[random.randrange(min(each, len(groups))) :: each]]
