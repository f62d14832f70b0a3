"""The ids of agents and of sessions: their form, and their meaning.

An agent id (``3f9a``) names an agent among those of a project. In a fleet it has eight digits, because a
thousand sessions of one remote would draw the same four. A session id (``20260714T093005Z-3f9a``) is
the second in which the session began, and the id of its agent. PID 1 has a copy of both forms: it imports
nothing from here.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime

_AGENT = "(?:[0-9a-f]{4}){1,2}"
_WIDE = 8  # digits
_AGENT_ID = re.compile(_AGENT)
_SESSION_ID = re.compile(f"[0-9]{{8}}T[0-9]{{6}}Z-({_AGENT})")  # \d would take the digits of any script
_IN_A_REF = re.compile(f"/({_AGENT})(?=[-/\n])".encode())


def is_agent_id(text: str) -> bool:
    """Return whether a text has the form of an agent id."""
    return _AGENT_ID.fullmatch(text) is not None


def is_wide_agent_id(text: str) -> bool:
    """Return whether a text has the form of an agent id in a fleet."""
    return is_agent_id(text) and len(text) == _WIDE


def wide_agent_id() -> str:
    """Return an agent id for a fleet, drawn at random."""
    return os.urandom(_WIDE // 2).hex()


def is_session_id(text: str) -> bool:
    """Return whether a text has the form of a session id."""
    return _SESSION_ID.fullmatch(text) is not None


def agent_id_of(text: str) -> str | None:
    """Return the agent id that an agent id or a session id names, ``None`` if the text is neither."""
    found = _SESSION_ID.fullmatch(text)
    return found[1] if found else text if is_agent_id(text) else None


def agent_ids_in(listing: bytes) -> set[str]:
    """Return the agent ids in names of refs: of branches and of hidden refs."""
    return {found[1].decode() for found in _IN_A_REF.finditer(listing)}


def session_id(agent_id: str, began: float) -> str:
    """Return the id of a session.

    Arguments:
        agent_id: of its agent.
        began: its beginning, in seconds since the epoch.

    """
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(began))}-{agent_id}"


def started(session: str) -> datetime:
    """Return when a session began.

    Raises:
        ValueError: there is no such day or hour.

    """
    # Not by strptime(), whose error does not say which number is wrong.
    day, clock = session[:8], session[9:15]
    year, month, date = map(int, (day[:4], day[4:6], day[6:]))
    hour, minute, second = map(int, (clock[:2], clock[2:4], clock[4:]))
    return datetime(year, month, date, hour, minute, second, tzinfo=UTC)
