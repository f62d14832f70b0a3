"""Wait until sessions have ended, and tell how."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.state import inventory
from ralph_wrap.state.how_ended import how_ended
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.system.polling import POLL_INTERVAL

_ALIVE = {Verdict.LIVE, Verdict.FOREIGN}


class WaitedSession(NamedTuple):
    """How one session has ended.

    Attributes:
        id: agent id.
        session: session id.
        ended_by: why it ended, as in its report; ``None`` if that is not known.
        exit_status: that of the session; 125 if it is not known.
        title: what people call the session; empty if it has no name and no prompt.

    """

    id: str
    session: str
    ended_by: str | None
    exit_status: int
    title: str = ""


def wait(project: Project, names: Sequence[str]) -> Iterator[tuple[WaitedSession, RalphError | None]]:
    """Wait until all sessions have ended; yield each when it has, with an error if nobody knows how.

    Arguments:
        names: ids, branches or titles; all exist before the wait begins.

    Raises:
        UsageError: the title of several sessions fits.
        NotFoundError: a session does not exist.

    """
    waiting = {session.name: session for session in (inventory.find(project, name) for name in names)}
    while True:
        waiting = {name: session.again() for name, session in waiting.items()}
        for name in [name for name, session in waiting.items() if session.verdict not in _ALIVE]:
            yield _ended(waiting.pop(name))
        if not waiting:
            return
        time.sleep(POLL_INTERVAL)


def _ended(session: FoundSession) -> tuple[WaitedSession, RalphError | None]:
    try:
        end = how_ended(session)
    except RalphError as error:
        return WaitedSession(session.id, session.name, None, RalphError.exit_code, session.title), error
    return WaitedSession(session.id, session.name, end.ended_by, end.exit_status, session.title), None
