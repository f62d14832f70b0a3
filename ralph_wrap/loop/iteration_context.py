"""What an agent is run with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralph_wrap.system.process_tree import Offspring


class Stage(NamedTuple):
    """What an agent is run with; the same for every iteration.

    Attributes:
        directory: the session's own, where requests to stop come.
        inherited: a descriptor that it, and what it starts, keep open.
        cwd: its working directory.
        isolated: that is in a worktree.
        environ: its environment.
        fingerprint: tells one state of the workspace from another; empty if it cannot be told.
        pristine: what *fingerprint* would return before anybody has worked there, where that is known.
        begin: called with the iteration's number before each one.
        spawned: called each time an agent has started.
        offspring: what the agent has started.
        end_leftovers: ends that, which was asked to, with so many seconds of grace.
        hand_over: keeps what an iteration has left uncommitted, given its number, the fingerprint if that is
            known, and whether it will not be repeated; returns the fingerprint of what is there then, empty
            if that is the same.
        look_outside: tells of what has changed outside the workspace since the last time, with the words for
            when that was, and returns whether anything has.

    """

    directory: Path
    inherited: int
    cwd: Path
    isolated: bool
    environ: Mapping[str, str]
    fingerprint: Callable[[], str]
    pristine: str
    begin: Callable[[int], None]
    spawned: Callable[[], None]
    offspring: Offspring
    end_leftovers: Callable[[float], object]
    hand_over: Callable[[int, str, bool], str]
    look_outside: Callable[[str], bool]
