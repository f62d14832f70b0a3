"""Ask sessions to end, and wait until they have.

All of them are asked first, then all are waited for. The asking is a file in the session's own directory
(``stop_request``), the end is seen by what it does to the directory of records: so it does not matter in
which container, or on which machine, the session and we are. Nothing is ever signalled or removed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import NotFoundError, RalphError
from ralph_wrap.state import inventory, stop_request
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system.inotify import LEFT, Watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.state.inventory import Found
    from ralph_wrap.state.project import Project
    from ralph_wrap.state.stop_request import How
    from ralph_wrap.system.log import Log

_LOOK = 1.0  # seconds between two looks where the file system tells nothing of an end


class Stopped(NamedTuple):
    """What became of one session.

    Attributes:
        id: agent id.
        session: session id, ``None`` if its record cannot be read.
        outcome: *stopped*, *ended* (before it was asked), *orphan* (its owner is dead), *unknown* (its record
            cannot be read; not touched) or *failed* (it could not be asked).

    """

    id: str
    session: str | None
    outcome: str


def stop(
    place: Project, environ: Mapping[str, str], names: Sequence[str] | None, how: How, told: Log
) -> tuple[list[Stopped], RalphError | None]:
    """Ask sessions to end, and wait until they have.

    Arguments:
        names: agent ids or session ids; ``None`` is every session that is not finished.

    Returns:
        What became of each session, and why it is not what was asked for (a session that is not there, could
        not be asked, or is not known well enough): the others have ended all the same.

    Raises:
        UsageError: something named is no id; nobody was asked.

    """
    for name in names or ():
        inventory.check_name(name)
    failures: list[RalphError] = []
    sessions: dict[str, Found] = {}  # in order, each once, by whatever id it was named
    for found in _named(place, environ, names, failures):
        sessions.setdefault(found.name, found)
    if names is None and not sessions:
        told.event("stop.needless", f"there is no session to stop in {place.root}")
    with Watch(*{one.home.agents for one in sessions.values()}, events=LEFT) as watch:
        outcomes = {name: _ask(one, how, told, failures) for name, one in sessions.items()}
        _wait(sessions, outcomes, watch, told, failures)
    stopped = [
        Stopped(one.id, one.record.session if one.record else None, outcomes[name])
        for name, one in sessions.items()
    ]
    if not failures:
        return stopped, None
    gravest = next((one for one in failures if not isinstance(one, NotFoundError)), failures[0])
    return stopped, type(gravest)("; ".join(one.message for one in failures), gravest.hint)


def _named(
    place: Project, environ: Mapping[str, str], names: Sequence[str] | None, failures: list[RalphError]
) -> list[Found]:
    if names is None:
        return inventory.unfinished(place, environ)
    found = []
    for name in names:
        try:
            found.append(inventory.find(place, environ, name))
        except NotFoundError as error:
            failures.append(error)
    return found


def _ask(one: Found, how: How, told: Log, failures: list[RalphError]) -> str:
    """Ask a session that may be alive, and return its outcome; empty if it is to be waited for."""
    if one.verdict is Verdict.FINISHED:
        told.event("session.ended_already", f"session {one.name} has ended already", session=one.name)
        return "ended"
    if one.verdict is Verdict.ORPHAN:
        return _orphan(one, told)
    if one.verdict is Verdict.UNKNOWN or one.directory is None:
        return _unknown(one, failures)
    try:
        asked = stop_request.ask(one.directory, how)
    except OSError as error:
        if one.again().verdict is Verdict.FINISHED:
            return ""
        message = f"session {one.name} cannot be asked to stop: {error.strerror}"
        failures.append(RalphError(message, "run this as the user whose session it is"))
        return "failed"
    elsewhere = ", perhaps on another machine" if one.verdict is Verdict.FOREIGN else ""
    told.event(
        "session.asked",
        f"session {one.name}{elsewhere} is asked to stop ({asked.value})",
        session=one.name,
        how=asked.value,
    )
    return ""


def _wait(
    sessions: Mapping[str, Found],
    outcomes: dict[str, str],
    watch: Watch,
    told: Log,
    failures: list[RalphError],
) -> None:
    """Wait until everyone who was asked has ended, and note what became of it."""
    while True:
        for name, found in sessions.items():
            if outcomes[name]:
                continue
            now = found.again()
            if now.verdict is Verdict.FINISHED:
                outcomes[name] = "stopped"
            elif now.verdict is Verdict.ORPHAN:
                outcomes[name] = _orphan(now, told)
            elif now.verdict is Verdict.UNKNOWN:
                outcomes[name] = _unknown(now, failures)
        left = [name for name, outcome in outcomes.items() if not outcome]
        if not left:
            return
        try:
            watch.wait(_LOOK)
        except KeyboardInterrupt:
            told.event("wait.ended", f"asked to stop, but no longer waited for: {', '.join(left)}")
            raise


def _orphan(one: Found, told: Log) -> str:
    told.warning(
        "session.orphaned",
        f"session {one.name} was killed: there is nobody to ask",
        "to save its work: ralph-wrap sweep",
        session=one.name,
    )
    return "orphan"


def _unknown(one: Found, failures: list[RalphError]) -> str:
    message = f"session {one.name} was not touched, since nothing is known of it: {one.note}"
    failures.append(RalphError(message, "ralph-wrap ps shows it"))
    return "unknown"
