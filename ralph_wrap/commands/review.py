"""Every branch below ``ralph/`` as a row: whose it is, what it changes, and what stands in its way."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap import branches, config
from ralph_wrap.branches.compare import compare
from ralph_wrap.errors import GitError, NotFoundError, UsageError
from ralph_wrap.git.compare import facts_of
from ralph_wrap.state import check_results, project
from ralph_wrap.state.project import RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.branches import Branch, Main
    from ralph_wrap.branches.compare import Facts
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.check_results import Check
    from ralph_wrap.state.project import Project

ONLY = ("live", "unmerged", "conflicting")
"""Which rows a list can be limited to."""


class Row(NamedTuple):
    """One branch; ``None`` is not known, or does not apply.

    Attributes:
        id: the agent id that it is named by.
        branch: its name.
        agent: what its session runs, or ran.
        ended_by: what ended that.
        ended: when: UTC, ISO 8601.
        base: the commit that it started from as recorded, else the merge base with the main branch.
        ahead: commits that it has and the main branch lacks.
        behind: the reverse.
        files: how many files it changes since the merge base.
        insertions: lines.
        deletions: lines.
        saved: the branch that holds its saved work.
        merged: the main branch has it, by the same commits or by others that do the same.
        conflicts_main: it cannot be merged into the main branch without conflicts.
        conflicts: branches that it cannot be merged with, by id, or by name where they have none.
        overlaps: the same of those that change a file that it changes.
        recorded: a session has recorded it.
        verdict: on its session, if that is not finished.
        committed: when its last commit was made: UTC, ISO 8601.
        check: what the project's check last said of its tip, merged: passed or failed.
        no_commits: it is where its session began, as that has recorded.
        saved_open: the main branch has it, but not its saved work.
        belongs_to: the branch that its session went on with, where this one only holds what that has saved.

    """

    id: str | None
    branch: str
    agent: str | None
    ended_by: str | None
    ended: str | None
    base: str | None
    ahead: int | None
    behind: int | None
    files: int | None
    insertions: int | None
    deletions: int | None
    saved: str | None
    merged: bool | None
    conflicts_main: bool | None
    conflicts: tuple[str, ...] | None
    overlaps: tuple[str, ...] | None
    recorded: bool
    verdict: str | None = None
    committed: str | None = None
    check: str | None = None
    no_commits: bool = False
    saved_open: bool = False
    belongs_to: str | None = None


class Review(NamedTuple):
    """All of them.

    Attributes:
        rows: the newest first.
        main: the branch that they are held against; ``None`` if there is none.
        notes: what could not be told, and why.

    """

    rows: list[Row]
    main: Main | None
    notes: tuple[str, ...]


def review(place: Project, environ: Mapping[str, str]) -> list[Row]:
    """Return a row for each branch, the newest first: see :func:`look`."""
    return look(place, environ).rows


def look(place: Project, environ: Mapping[str, str]) -> Review:
    """Return a row for each branch, and what could not be told.

    Raises:
        NotFoundError: the configured main branch is not there.
        UsageError: the configuration cannot be read.
        RalphError: there is no repository, or a commit in it is missing.

    """
    repository = project.repository_of(place)
    where = place.git(environ)
    configured = config.of_project(place.root).main
    found = branches.read(place, environ)
    notes: list[str] = []
    main = None
    try:
        main = branches.main_branch(place, where, configured)
    except NotFoundError as error:
        if configured:
            raise
        notes.append(f"{error.message}; {error.hint}")
    facts, more = compare(where, repository, main, found)
    landed = [one for one in found if one.saved and facts[one.name].merged]
    try:
        left = _left(where, repository, main, landed)
    except GitError as error:
        left = {one.name for one in landed}
        more.append(f"what of saved work has landed cannot be told: {error}")
    recorded = facts_of(where, [one.base for one in found if one.base])
    checked = check_results.results(place.root / RUN)
    rows = [
        _row(one, facts[one.name], one.base if one.base in recorded else None, checked.get(one.tip))._replace(
            saved_open=one.name in left
        )
        for one in found
    ]
    rows.sort(key=lambda row: row.ended or row.committed or "", reverse=True)
    return Review(rows, main, (*notes, *more))


def _left(where: Git, repository: Repository, main: Main | None, landed: Sequence[Branch]) -> set[str]:
    """Return the names of those branches whose saved work the main branch does not have.

    Saved work is a commit of files, and perhaps one of what was staged: its second parent.

    Arguments:
        landed: branches that it has, with saved work.

    """
    saved = {one.name: one.saved for one in landed if one.saved}
    if not saved:
        return set()
    known = facts_of(where, saved.values())
    parts = {name: (tip, *(known[tip].parents[1:] if tip in known else ())) for name, tip in saved.items()}
    asked = {oid for row in parts.values() for oid in row}
    facts, _ = compare(
        where, repository, main, [landed[0]._replace(name=oid, tip=oid) for oid in asked], pairs=False
    )
    begun = {oid for fact in known.values() for oid in fact.parents[:1]}
    known = facts_of(where, [*asked, *begun])

    def changes(oid: str, since: str) -> bool:
        fact, start = known.get(oid), known.get(since)
        return fact is None or start is None or fact.parents[:1] != (since,) or fact.tree != start.tree

    def is_left(one: Branch) -> bool:
        tip, *staged = parts[one.name]
        since = [one.tip, *(known[tip].parents[0] for _ in staged)]
        return any(
            facts[oid].ahead != 0 and not facts[oid].merged and changes(oid, start)
            for oid, start in zip((tip, *staged), since, strict=True)
        )

    return {one.name for one in landed if is_left(one)}


def _row(one: Branch, facts: Facts, recorded_base: str | None, checked: Check | None) -> Row:
    told = one.record or {}
    change = facts.change
    return Row(
        id=one.id,
        branch=one.name,
        agent=_text(told.get("agent")) or None,
        ended_by=_text(told.get("ended_by")),
        ended=_time(told.get("ended")),
        base=recorded_base or facts.base,
        ahead=facts.ahead,
        behind=facts.behind,
        files=change.files if change else None,
        insertions=change.insertions if change else None,
        deletions=change.deletions if change else None,
        saved=one.saved_name,
        merged=facts.merged,
        conflicts_main=facts.conflicts_main,
        conflicts=facts.conflicts,
        overlaps=facts.overlaps,
        recorded=one.record is not None,
        verdict=one.verdict,
        committed=None if facts.time is None else _iso(facts.time),
        check=None if checked is None else "passed" if checked.passed else "failed",
        no_commits=facts.ahead == 0 and one.tip == recorded_base,
        belongs_to=one.belongs_to,
    )


def _iso(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # a commit may claim any year
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def _time(value: Any) -> str | None:
    """Return a time as our reports have it; nothing else, whatever somebody made of the file."""
    return value if isinstance(value, str) and _TIME.fullmatch(value) else None


def limited(rows: Sequence[Row], only: str | None) -> list[Row]:
    """Return the rows of a kind.

    Arguments:
        only: one of :data:`ONLY`; ``None`` for all.

    Raises:
        UsageError: there is no such kind.

    """
    if only == "live":
        return [row for row in rows if row.verdict == "live"]
    if only == "unmerged":
        return [row for row in rows if not row.merged or row.saved_open]
    if only == "conflicting":
        return [row for row in rows if row.conflicts_main or row.conflicts]
    if only is None:
        return [*rows]
    raise UsageError(f"--only {only!r} is none of {', '.join(ONLY)}", "ralph-wrap review --help")


def ordered(rows: Sequence[Row], field: str | None) -> list[Row]:
    """Return rows in the order of a field, those without a value last.

    Arguments:
        rows: the newest first, which is how those stay that are the same.
        field: of :class:`Row`, lists by their length; with ``-`` in front downwards. ``None`` is as they are.

    Raises:
        UsageError: there is no such field.

    """
    if field is None:
        return [*rows]
    name = field.removeprefix("-")
    if name not in Row._fields:
        raise UsageError(f"--sort {field!r}: there is no such field", f"known: {', '.join(Row._fields)}")

    def key(row: Row) -> Any:
        value = getattr(row, name)
        return len(value) if isinstance(value, tuple) else value

    with_value = [row for row in rows if getattr(row, name) is not None]
    without = [row for row in rows if getattr(row, name) is None]
    return [*sorted(with_value, key=key, reverse=field.startswith("-")), *without]
