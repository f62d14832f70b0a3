"""Ask sessions to end, and wait until they have ended.

First all sessions get their request, then the command waits for all. A request is a file in the session's
directory (``stop_request``), and at its end a session removes its record. So both also work from another
container, or another machine. Where a request cannot be written, as on a full disk, the process of
the session gets a signal, if we see that it is the session's. This module never removes a file.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ralph_wrap.errors import NotFoundError, RalphError
from ralph_wrap.state import inventory, stop_request
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.disk import NO_ROOM
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.polling import POLL_INTERVAL
from ralph_wrap.system.signals import LAST_ITERATION
from ralph_wrap.system.text import command

log = get_logger()

_SIGNALS = {
    StopMode.AFTER_ITERATION: (LAST_ITERATION,),
    StopMode.SOON: (signal.SIGTERM,),
    StopMode.NOW: (signal.SIGINT, signal.SIGTERM),  # two TERMs would say that a container's time is over
}


class StoppedSession(NamedTuple):
    """The result for one session.

    Attributes:
        id: agent id.
        session: session id, ``None`` if its record cannot be read.
        outcome: *stopped*, *ended* (before the request), *orphan* (its owner is dead), *unknown* or *failed*;
            *asked* if it runs on, and the caller waits no longer.
            The record of an unknown session cannot be read, and it is not touched. Of a failed one the
            request could not be written.
        title: what people call the session; empty if that is not known.

    """

    id: str
    session: str | None
    outcome: str
    title: str = ""


def stop(
    project: Project,
    names: Sequence[str] | None,
    mode: StopMode,
    patience: float = math.inf,
) -> tuple[list[StoppedSession], RalphError | None]:
    """Ask sessions to end, and wait until they have ended.

    Arguments:
        names: ids, branches or titles; ``None`` stands for every session that is not finished.
        patience: seconds to wait at most.

    Returns:
        The result for each session, and an error if one does not exist, is unknown, or could not be asked.
        The other sessions have ended in any case.

    Raises:
        UsageError: a title fits several sessions; no session was asked.

    """
    failures: list[RalphError] = []
    sessions: dict[str, FoundSession] = {}  # in order, each once, even if it was named by two ids
    for session in _named(project, names, failures):
        sessions.setdefault(session.name, session)
    if names is None and not sessions:
        log.event("stop.needless", f"there is no session to stop in {project.root}")
    outcomes: dict[str, str] = {}
    try:
        for name, session in sessions.items():
            outcomes[name] = ""  # it may have the request before an interrupt lets us note that
            outcomes[name] = _ask(session, mode, failures)
        _wait(sessions, outcomes, failures, time.monotonic() + patience)
    except KeyboardInterrupt:
        waiting = ", ".join(name for name, outcome in outcomes.items() if not outcome)
        if waiting:
            log.event("wait.ended", f"we wait no longer; each session that was asked will stop: {waiting}")
        raise
    stopped = [
        StoppedSession(
            session.id, session.record.session if session.record else None, outcomes[name], session.title
        )
        for name, session in sessions.items()
    ]
    if not failures:
        return stopped, None
    gravest = next((error for error in failures if not isinstance(error, NotFoundError)), failures[0])
    return stopped, type(gravest)("; ".join(error.message for error in failures), gravest.hint)


def _named(project: Project, names: Sequence[str] | None, failures: list[RalphError]) -> list[FoundSession]:
    if names is None:
        return inventory.unfinished(project)
    sessions = []
    for name in names:
        try:
            sessions.append(inventory.find(project, name))
        except NotFoundError as error:
            failures.append(error)
    return sessions


def _ask(session: FoundSession, mode: StopMode, failures: list[RalphError]) -> str:
    """Ask a session that may be alive, and return its outcome; empty if the command has to wait for it."""
    if session.verdict is Verdict.FINISHED:
        log.event("session.ended_already", f"session {session.name} has ended already", session=session.name)
        return "ended"
    if session.verdict is Verdict.ORPHAN:
        return _orphan(session)
    if session.verdict is Verdict.UNKNOWN or session.directory is None:
        return _unknown(session, failures)
    try:
        effective = stop_request.ask(session.directory, mode)
    except OSError as error:
        return _ask_without_disk(session, mode, error, failures)
    elsewhere, advice = "", dict[str, str]()
    if session.verdict is Verdict.FOREIGN:
        elsewhere = "; it is perhaps on another machine, and this command waits for it until Ctrl-C"
        advice = {"hint": advice_for(session.verdict, session.id)}
    log.event(
        "session.asked",
        f"asked session {session.name} to stop ({effective.value}){elsewhere}",
        session=session.name,
        how=effective.value,
        **advice,
    )
    return ""


def _ask_without_disk(
    session: FoundSession, mode: StopMode, error: OSError, failures: list[RalphError]
) -> str:
    """Ask a session to which no request can be written, and return its outcome, as :func:`_ask` does."""
    if session.again().verdict is Verdict.FINISHED:
        return ""
    if _signal(session, mode):
        log.event(
            "session.signalled",
            f"told session {session.name} by a signal to stop ({mode.value}): no request can be written"
            f" ({error.strerror})",
            session=session.name,
            how=mode.value,
        )
        return ""
    message = f"cannot ask session {session.name} to stop: {error.strerror}"
    failures.append(RalphError(message, _way_to_ask(session, error)))
    return "failed"


def _signal(session: FoundSession, mode: StopMode) -> bool:
    """Ask a session by a signal that no disk has to hold; return whether we could.

    Any pid may be in a record. So the process must bear the name of the session, and be the one that started
    it, here or in a pid namespace below ours. LAST_ITERATION would kill a session without a handler for it.
    """
    owner = session.record.owner if session.record else None
    if owner is None or owner.boot_id != liveness.boot_id():
        return False
    pids = [owner.pid] if liveness.is_running(owner) else liveness.nested_in(owner)
    found = [pid for pid in pids if liveness.bears_name(pid, session.id)]
    if len(found) != 1:
        return False
    if LAST_ITERATION in _SIGNALS[mode] and not process_table.catches(found[0], LAST_ITERATION):
        return False
    try:
        for number in _SIGNALS[mode]:
            os.kill(found[0], number)
    except OSError:  # it has ended, or belongs to another user
        return False
    return True


def _way_to_ask(session: FoundSession, error: OSError) -> str:
    if error.errno in NO_ROOM:
        return f"make room, then type the command again: {command('df', '-h', session.home.directory)}"
    return "run this command as the user of the session"


def _wait(
    sessions: Mapping[str, FoundSession],
    outcomes: dict[str, str],
    failures: list[RalphError],
    end: float,
) -> None:
    """Wait until every session that was asked has ended, or until a time, and record its outcome."""
    named: set[str] = set()
    while True:
        for name, session in sessions.items():
            if outcomes[name]:
                continue
            current = session.again()
            if current.verdict is Verdict.FINISHED:
                outcomes[name] = "stopped"
            elif current.verdict is Verdict.ORPHAN:
                outcomes[name] = _orphan(current)
            elif current.verdict is Verdict.UNKNOWN:
                outcomes[name] = _unknown(current, failures)
            elif name not in named and _is_stopped(current):
                named.add(name)
                _name_stopped(current)
            elif name not in named and (pids := _bearers(current)):
                named.add(name)
                _name_bearers(current, pids)
        left = end - time.monotonic()
        if all(outcomes.values()) or left <= 0:
            outcomes.update({name: "asked" for name, outcome in outcomes.items() if not outcome})
            return
        time.sleep(min(POLL_INTERVAL, left))


def _is_stopped(session: FoundSession) -> bool:
    owner = session.record.owner if session.record else None
    # Any pid may be in the record, and the hint lets that process go on.
    is_its_own = owner is not None and liveness.bears_name(owner.pid, session.id)
    return owner is not None and is_its_own and process_table.is_stopped(owner.pid)


def _name_stopped(session: FoundSession) -> None:
    assert session.record is not None
    pid = session.record.pid
    log.warning(
        "session.stands_still",
        f"session {session.name} does not answer: its process {pid} is stopped (SIGSTOP or Ctrl-Z)",
        f"to let it go on: kill -CONT {pid}",
        session=session.name,
        pid=pid,
    )


def _bearers(session: FoundSession) -> list[int]:
    """Return the processes by whose name alone a session counts as alive; any process can choose its name."""
    record = session.record
    if session.verdict is not Verdict.LIVE or record is None or liveness.is_running(record.owner):
        return []
    try:
        is_locked = session.home.is_locked(record.id)
    except FileNotFoundError:  # the session has ended meanwhile
        return []
    return [] if is_locked else liveness.SessionNames().pids(record.id)


def _name_bearers(session: FoundSession, pids: Sequence[int]) -> None:
    numbers = " ".join(map(str, pids))
    log.warning(
        "session.named",
        f"only the name of process {numbers} says that session {session.name} runs: nothing holds its lock",
        f"to look at it: ps -fp {','.join(map(str, pids))}; if it is no session, end it: kill {numbers}",
        session=session.name,
        pids=list(pids),
    )


def _orphan(session: FoundSession) -> str:
    log.warning(
        "session.orphaned",
        f"session {session.name} crashed: its process is dead",
        advice_for(Verdict.ORPHAN, session.id),
        session=session.name,
    )
    return "orphan"


def _unknown(session: FoundSession, failures: list[RalphError]) -> str:
    message = f"session {session.name} was not touched, because its record cannot be read: {session.note}"
    failures.append(RalphError(message, advice_for(Verdict.UNKNOWN, session.id)))
    return "unknown"
