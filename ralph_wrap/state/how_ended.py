"""How a session has ended: the words and the exit status of its report."""

from __future__ import annotations

from typing import NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.state import report
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.report import UnreadableReport

KILLED = 137
"""Exit status of a session that was killed by SIGKILL, in the numbers of a shell."""


class SessionEnd(NamedTuple):
    """How a session has ended.

    Attributes:
        ended_by: the reason, as in its report.
        exit_status: that of ``ralph-wrap run``.

    """

    ended_by: str
    exit_status: int


def how_ended(session: FoundSession) -> SessionEnd:
    """Return how a session has ended that is not alive.

    Raises:
        RalphError: its record or its report cannot be read, or it has none.

    """
    if session.verdict is Verdict.ORPHAN:
        return SessionEnd("killed", KILLED)
    found = None if session.directory is None else report.read(session.directory / "report.json")
    if found is None or isinstance(found, UnreadableReport):
        reason = found.sentence if found else session.note or "it has left no report"
        raise RalphError(
            f"how session {session.name} ended is not known: {reason}", "to see it: ralph-wrap ps --all"
        )
    return SessionEnd(found.ended_by, found.exit_status)
