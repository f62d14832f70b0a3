"""``ralph-wrap review``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import review as use_case
from ralph_wrap.commands.pull_request import open as pull_request
from ralph_wrap.commands.pull_request.open import OpenedPullRequest
from ralph_wrap.commands.review import Review, ReviewRow
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.approval_prompt import require_push
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, open_project, remark
from ralph_wrap.interfaces.cli.fetch import fetch_first
from ralph_wrap.interfaces.cli.options import Directory, FetchedFrom
from ralph_wrap.interfaces.cli.tampering import DespiteTampering, warn_of_tampering
from ralph_wrap.state.project import Project
from ralph_wrap.state.wording import state_of
from ralph_wrap.system.log import get_logger, one_line

log = get_logger()

_NONE = "No session has left a branch. To start one: ralph-wrap run"
_RED, _GREEN, _FAINT, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"  # ECMA-48: SGR


def review(
    directory: Directory = Path(),
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="ahead, files, ended, …; -FIELD sorts downwards. (default: newest first)",
            rich_help_panel="List",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="live|unmerged|conflicting", help="List only these branches.", rich_help_panel="List"
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write one self-contained page with all differences.",
            rich_help_panel="Output",
        ),
    ] = None,
    pr: Annotated[
        str | None,
        typer.Option(
            "--pr",
            metavar="ID",
            help="Push this branch and open a pull request with gh; without gh, print its page.",
            autocompletion=completion.branches,
            rich_help_panel="Output",
        ),
    ] = None,
    remote: FetchedFrom = None,
    despite_tampering: DespiteTampering = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")] = False,
) -> None:
    """List the branches of sessions: their changes, whether they are merged, and their conflicts.

    AHEAD counts the commits that the main branch lacks.
    """
    with boundary("review", json=json, project=directory):
        if pr is not None and (sort or only or html):
            raise UsageError("--pr takes a single branch", "leave out --sort, --only and --html")
        write = _writer() if html else None
        environ = become_owner(directory)
        warn_of_tampering(directory, environ, refuse=pr is not None and not despite_tampering)
        use_case.ordered(use_case.limited([], only), sort)  # report a mistake before the work begins
        project = open_project(directory, environ)
        fetch_first(project, remote)
        if pr is not None:
            approve = partial(require_push, project)
            _show_pull_request(pull_request.open_pull_request(project, pr, approve), json=json)
            return
        reviewed = use_case.look(project)
        for note in reviewed.notes:
            log.warning("review.incomplete", note)
        rows = use_case.ordered(use_case.limited(reviewed.rows, only), sort)
        if write and html:
            write(project, reviewed, rows, html.absolute())
        if json:
            answer("review", [_fields(row) for row in rows])
            return
        if html:
            return
        if rows:
            width, colour = tables.of_terminal(), colour_of(environ)
            typer.echo(table(rows, datetime.now(UTC), width=width, colour=colour))
        else:
            typer.echo(f"No branch is {only}." if reviewed.rows else _NONE)


def _fields(row: ReviewRow) -> dict[str, object]:
    touches = None if row.touches is None else [touch._asdict() for touch in row.touches]
    return {**row._asdict(), "touches": touches}


def _show_pull_request(opened: OpenedPullRequest, *, json: bool) -> None:
    if json:
        answer("review", opened._asdict())
        return
    typer.echo(one_line(opened.url))
    if not opened.created and not opened.to_open:
        remark("the pull request was open already")


def _writer() -> Callable[[Project, Review, Sequence[ReviewRow], Path], None]:
    """Return the function that writes a page; its templates are read while we have the permission."""
    from ralph_wrap.interfaces.web import static_report, templates  # noqa: PLC0415 -- for a page alone

    templates.load()
    return static_report.write


def colour_of(environ: Mapping[str, str]) -> bool:
    """Return whether a table may have colours."""
    dumb = environ.get("TERM", "dumb") == "dumb"
    return sys.stdout.isatty() and not dumb and not environ.get("NO_COLOR")


def table(rows: Sequence[ReviewRow], now: datetime, *, width: int | None = None, colour: bool = False) -> str:
    """Return the branches as aligned columns.

    Arguments:
        rows: the branches.
        now: for their ages.
        width: columns of the terminal; long cells are cut, and columns left out; ``None`` shows all.
        colour: mark merged branches and branches with conflicts.

    """
    names = [name for name in _CELLS if name not in _SELDOM or any(map(_SELDOM[name], rows))]
    cells = [[tables.shown(_CELLS[name](row, now)) for name in names] for row in rows]
    lines = tables.aligned(names, cells, width, _GIVING_WAY, _HIDDEN_FIRST, "ralph-wrap review | less -S")
    marks = ["", *(_mark(row) if colour else "" for row in rows)]
    return "\n".join(
        f"{mark}{line}{_PLAIN}" if mark else line for line, mark in zip_longest(lines, marks, fillvalue="")
    )


def _mark(row: ReviewRow) -> str:
    if row.damage or row.conflicts_main or "failed" in {row.check, row.verify}:
        return _RED
    if row.verdict == "live":
        return _GREEN
    return _FAINT if row.merged and not row.saved_open else ""


def _age(row: ReviewRow, now: datetime) -> str | None:
    time = row.ended or row.committed
    return None if time is None else tables.age((now - datetime.fromisoformat(time)).total_seconds())


def _saved(row: ReviewRow) -> object:
    if row.saved_commits:
        return f"yes, {row.saved_commits} commit{'' if row.saved_commits == 1 else 's'}"
    return row.saved is not None


def _main(row: ReviewRow) -> str | None:
    if row.damage:
        return "damaged"
    if row.merged:
        return "nothing to merge" if row.no_commits else "merged"
    if row.conflicts_main is None:
        return None
    return "conflict" if row.conflicts_main else "clean"


_CELLS: dict[str, Callable[[ReviewRow, datetime], object]] = {
    "TITLE": lambda row, _: row.title,
    "LAST COMMIT": lambda row, _: row.subject,
    "BRANCH": lambda row, _: row.branch,
    "AGENT": lambda row, _: row.agent if row.recorded or row.agent else "not recorded",
    "STATE": lambda row, _: state_of(
        row.verdict, row.ended_by, waits_until=row.waits_until, waits_for_room=row.waits_for_room
    ),
    "AGE": _age,
    "AHEAD": lambda row, _: row.ahead,
    "BEHIND": lambda row, _: row.behind,
    "FILES": lambda row, _: row.files,
    "LINES": lambda row, _: None if row.files is None else f"+{row.insertions} -{row.deletions}",
    "SAVED": lambda row, _: _saved(row),
    "QUESTION": lambda row, _: row.question and " ".join(row.question.split()),
    "VERIFY": lambda row, _: row.verify,
    "CHECK": lambda row, _: row.check,
    "MAIN": lambda row, _: _main(row),
    "CONFLICTS": lambda row, _: row.conflicts,
    "OVERLAPS": lambda row, _: row.overlaps,
    "TOUCHES": lambda row, _: tuple(dict.fromkeys(touch.kind for touch in row.touches or ())),
    "BELONGS TO": lambda row, _: row.belongs_to,
}
_SELDOM: dict[str, Callable[[ReviewRow], object]] = {
    "TOUCHES": lambda row: row.touches,
    "QUESTION": lambda row: row.question,
    "VERIFY": lambda row: row.verify,
    "CHECK": lambda row: row.check,
    "BELONGS TO": lambda row: row.belongs_to,
}
_GIVING_WAY = (
    *(("AGENT", 12), ("LAST COMMIT", 12), ("TITLE", 12), ("OVERLAPS", 8)),
    *(("QUESTION", 24), ("TOUCHES", 8), ("BRANCH", 10), ("STATE", 13), ("BELONGS TO", 10), ("CONFLICTS", 9)),
)
_HIDDEN_FIRST = (
    *("BEHIND", "AGENT", "LINES", "OVERLAPS", "FILES", "AGE", "AHEAD", "BELONGS TO"),
    *("LAST COMMIT", "CHECK", "VERIFY", "SAVED", "STATE"),
)
"""Never the conflicts: they decide what to merge."""
