"""The state of a session in words for people; JSON has the words for programs."""

from __future__ import annotations

from datetime import datetime

_UNFINISHED = {"live": "running", "orphan": "crashed", "foreign": "elsewhere", "unknown": "unreadable"}
_PHASES = {"starting": "starting", "ending": "saving"}
_LIMIT = "limit reached"
ELSEWHERE = "elsewhere"
"""In the report of a session that ``ralph-wrap fetch`` has brought, while it runs on another machine."""

_ENDED = {
    "promise": "done",
    "blocked": "blocked",
    "not-logged-in": "not logged in",
    "stop": "stopped",
    "signal": "stopped",
    "leak": "stopped",
    "max-stalls": "stuck",
    "max-failures": "failed",
    "error": "failed",
    "not-started": "not started",
    "killed": "crashed",
    ELSEWHERE: "elsewhere",
    **dict.fromkeys(("max-iterations", "max-time", "max-cost", "max-tokens", "usage-limit"), _LIMIT),
}


def state_of(
    verdict: str | None,
    ended_by: str | None = None,
    phase: str | None = None,
    waits_until: str | None = None,
    waits_for_room: bool = False,
) -> str | None:
    """Return the state of a session in words; ``None`` if it is not known.

    Arguments:
        verdict: the verdict on it; ``None`` stands for a finished session.
        ended_by: the reason why it ended, from its report; an orphan with a report has not crashed, but left
            its worktree to the next start.
        phase: the state in its record.
        waits_until: the end of the usage limit for which it waits: UTC, ISO 8601.
        waits_for_room: its loop waits, because a disk is full.

    """
    if verdict == "live" and waits_for_room:
        return "waiting for room: the disk is full"
    if verdict == "live" and waits_until:
        until = datetime.fromisoformat(waits_until).astimezone()
        day = "" if until.date() == datetime.now(until.tzinfo).date() else f"{until:%Y-%m-%d} "
        return f"waiting for the usage limit until {day}{until:%H:%M}"
    if verdict == "live" and phase in _PHASES:
        return _PHASES[phase]
    if verdict in _UNFINISHED and not (verdict == "orphan" and ended_by):
        return _UNFINISHED[verdict]
    return ending_in_words(ended_by) if ended_by else "finished" if verdict else None


def outcome_in_words(outcome: str) -> str:
    """Return what became of a session that was asked to stop."""
    return _UNFINISHED.get(outcome, outcome)


def ending_in_words(ended_by: str) -> str:
    """Return how a session ended, in words; the exit report has a row that names a limit."""
    return _ENDED.get(ended_by, ended_by)
