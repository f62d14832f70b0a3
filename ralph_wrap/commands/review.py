"""Every branch below ``ralph/`` as a row: its session, its changes, and its conflicts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import branches, config
from ralph_wrap.branches import Branch, MainBranch, gitlinks, landing
from ralph_wrap.branches.compare import BranchComparison, compare
from ralph_wrap.branches.touches import Touch, without_tests
from ralph_wrap.errors import GitError, NotFoundError, RalphError, TamperedError, UsageError
from ralph_wrap.git import Git, Repository, existing_commits
from ralph_wrap.git.compare import facts_of
from ralph_wrap.state import check_results
from ralph_wrap.state.check_results import CheckResult
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import Project, objects_of, registries, repository_of
from ralph_wrap.state.report import gate_result
from ralph_wrap.state.session_files import waits_for_room, waits_until
from ralph_wrap.system.log import lines_of
from ralph_wrap.system.text import named, some
from ralph_wrap.worktree.save.clones import NESTED
from ralph_wrap.worktree.save.detached import DetachedCommits, detached_commits

_NAMED = 10  # repositories in branches that have a note

ONLY = ("live", "unmerged", "conflicting")
"""The filters of a list."""


class ReviewRow(NamedTuple):
    """One branch; ``None`` stands for an unknown value, or one that does not apply.

    Attributes:
        id: the agent id in its name.
        branch: its name.
        agent: the agent of its session.
        ended_by: the reason why its session ended.
        ended: the end of its session: UTC, ISO 8601.
        base: the recorded commit from which it started, else the merge base with the main branch.
        ahead: the number of its commits that the main branch lacks.
        behind: the number of commits of the main branch that it lacks.
        files: the number of files that it changes since the merge base.
        insertions: the number of lines that it adds.
        deletions: the number of lines that it deletes.
        saved: the branch that holds its saved work.
        merged: the main branch has it, by the same commits or by other commits with the same changes.
        conflicts_main: a merge into the main branch has conflicts.
        conflicts: branches with which a merge has conflicts, by id, or by name if they have none.
        overlaps: branches that change a file that it changes, by id or name.
        recorded: a session has recorded it.
        verdict: the verdict on its session, if it is not finished.
        committed: the time of its last commit: UTC, ISO 8601.
        check: the last result of the project's check on its merged tip: passed or failed.
        question: what its agent asks a person, if it is blocked.
        verify: the last result of its session's gate: passed, failed, or not run for the work as it was at
            the end; ``None`` without a gate.
        no_commits: it is still at the commit where its session recorded its start.
        saved_open: the main branch has it, but not its saved work.
        belongs_to: the branch that its session continued, if this one only holds the session's saved work.
        title: what people call its session; empty if that is not known.
        subject: the subject of its last commit.
        touches: the files that it changes and that other programs run, each with its kind. A kind is git,
            hooks, ci, editor, agent, build, executable, symlink (it leads out of the repository), gitlink (a
            repository of its own, which .gitmodules does not name: a merge does not bring its files), or, if
            there is a gate, tests: what the gate runs, the agent may have changed so that it passes.
        damage: why it is not compared: an object of it is damaged, missing, or holds something else than its
            name says.
        waits_until: the end of the usage limit for which its session waits: UTC, ISO 8601.
        waits_for_room: its session waits, because a disk is full.
        saved_commits: the number of commits below its saved work that it lacks: its agent made them on a
            detached HEAD.
        kept: the reason why the worktree of its session is still there; ``None`` if it is not.
        clones_removed: git repositories that went with the worktree: nothing in them was on no remote.

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
    question: str | None = None
    verify: str | None = None
    no_commits: bool = False
    saved_open: bool = False
    belongs_to: str | None = None
    title: str = ""
    subject: str | None = None
    touches: tuple[Touch, ...] | None = None
    damage: str | None = None
    saved_commits: int = 0
    kept: str | None = None
    clones_removed: tuple[str, ...] = ()
    waits_until: str | None = None
    waits_for_room: bool = False


class Review(NamedTuple):
    """The rows of all branches.

    Attributes:
        rows: the rows, newest first.
        main: the branch with which they are compared; ``None`` if there is none.
        notes: the facts that are missing, and why.

    """

    rows: list[ReviewRow]
    main: MainBranch | None
    notes: tuple[str, ...]


def look(project: Project) -> Review:
    """Return a row for each branch, the newest first, the main branch, and notes on missing facts.

    Raises:
        NotFoundError: the configured main branch does not exist.
        UsageError: the configuration cannot be read.
        RalphError: there is no repository, or a commit in it is missing.

    """
    repository = repository_of(project)
    settings = config.of_project(project.main, project.environ, "main")
    configured = settings.main
    all_branches = branches.read(project)
    notes: list[str] = []
    main = None
    try:
        main = branches.main_branch(project, configured)
    except NotFoundError as error:
        if configured:
            raise
        notes.append("; ".join([error.message, *lines_of(error.hint)]))
    if not configured:
        notes += landing.notes(project, main)
    with objects_of(project) as objects:
        facts, comparison_notes = compare(objects, repository, main, all_branches)
        landed = [branch for branch in all_branches if branch.saved and facts[branch.name].merged]
        try:
            saved_open = _with_open_saved_work(objects, repository, main, landed)
        except (GitError, TamperedError) as error:
            saved_open = {branch.name for branch in landed}
            comparison_notes.append(f"cannot find out which saved work has landed: {error}")
        detached: dict[str, DetachedCommits] = {}
        with contextlib.suppress(GitError):  # another note names what is damaged
            detached = detached_commits(objects, all_branches)
        bases = {branch.base for branch in all_branches if branch.base}
        recorded = {*existing_commits(objects, bases)}
    checked: Mapping[str, CheckResult] = {}
    try:
        checked = check_results.results(project)
    except RalphError as error:
        notes.append(f"no result of a check is shown: {error.message}; {error.hint}")
    rows = [
        _row(
            branch,
            facts[branch.name],
            branch.base if branch.base in recorded else None,
            checked.get(branch.tip),
            has_gate=bool(settings.verify),
        )._replace(
            saved_open=branch.name in saved_open,
            saved_commits=detached[branch.name].number if branch.name in detached else 0,
            **_waits(project, branch),
        )
        for branch in all_branches
    ]
    rows.sort(key=lambda row: row.ended or row.committed or "", reverse=True)
    return Review(rows, main, (*notes, *comparison_notes, *_gitlinks(rows), *_repositories(rows)))


def _waits(project: Project, branch: Branch) -> dict[str, Any]:
    """Return the fields that say for what the live session of a branch waits."""
    session = (branch.record or {}).get("session")
    if branch.verdict != Verdict.LIVE.value or not isinstance(session, str):
        return {}
    now = datetime.now(UTC)
    directories = [registry.sessions / session for registry in registries(project)]
    until = next(filter(None, (waits_until(directory, now) for directory in directories)), None)
    return {"waits_until": until, "waits_for_room": any(map(waits_for_room, directories))}


def _gitlinks(rows: Sequence[ReviewRow]) -> list[str]:
    """Return a line for each repository in a branch that a merge would bring without its files."""
    lines = [
        gitlinks.warning(row.branch, touch.path)
        for row in rows
        for touch in row.touches or ()
        if touch.kind == "gitlink" and not row.merged
    ]
    return some(lines, _NAMED)


def _repositories(rows: Sequence[ReviewRow]) -> list[str]:
    """Return a line for each worktree that a repository in it keeps, and for each whose clones have gone."""
    lines = [
        f"{row.branch}: its worktree stays ({row.kept}); for the way out: ralph-wrap rm {row.id}"
        for row in rows
        if row.kept and row.id and NESTED in row.kept
    ]
    lines += [
        f"{row.branch}: with its worktree went clones without work of their own:"
        f" {named(row.clones_removed, _NAMED)}"
        for row in rows
        if row.clones_removed and (not row.merged or row.saved_open)
    ]
    return some(lines, _NAMED)


def _with_open_saved_work(
    objects: Git, repository: Repository, main: MainBranch | None, landed: Sequence[Branch]
) -> set[str]:
    """Return the names of the branches whose saved work the main branch does not have.

    Saved work is a commit of files. Its second parent, if it has one, is a commit of the staged files.

    Arguments:
        landed: branches with saved work that the main branch has.

    """
    saved = {branch.name: branch.saved for branch in landed if branch.saved}
    if not saved:
        return set()
    commits = facts_of(objects, saved.values())
    parts = {
        name: (tip, *(commits[tip].parents[1:] if tip in commits else ())) for name, tip in saved.items()
    }
    oids = {oid for part in parts.values() for oid in part}
    facts, _ = compare(
        objects, repository, main, [landed[0]._replace(name=oid, tip=oid) for oid in oids], pairs=False
    )
    begun = {oid for fact in commits.values() for oid in fact.parents[:1]}
    commits = facts_of(objects, [*oids, *begun])

    def changes(oid: str, since: str) -> bool:
        fact, start = commits.get(oid), commits.get(since)
        return fact is None or start is None or fact.parents[:1] != (since,) or fact.tree != start.tree

    def is_open(branch: Branch) -> bool:
        tip, *staged = parts[branch.name]
        since = [branch.tip, *(commits[tip].parents[0] for _ in staged)]
        return any(
            facts[oid].ahead != 0 and not facts[oid].merged and changes(oid, start)
            for oid, start in zip((tip, *staged), since, strict=True)
        )

    return {branch.name for branch in landed if is_open(branch)}


def _row(
    branch: Branch,
    facts: BranchComparison,
    recorded_base: str | None,
    checked: CheckResult | None,
    *,
    has_gate: bool,
) -> ReviewRow:
    record = branch.record or {}
    change, touches = facts.change, facts.touches
    verify = gate_result(record.get("verify"))
    return ReviewRow(
        id=branch.id,
        branch=branch.name,
        agent=_text(record.get("agent")) or None,
        ended_by=_text(record.get("ended_by")),
        ended=_time(record.get("ended")),
        base=recorded_base or facts.base,
        ahead=facts.ahead,
        behind=facts.behind,
        files=change.files if change else None,
        insertions=change.insertions if change else None,
        deletions=change.deletions if change else None,
        saved=branch.saved_name,
        merged=facts.merged,
        conflicts_main=facts.conflicts_main,
        conflicts=facts.conflicts,
        overlaps=facts.overlaps,
        recorded=branch.record is not None,
        verdict=branch.verdict,
        committed=None if facts.time is None else _iso(facts.time),
        check=None if checked is None else "passed" if checked.passed else "failed",
        question=_text(record.get("question")),
        verify=verify,
        no_commits=facts.ahead == 0 and branch.tip == recorded_base,
        belongs_to=branch.belongs_to,
        title=branch.title,
        subject=facts.subject,
        touches=touches if has_gate or verify or touches is None else without_tests(touches),
        damage=facts.damage,
        kept=_kept(record),
        clones_removed=tuple(filter(None, map(_text, _listed(record.get("clones_removed"))))),
    )


def _kept(record: Mapping[str, Any]) -> str | None:
    """Return why a session's worktree is still there; a user may have removed it since the report."""
    kept, workspace = _text(record.get("kept")), _text(record.get("workspace"))
    return kept if kept and workspace and Path(workspace).is_dir() else None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _iso(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # a commit may claim any year
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def _time(value: Any) -> str | None:
    """Return a time in the form of our reports, else ``None``: an agent may have changed the file."""
    return value if isinstance(value, str) and _TIME.fullmatch(value) else None


def limited(rows: Sequence[ReviewRow], only: str | None) -> list[ReviewRow]:
    """Return the rows that pass a filter.

    Arguments:
        only: one of :data:`ONLY`; ``None`` for all.

    Raises:
        UsageError: there is no such filter.

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


def ordered(rows: Sequence[ReviewRow], field: str | None) -> list[ReviewRow]:
    """Return rows in the order of a field, rows without a value last.

    Arguments:
        rows: the rows, newest first; rows with equal values keep this order.
        field: a field of :class:`ReviewRow`; ``-`` before it reverses the order. Lists count by their length.
            ``None`` keeps the order.

    Raises:
        UsageError: there is no such field.

    """
    if field is None:
        return [*rows]
    name = field.removeprefix("-")
    if name not in ReviewRow._fields:
        raise UsageError(
            f"--sort {field!r}: there is no such field", f"known: {', '.join(ReviewRow._fields)}"
        )

    def key(row: ReviewRow) -> Any:
        value = getattr(row, name)
        return len(value) if isinstance(value, tuple) else value

    with_value = [row for row in rows if getattr(row, name) is not None]
    without = [row for row in rows if getattr(row, name) is None]
    return [*sorted(with_value, key=key, reverse=field.startswith("-")), *without]
