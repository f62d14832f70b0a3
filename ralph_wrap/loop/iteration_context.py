"""Directory, environment and callbacks for the iterations of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.state.gate_memory import RememberedGate
from ralph_wrap.state.stop_request import StopRequests
from ralph_wrap.state.told import Inbox
from ralph_wrap.system.process import ProcessGroup, ProcessSpec
from ralph_wrap.system.process_tree import ProcessTree


def _never(_reason: Callable[[], bool]) -> AbstractContextManager[None]:
    return nullcontext()


class IterationContext(NamedTuple):
    """Directory, environment and callbacks for an agent; the same for every iteration.

    Attributes:
        directory: the directory of the session.
        inherited: a descriptor that the agent and its child processes keep open.
        cwd: the working directory of the agent.
        wanted: the directory in which the user wants the agent; *cwd* is the nearest one that exists.
        isolated: *cwd* is in a worktree.
        environ: the environment of the agent.
        requests: the requests to stop the session.
        inbox: what a person tells the session.
        look: returns a text that differs between states of the workspace; empty if it is unknown.
        pristine: this text for the new workspace, if it is known.
        begin: called before each iteration with its number, and the agent that works in place of the first.
        spawned: called after each start of an agent.
        process_tree: the processes that the agent has started.
        end_leftovers: ends these processes; the argument is the grace in seconds. They already got a signal.
        hand_over: saves the uncommitted work of an iteration. The arguments are its number, the text of
            *look* if it is known, and whether the iteration is final, that is, will not be repeated. Returns
            the new text, empty if it has not changed.
        begin_to_look_outside: starts *look_outside*, which then waits for the rest alone.
        look_outside: logs changes outside the workspace since the last call, and returns whether there are
            any. The argument is the phase for the message.
        mend: repairs what the agent has broken of its worktree, and returns whether git works there.
        start: starts a command of the agent.
        without_room: returns the directory whose full disk has kept several iterations in a row from being
            saved, once there have been too many; ``None`` otherwise, also as soon as there is room again.
        waiting_for_room: shows other processes, while it is entered, that the loop waits for room.
        notify: tells a person of an event, if one wants to hear it; the arguments are the event and a
            sentence without the title of the session.
        remember_gate: keeps the last run of the gate for a sweep, and for the next session.
        earlier_gate: the last run in the session that this one goes on from.
        beat: mirrors the session if that is due; called while the agent works. It ends early if the argument
            returns true. Returns when to call it again, as :func:`time.monotonic` counts.
        interrupted_when: a context in which *look* and *hand_over* end early when a function returns true.

    """

    directory: Path
    inherited: int
    cwd: Path
    wanted: Path
    isolated: bool
    environ: Mapping[str, str]
    requests: StopRequests
    inbox: Inbox
    look: Callable[[], str]
    pristine: str
    begin: Callable[[int, str], None]
    spawned: Callable[[], None]
    process_tree: ProcessTree
    end_leftovers: Callable[[float], object]
    hand_over: Callable[[int, str, bool], str]
    begin_to_look_outside: Callable[[], object]
    look_outside: Callable[[str], bool]
    beat: Callable[[Callable[[], bool]], float]
    mend: Callable[[], bool] = lambda: True
    start: Callable[[ProcessSpec], ProcessGroup] = ProcessGroup
    without_room: Callable[[], Path | None] = lambda: None
    interrupted_when: Callable[[Callable[[], bool]], AbstractContextManager[None]] = _never
    waiting_for_room: Callable[[], AbstractContextManager[None]] = nullcontext
    notify: Callable[[str, str], object] = lambda _event, _words: None
    remember_gate: Callable[[RememberedGate], object] = lambda _gate: None
    earlier_gate: RememberedGate | None = None
