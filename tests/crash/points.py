"""Which points of a matrix are tried."""

from __future__ import annotations

import os


def chosen(count: int, shard: int = 0, shards: int = 1, *, first: int = 1, each: int = 1) -> range:
    """Return the numbers of the points that one of several tests tries.

    Arguments:
        count: how many points there are.
        first: the first one; there is nothing to try before it.
        shard: the number of the test, from 0.
        shards: how many tests share the points.
        each: one point of this number is tried, but every one with ``EVERY_POINT=1`` in the environment.

    """
    step = 1 if os.environ.get("EVERY_POINT") else each
    return range(first + shard * step, count + 1, shards * step)
