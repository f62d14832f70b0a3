"""The branches as one HTML file without scripts, which loads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from ralph_wrap import branches
from ralph_wrap.branches import Branch
from ralph_wrap.commands.review import Review, ReviewRow
from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import Git, compare, patch, resolve_commit
from ralph_wrap.git.patch import LogEntry
from ralph_wrap.interfaces.web import diff_view, static_files
from ralph_wrap.interfaces.web.conflict_matrix import matrix
from ralph_wrap.interfaces.web.templates import render
from ralph_wrap.state.project import Project, objects_of
from ralph_wrap.system.files import replace
from ralph_wrap.system.log import current, get_logger

log = get_logger()

_LINES = 1500  # changed lines of one branch
_ALL_LINES = 30_000  # changed lines of all branches: some 10 MB
_BRANCHES = 200  # branches that are compared line by line
_COMMITS = 50


class ReportSection(NamedTuple):
    """One branch: its row, the commits that the main branch lacks, its differences and its saved work.

    A branch without differences is merged, or the page is full (*omitted*).
    """

    row: ReviewRow
    commits: list[LogEntry]
    diff: diff_view.DiffView | None
    saved: diff_view.DiffView | None
    omitted: bool


def page(project: Project, review: Review, rows: Sequence[ReviewRow]) -> bytes:
    """Return the content of the file.

    Arguments:
        rows: the rows to show, in order.

    Raises:
        RalphError: there is no repository.

    """
    with objects_of(project) as objects:
        return _page(project, objects, review, rows)


def _page(project: Project, objects: Git, review: Review, rows: Sequence[ReviewRow]) -> bytes:
    all_branches = {branch.name: branch for branch in branches.read(project)}
    sections: list[ReportSection] = []
    lines_left = _ALL_LINES
    for number, row in enumerate(rows, 1):
        current().progress(f"branch {number} of {len(rows)}")
        branch = all_branches.get(row.branch)
        full = lines_left <= 0 or number > _BRANCHES
        if branch is None or full or (row.merged and not branch.saved):
            sections.append(ReportSection(row, [], None, None, bool(branch and full and not row.merged)))
            continue
        section = _section(objects, branch, row, review, min(_LINES, lines_left))
        sections.append(section)
        lines_left -= sum(view.added + view.deleted for view in (section.diff, section.saved) if view)
    current().progress("")
    style = static_files.CONTENT["app.css"].decode()
    return render(
        "report.html",
        project=project.root.name,
        root="",
        main=review.main,
        rows=rows,
        remarks=review.notes,
        sections=sections,
        matrix=matrix(rows),
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        style=Markup(style),  # noqa: S704 -- our own file
        digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    ).encode()


def _section(objects: Git, branch: Branch, row: ReviewRow, review: Review, lines: int) -> ReportSection:
    """Return the section of a branch; an error in one branch must not hide the others."""
    try:
        commits: list[LogEntry] = []
        diff = saved = None
        if not row.merged and not branch.only_saved:
            since = compare.landing_base(objects, review.main.tip, branch.tip) if review.main else branch.base
            if since is not None and resolve_commit(objects, since) is None:
                since = None
            commits = patch.history(objects, branch.tip, [since] if since else [], _COMMITS)
            old = since or compare.empty_tree(objects)
            diff = diff_view.diff(objects, old, branch.tip, lines=lines, whole=True)
        if branch.saved is not None:
            [saved_commit] = patch.history(objects, branch.saved, (), 1)
            old = saved_commit.parents[0] if saved_commit.parents else compare.empty_tree(objects)
            saved = diff_view.diff(objects, old, branch.saved, lines=lines, whole=True)
    except (GitError, ValueError):
        return ReportSection(row, [], None, None, omitted=True)
    return ReportSection(row, commits, diff, saved, omitted=False)


def write(
    project: Project,
    review: Review,
    rows: Sequence[ReviewRow],
    path: Path,
) -> None:
    """Write the file, or leave an existing file as it is.

    Arguments:
        rows: the rows to show, in order.
        path: the file; its directory exists.

    Raises:
        RalphError: the file cannot be written.

    """
    content = page(project, review, rows)
    try:
        replace(path, content, sync=False)
    except OSError as error:
        raise RalphError(f"cannot write {path}: {error.strerror}", "name another file") from None
    log.event("page.written", f"{path} shows {len(rows)} branches")
