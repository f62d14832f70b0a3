"""Tell sessions that run something: the next prompt begins with it, once.

A message is a file in the session's directory (``state.told``), so this works from another container, or from
the host. A session that waits reads it when it goes on. One that has ended reads nothing: that is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap.errors import NotFoundError, RalphError, RefusedError, explained
from ralph_wrap.state import inventory, told
from ralph_wrap.state.advice import advice_for, to_go_on
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.state.session_files import waits_until
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import command

log = get_logger()

_PASTED = 100  # letters of a message that a hint repeats


class ToldSession(NamedTuple):
    """The result for one session.

    Attributes:
        id: agent id.
        session: session id, ``None`` if its record cannot be read.
        outcome: *told*, *ended*, *orphan* (its owner is dead), *unknown* (its record cannot be read) or
            *failed* (the message could not be written).
        messages: how many messages wait for its next iteration, this one included.
        waits_until: the end of the usage limit for which it waits: UTC, ISO 8601; ``None`` if it does not.
        title: what people call the session; empty if that is not known.

    """

    id: str
    session: str | None
    outcome: str
    messages: int = 0
    waits_until: str | None = None
    title: str = ""


def tell(
    project: Project, names: Sequence[str], text: str, *, now: bool = False
) -> tuple[list[ToldSession], RalphError | None]:
    """Leave a message for sessions.

    Arguments:
        names: ids, branches or titles.
        text: the message.
        now: each session has to end its running iteration for it.

    Returns:
        The result for each session that exists, and the gravest error if one was not told.

    Raises:
        UsageError: the message is empty or too long, or a title fits several sessions.

    """
    told.require_fitting(text)
    failures: list[RalphError] = []
    sessions: dict[str, FoundSession] = {}  # each once, even if it was named by two ids
    unknown: list[str] = []
    for name in names:
        try:
            session = inventory.find(project, name)
        except NotFoundError as error:
            failures.append(error)
            unknown.append(name)
        else:
            sessions.setdefault(session.name, session)
    results = [_tell(project, session, text, failures, now=now) for session in sessions.values()]
    if not failures:
        return results, None
    gravest = next((error for error in failures if not isinstance(error, NotFoundError)), failures[0])
    hint = gravest.hint
    if unknown and names[0] not in unknown:
        whole = command("ralph-wrap", "tell", names[0], " ".join([*unknown, text]))
        hint = Commands.of(hint, f"if these words are the message, put it in quotes: {whole}")
    return results, type(gravest)("; ".join(error.message for error in failures), hint)


def _tell(
    project: Project, session: FoundSession, text: str, failures: list[RalphError], *, now: bool
) -> ToldSession:
    result = ToldSession(session.id, session.record.session if session.record else None, "told")
    result = result._replace(title=session.title)
    if refusal := _refusal(project, session, text):
        failures.append(refusal[1])
        return result._replace(outcome=refusal[0])
    assert session.directory is not None
    try:
        file = told.tell(session.directory, text, now=now)
    except (RalphError, OSError) as error:
        failures.append(explained(error) if isinstance(error, OSError) else error)
        return result._replace(outcome="failed")
    current = session.again()
    if _is_over(current) and file.exists():
        failures.append(
            RefusedError(
                f"session {session.name} ended before it could read the message, which is kept",
                f"to go on with it: {command('ralph-wrap', 'resume', session.id)}",
            )
        )
        return result._replace(outcome="ended")
    until = waits_until(session.directory, datetime.now(UTC))
    log.event("session.told", _sentence(session, until, now=now), session=session.name, now=now)
    return result._replace(messages=told.count_unread(session.directory), waits_until=until)


def _sentence(session: FoundSession, until: str | None, *, now: bool) -> str:
    what = f"session {session.name}: the next prompt begins with the message"
    if until is not None:
        also = ", which --now does not end" if now else ""
        end = f"{datetime.fromisoformat(until).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return f"{what}; it waits for a usage limit until {end}{also}"
    if session.verdict is Verdict.FOREIGN:
        return f"{what}; it is perhaps on another machine"
    if now and session.record and not session.record.iteration:
        return f"{what}; no iteration runs yet that could end for it"
    return f"{what}; its running iteration ends for it" if now else what


def _refusal(project: Project, session: FoundSession, text: str) -> tuple[str, RalphError] | None:
    """Return the outcome and the error for a session that reads no message; ``None`` if it may read one."""
    resume = f'{command("ralph-wrap", "resume", session.id, "-m")} "…"'
    if text.isprintable() and len(text) <= _PASTED:
        resume = command("ralph-wrap", "resume", session.id, "-m", text)
    if session.verdict is Verdict.ORPHAN:
        message = f"session {session.name} crashed: its process is dead"
        hint = Commands.of(advice_for(Verdict.ORPHAN, session.id), f"then, to go on with it: {resume}")
        return "orphan", RefusedError(message, hint)
    if session.verdict is Verdict.UNKNOWN or session.directory is None:
        message = f"session {session.name} was told nothing: its record cannot be read: {session.note}"
        return "unknown", RefusedError(message, advice_for(Verdict.UNKNOWN, session.id))
    if _is_over(session):
        if session.verdict is Verdict.FINISHED and session.record:
            hint = to_go_on(project, session.record, resume)
            return "ended", RefusedError(f"session {session.name} has ended", hint)
        return "ended", RefusedError(f"session {session.name} is ending", f"to go on with it: {resume}")
    return None


def _is_over(session: FoundSession) -> bool:
    """Return whether the loop of a session has ended; its work may still be saved."""
    is_ending = session.record is not None and session.record.state in {"ending", "finished"}
    return session.verdict in {Verdict.FINISHED, Verdict.ORPHAN} or is_ending
