"""The data of each page; the templates decide how it looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import Branch, MainBranch
from ralph_wrap.branches.dropped import find
from ralph_wrap.commands import diff as diffing
from ralph_wrap.commands import drop as dropping
from ralph_wrap.config import of_project
from ralph_wrap.errors import GitError, NotFoundError, UsageError
from ralph_wrap.git import Git, compare, list_refs, patch
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.patch import LogEntry
from ralph_wrap.interfaces.web import diff_view, tail, timeline
from ralph_wrap.interfaces.web.conflict_matrix import matrix
from ralph_wrap.interfaces.web.flash import FlashMessage, FlashMessages
from ralph_wrap.interfaces.web.review_cache import ReviewCache
from ralph_wrap.interfaces.web.table import BranchList, listing
from ralph_wrap.state import ids, inventory, report
from ralph_wrap.state.audit.look import audit
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import Project, objects_of, repository_of
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.text import some

_PATIENCE = 0.4  # seconds that a page waits for its rows; slower rows come with its next reload
_COMMITS = 100  # on a page
_COUNTED = 5000  # commits of a session that are counted for its iterations
_FINDINGS = 10  # on a page
_TAIL = 12  # lines of output of each live session
_LONG_TAIL = 200  # lines of output on the page of a session


class PageContext(NamedTuple):
    """The project that the pages show.

    Attributes:
        facts: the compared branches.
        notes: the results of buttons.
        read_only: there are no buttons.
        cancel: whether a signal has come.
        shadow: git in a shadow git directory, while a page is made; ``None`` if there is no repository.

    """

    project: Project
    facts: ReviewCache
    notes: FlashMessages
    read_only: bool
    cancel: CancelToken
    shadow: Git | None = None

    @property
    def objects(self) -> Git:
        """Git on the objects of the project."""
        repository_of(self.project)
        assert self.shadow is not None
        return self.shadow


class RunningSession(NamedTuple):
    """A session that is not finished, its age in seconds, and the end of its agent's output."""

    session: FoundSession
    age: int | None
    output: str


def overview(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the first page."""
    cached = context.facts.get(_PATIENCE)
    shown: BranchList | None = None
    picture = None
    if cached.review is not None:
        shown = listing(cached.review.rows, query)
        picture = matrix(cached.review.rows)
    return {
        "live": lives(context),
        "listing": shown,
        "matrix": picture,
        "main": cached.review.main if cached.review else None,
        "remarks": cached.review.notes if cached.review else (),
        "fresh": cached.fresh,
        "tampering": _tampering(context.project),
        "note": context.notes.get(query.get("note", "")),
    }


def _tampering(project: Project) -> FlashMessage | None:
    result = audit(project)
    lines = [finding.line for finding in result.findings]
    if not lines:
        return None
    title = "Git runs, reads or shows here what you have not accepted."
    title += " The button Merge refuses." if result.refused else ""
    why = [result.problem.message] if result.problem else []
    return FlashMessage(
        "failed", (title, *why, *some(lines, _FINDINGS)), "to see each in full: ralph-wrap audit"
    )


def live(context: PageContext, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the part of the first page that the script reloads."""
    return {"live": lives(context)}


def lives(context: PageContext) -> list[RunningSession]:
    """Return the sessions that are not finished, the newest first."""
    now = datetime.now(UTC)
    sessions = []
    for session in inventory.unfinished(context.project):
        age, output = None, ""
        if session.record is not None and session.directory is not None:
            age = max(0, int((now - ids.started(session.record.session)).total_seconds()))
            output = tail.output(session.directory, _TAIL)
        sessions.append(RunningSession(session, age, output))
    return sorted(sessions, key=lambda live: live.session.name, reverse=True)


def branch(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page of a branch: its commits and changes that the main branch lacks.

    Raises:
        NotFoundError: the branch does not exist.

    """
    branch, main = _branch(context, query)
    old, since = _origin(context, branch)
    skip = _number(query, "skip")
    commits: list[LogEntry] = []
    if not branch.only_saved:
        without = [main.tip] if main else [branch.base] if since and branch.base else []
        commits = patch.history(context.objects, branch.tip, without, _COMMITS + 1, skip)
    cached = context.facts.get(0)
    rows = cached.review.rows if cached.review else []
    return {
        "branch": branch,
        "main": main,
        "row": next((row for row in rows if row.branch == branch.name), None),
        "since": since,
        "commits": commits[:_COMMITS],
        "more": skip + _COMMITS if len(commits) > _COMMITS else None,
        "diff": diff_view.diff(context.objects, old, branch.tip),
        "note": context.notes.get(query.get("note", "")),
    }


def saved(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page of saved work, which was uncommitted.

    Raises:
        NotFoundError: the branch does not exist, or has no saved work.

    """
    branch, _ = _branch(context, query)
    if branch.saved is None:
        raise NotFoundError(f"{branch.name} has no saved work", "everything was committed")
    return {
        "branch": branch,
        "commit": _commit(context, branch.saved),
        "diff": _against_parent(context, branch.saved),
        "note": context.notes.get(query.get("note", "")),
    }


def dropped(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page of dropped branches, which can be restored."""
    project = context.project
    keep = of_project(project.main, project.environ, "keep_dropped").keep_dropped
    return {
        "rows": dropping.restorable(project, keep),
        "note": context.notes.get(query.get("note", "")),
    }


def against(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page that compares two branches, or shows one iteration.

    Raises:
        NotFoundError: a branch or the iteration does not exist.

    """
    name, other = query.get("name", ""), query.get("other", "")
    number = None if other else _number(query, "iteration")
    sides = diffing.sides(context.project, context.objects, name, other or None, iteration=number)
    return {
        "name": name,
        "other": other,
        "iteration": number,
        "diff": diff_view.diff(context.objects, sides.before, sides.after),
    }


def commit(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page of a commit.

    Raises:
        NotFoundError: the commit does not exist.

    """
    oid = _oid(query, "id")
    return {
        "commit": _commit(context, oid),
        "message": patch.message(context.objects, oid),
        "diff": _against_parent(context, oid),
        "name": query.get("name", ""),
    }


def file(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of one file of a difference.

    Raises:
        NotFoundError: the file does not differ.

    """
    old, new = _oid(query, "old"), _oid(query, "new")
    paths = [path for path in (query.get("path", ""), query.get("before", "")) if path]
    if not paths:
        raise UsageError("the address names no file", "open the file from the page of its branch")
    try:
        view = diff_view.one_file(context.objects, old, new, paths, _number(query, "from"))
    except GitError as error:
        raise NotFoundError(f"{old[:12]} or {new[:12]} does not exist: {error.message}") from None
    if view is None:
        raise NotFoundError(f"{paths[0]} does not differ between {old[:12]} and {new[:12]}")
    return {"view": view}


def session(context: PageContext, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the page of a session.

    Raises:
        UsageError: the name is not an id.
        NotFoundError: the session does not exist.

    """
    session = inventory.find(context.project, query.get("id", ""))
    now = datetime.now(UTC)
    events, output, session_report = [], "", None
    commits: list[LogEntry] = []
    if session.record is not None and session.directory is not None:
        events = tail.events(session.directory)
        output = tail.output(session.directory, _LONG_TAIL)
        session_report = report.read(session.directory / "report.json")
        commits = _commits_of(context, session.record.branch, session.record.base)
    ended = session.verdict is Verdict.FINISHED
    return {
        "session": session,
        "report": session_report.to_dict() if isinstance(session_report, report.SessionReport) else {},
        "story": timeline.build_timeline(events, commits, now),
        "output": output,
        "live": not ended,
        "is_newest": ended and inventory.find(context.project, session.id).name == session.name,
        "worktree": ended and _has_worktree(session),
        "note": context.notes.get(query.get("note", "")),
    }


def _has_worktree(session: FoundSession) -> bool:
    """Return whether the worktree of a session that has ended was kept; a plain session has none."""
    record = session.record
    return bool(record and record.branch and record.workspace and Path(record.workspace).is_dir())


PAGES: dict[str, Callable[[PageContext, Mapping[str, str]], dict[str, Any]]] = {
    "overview": overview,
    "live": live,
    "branch": branch,
    "saved": saved,
    "dropped": dropped,
    "commit": commit,
    "against": against,
    "file": file,
    "session": session,
}
"""The pages, by the names of their templates."""


def content(context: PageContext, name: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of a page.

    Raises:
        RalphError: the page cannot be made.
        OSError: no private directory can be made.

    """
    if context.project.repository is None:
        return PAGES[name](context, query)
    with objects_of(context.project) as objects:
        return PAGES[name](context._replace(shadow=objects), query)


def _branch(context: PageContext, query: Mapping[str, str]) -> tuple[Branch, MainBranch | None]:
    branch = find(context.project, branches.read(context.project), query.get("name", ""))
    return branch, main_of(context)


def main_of(context: PageContext) -> MainBranch | None:
    """Return the main branch, ``None`` if there is none."""
    try:
        return branches.main_branch(
            context.project, of_project(context.project.main, context.project.environ, "main").main or None
        )
    except NotFoundError:
        return None


def _origin(context: PageContext, branch: Branch) -> tuple[str, str]:
    """Return the commit from which a branch started, with words; without one the empty tree, and no words."""
    if branch.only_saved:
        return _parent(context, branch.tip), ""
    try:
        origin = diffing.origin_of(context.project, context.objects, branch, branch.tip)
    except NotFoundError:
        return compare.empty_tree(context.objects), ""
    if origin.remark:
        return origin.id, f"since it began at {origin.id[:12]}, as its session recorded"
    return origin.id, f"since it left {origin.main.name}" if origin.main and origin.id != branch.tip else ""


def _against_parent(context: PageContext, oid: str) -> diff_view.DiffView:
    return diff_view.diff(context.objects, _parent(context, oid), oid)


def _parent(context: PageContext, oid: str) -> str:
    """Return the first parent of a commit, or the empty tree."""
    parents = _commit(context, oid).parents
    return parents[0] if parents else compare.empty_tree(context.objects)


def _commit(context: PageContext, oid: str) -> LogEntry:
    try:
        [entry] = patch.history(context.objects, oid, (), 1)
    except (GitError, ValueError):
        raise NotFoundError(f"there is no commit {oid}") from None
    return entry


def _commits_of(context: PageContext, name: str | None, base: str | None) -> list[LogEntry]:
    """Return the commits on a session's branch; an agent may have changed the record and the branch."""
    if name is None or base is None or not is_oid(base) or context.project.repository is None:
        return []
    ref = f"{branches.HEADS}{name}"
    tip = list_refs(context.project.git, ref).get(ref)  # the ref is a pattern for git, and may match others
    try:
        return patch.history(context.objects, tip, [base], _COUNTED) if tip else []
    except GitError:
        return []


def _oid(query: Mapping[str, str], word: str) -> str:
    oid = query.get(word, "")
    if not is_oid(oid):
        raise UsageError(f"{word}: not an object id", "open the commit from the page of its branch")
    return oid


def _number(query: Mapping[str, str], word: str) -> int:
    value = query.get(word, "0")
    return int(value) if value.isdecimal() and value.isascii() and len(value) < 10 else 0  # noqa: PLR2004
