"""The timeline of a session: the events of its log and the commits on its branch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ralph_wrap.git.patch import LogEntry
from ralph_wrap.interfaces.web.event_words import in_words
from ralph_wrap.system.text import dollars

_BEFORE_COMMITS = {"session.registered", "session.started", "iteration.started", "agent.started"}
_COMMITS = 100  # on a page
_LONGEST = 400  # characters of an event's words
_NARROWEST = 0.4  # minimum width of an iteration, in percent of the bar


class TimelineIteration(NamedTuple):
    """One iteration; unknown values are ``None``.

    Attributes:
        number: its number, from 1.
        began: its start time.
        took: its duration in seconds, so far if it is still running.
        status: exit status of the agent.
        remarks: further facts, each in a few words.
        left: the start of its bar, in percent of the session.
        width: the width of its bar, in percent of the session.

    """

    number: int
    began: datetime
    took: float
    status: int | None
    remarks: tuple[str, ...]
    left: float
    width: float


class TimelineEvent(NamedTuple):
    """One line of the timeline: time, level, name of the event and its words; a commit also has its id."""

    at: datetime
    level: str
    event: str
    words: str
    commit: str | None = None


class Timeline(NamedTuple):
    """The timeline of a session as a page shows it."""

    iterations: list[TimelineIteration]
    events: list[TimelineEvent]


def build_timeline(events: Sequence[dict[str, Any]], commits: Sequence[LogEntry], now: datetime) -> Timeline:
    """Return the timeline, oldest first.

    Arguments:
        events: the events of the session's log.
        commits: the commits on the session's branch since its base, newest first.
        now: the end of an iteration that is still running.

    """
    timed = [(at, event) for event in events if (at := _moment(event.get("at")))]
    makers = _makers(timed, commits)
    happened = [TimelineEvent(at, *_words(event)) for at, event in timed]
    moments = [at for at, _ in timed]
    shown = [commit for commit in commits if not timed or commit.id in makers][:_COMMITS]
    for commit in reversed(shown):  # in one second, the older commit comes first
        at = datetime.fromtimestamp(min(max(commit.time, 0), int(now.timestamp())), UTC)
        happened.append(TimelineEvent(at, "commit", "commit", commit.subject, commit.id))
        moments.append(_moment_of(at, timed))
    in_order = sorted(range(len(happened)), key=moments.__getitem__)
    return Timeline(_iterations(timed, makers, now), [happened[number] for number in in_order])


def _moment_of(commit: datetime, timed: Sequence[tuple[datetime, dict[str, Any]]]) -> datetime:
    """Return the moment of a commit among the events; git records only its second.

    No commit of a session comes before its registration, nor before the start of its agent in that second.
    """
    second = commit + timedelta(seconds=1)
    starts = [at for at, event in timed if commit <= at < second and event.get("event") in _BEFORE_COMMITS]
    return max([commit, *starts, *(at for at, _ in timed[:1])])


def _makers(timed: Sequence[tuple[datetime, dict[str, Any]]], commits: Sequence[LogEntry]) -> dict[str, int]:
    """Return the iteration that made each commit, 0 if none did; commits after the session have no entry.

    It is the first iteration whose HEAD at its end contains the commit. git's times do not tell: they are
    whole seconds, and several iterations may share one. Only the last iteration has no such HEAD.
    """
    begins, heads, ended = _starts(timed), dict[int, str](), float("inf")
    for at, event in timed:
        number, head = event.get("iteration"), event.get("head")
        if event.get("event") == "iteration.kept" and isinstance(number, int) and isinstance(head, str):
            heads[number] = head
        elif event.get("event") == "session.released":
            ended = at.timestamp()
    parents = {commit.id: commit.parents for commit in commits}
    makers: dict[str, int] = {}
    kept = 0
    for number, head in sorted(heads.items()):
        pending = [head]
        while pending:
            oid = pending.pop()
            if oid in parents and oid not in makers:
                makers[oid] = kept = number
                pending += parents[oid]
    later = {number: began for number, began in begins.items() if number > kept} or begins
    for commit in commits:
        if commit.id not in makers and commit.time <= ended:
            before = [number for number, began in later.items() if int(began.timestamp()) <= commit.time]
            makers[commit.id] = max(before or [min(later, default=0)])
    if begins and min(begins) > 1:  # the log is cut: what earlier iterations made is not that of the first
        first = begins[min(begins)].timestamp()
        makers |= {commit.id: 0 for commit in commits if commit.id in makers and commit.time < int(first)}
    return makers


def _starts(timed: Sequence[tuple[datetime, dict[str, Any]]]) -> dict[int, datetime]:
    """Return when each iteration began."""
    return {
        event["iteration"]: at
        for at, event in timed
        if event.get("event") == "iteration.started" and isinstance(event.get("iteration"), int)
    }


def _iterations(
    timed: Sequence[tuple[datetime, dict[str, Any]]], makers: Mapping[str, int], now: datetime
) -> list[TimelineIteration]:
    if not timed:
        return []
    begins: dict[int, datetime] = {}
    ends: dict[int, tuple[datetime, dict[str, Any]]] = {}
    spent: dict[int, dict[str, Any]] = {}
    released = any(event.get("event") == "session.released" for _, event in timed)
    end = timed[-1][0] if released else now
    for at, event in timed:
        if event.get("event") == "agent.reported" and begins:  # this event has no iteration number
            spent[max(begins)] = event
        number = event.get("iteration")
        if not isinstance(number, int):
            continue
        if event.get("event") == "iteration.started":
            begins[number] = at
        elif event.get("event") == "iteration.ended":
            ends[number] = (at, event)
    commits_made = Counter(makers.values())
    start = timed[0][0]
    duration = max((end - start).total_seconds(), 0.001)
    iterations = []
    for number, began in sorted(begins.items()):
        ended, event = ends.get(number, (end, {}))
        took = max((ended - began).total_seconds(), 0.0)
        status = event.get("status")
        iterations.append(
            TimelineIteration(
                number=number,
                began=began,
                took=took,
                status=status if isinstance(status, int) else None,
                remarks=_remarks(event, spent.get(number, {}), commits_made[number]),
                left=min(100.0, 100 * max((began - start).total_seconds(), 0.0) / duration),
                width=max(_NARROWEST, min(100.0, 100 * took / duration)),
            )
        )
    return iterations


def _remarks(ended: dict[str, Any], spent: dict[str, Any], commits: int) -> tuple[str, ...]:
    remarks = [] if ended else ["not ended"]
    if ended.get("promised") is True:
        remarks.append("promise kept")
    if ended.get("changed") is False:
        remarks.append("changed nothing")
    if isinstance(ended.get("cut"), str):
        remarks.append(f"cut: {ended['cut']}")
    if ended.get("refused") is True:
        remarks.append("usage limit")
    if isinstance(spent.get("cost_usd"), int | float):
        remarks.append(dollars(spent["cost_usd"]))
    facts = {**spent, "commits": commits or None}
    remarks += [
        f"{label} {facts[label]}"
        for label in ("tokens", "commits")
        if isinstance(facts.get(label), int | float)
    ]
    return tuple(remarks)


def _words(event: dict[str, Any]) -> tuple[str, str, str]:
    """Return level, name and words of an event."""
    words = in_words(event)
    level, name = str(event.get("level", ""))[:20], str(event.get("event", "?"))[:60]
    return level, name, words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
