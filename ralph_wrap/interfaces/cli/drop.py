"""``ralph-wrap drop`` and ``ralph-wrap restore``."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import drop as use_case
from ralph_wrap.commands.drop import DroppedBranch, RestorableBranch
from ralph_wrap.commands.drop.safety import DropSelection, PreviewedTips
from ralph_wrap.config import duration, of_project
from ralph_wrap.errors import RalphError, RefusedError, UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.boundary import (
    answer,
    become_owner,
    boundary,
    open_project,
    print_error,
    refuse,
    remark,
)
from ralph_wrap.interfaces.cli.consent import require_consent
from ralph_wrap.interfaces.cli.fetch import fetch_first
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json
from ralph_wrap.interfaces.cli.tampering import warn_of_tampering
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import Commands, get_logger, one_line
from ralph_wrap.system.text import command, named

log = get_logger()

_SHOWN = 12  # digits of an object id
_LOST = 10  # names that a line about lost work has


def drop(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID…", help=IDS, autocompletion=completion.branches)
    ] = None,
    directory: Directory = Path(),
    every: Annotated[
        bool, typer.Option("--all", help="All branches of sessions; names them and asks first.")
    ] = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="All branches that are merged into the main branch.")
    ] = False,
    empty: Annotated[
        bool, typer.Option("--empty", help="All branches with neither commits nor saved work.")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only branches unchanged for this time (14d); used alone, it selects from all branches.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Drop a branch even if work would be lost; restore can bring it back."),
    ] = False,
    forever: Annotated[
        bool,
        typer.Option(
            "--forever",
            help="Delete for ever what is dropped, or was dropped before; names it and asks first.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --all and --forever: ask no question.")
    ] = False,
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Fetch from this remote first, and delete there what the sessions have."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Delete merged branches with their saved work; restore brings them back for 30 days.

    Refuses branches that are not merged, and saved work that exists nowhere else. The message lists both.
    """
    with boundary("drop", json=json, project=directory):
        if every and (ids or merged or empty or older_than):
            raise UsageError("--all stands alone", "ralph-wrap drop --all")
        if forever and remote:
            raise UsageError(
                "--forever is for this repository alone, and --remote for another one, too",
                "first: ralph-wrap drop ID… --remote NAME; then: ralph-wrap drop --forever ID…",
            )
        wanted = DropSelection(tuple(ids or ()), merged, empty, _seconds(older_than), force, forever)
        environ = become_owner(directory)
        warn_of_tampering(directory, environ)
        project = open_project(directory, environ)
        keep = of_project(project.main, environ, "keep_dropped").keep_dropped
        for name in use_case.expire(project, keep, time.time()):
            log.event("branch.expired", f"{name}, which was dropped earlier, can no longer be restored")
        fetch_first(project, remote, again=wanted.names)
        refused: list[DroppedBranch] = []
        if forever and not every:
            use_case.require_selection(wanted)
        before = use_case.dropped_before(project, wanted.names) if forever else {}
        wanted = wanted._replace(names=tuple(name for name in wanted.names if name not in before))
        if every:
            tips, refused = _all(project, wanted, yes=yes or forever)
            wanted = wanted._replace(names=tuple(tips), previewed=tips)
        if forever:
            wanted = _confirmed(project, wanted, before.values(), yes=yes)
        rows, failures = (
            use_case.drop(project, wanted, time.time(), remote)
            if wanted.names or not (every or before or wanted.previewed is not None)
            else ([], [])
        )
        if forever:
            rows = use_case.forget(project, [*rows, *before.values()], time.time())
        if refused:
            rows, failures = [*rows, *refused], [*failures, _refusal_of(refused, forever=forever)]
        if remote is None:
            _warn_of_copies(rows, force=force)
        _show(rows, failures, json=json)


def _confirmed(
    project: Project, wanted: DropSelection, before: Collection[DroppedBranch], *, yes: bool
) -> DropSelection:
    """Return the selection, after the user has seen what goes for ever and has said yes.

    Arguments:
        before: the branches that were dropped before, and go, too.

    """
    going = [*before]
    if wanted.names or not before:
        found = use_case.preview(project, wanted, time.time())
        going += found.going
        if not wanted.names:
            wanted = DropSelection(tuple(found.tips), force=wanted.force, forever=True, previewed=found.tips)
    if going:
        require_consent(
            "these branches go for ever, with their saved work and snapshots. Nothing can bring them back:",
            ["  ".join(filter(None, (row.branch, row.title, _loss(row)))) for row in going],
            f"delete {len(going)} for ever?",
            command(
                *("ralph-wrap", "drop", "--forever", "--yes"),
                *["--force"] * wanted.force,
                *(row.id or row.branch for row in going),
            ),
            yes=yes,
        )
    return wanted


def _all(
    project: Project, wanted: DropSelection, *, yes: bool
) -> tuple[dict[str, PreviewedTips], list[DroppedBranch]]:
    """Return the branches that ``--all`` drops, after the user has said yes, and those with work to lose."""
    found = use_case.preview(project, wanted, time.time())
    for row in found.in_use:
        log.event("branch.left", str(row.kept))
    if found.going:
        require_consent(
            "these branches go, with their saved work. ralph-wrap restore brings them back for some time:",
            ["  ".join(filter(None, (row.branch, row.title, _loss(row)))) for row in found.going],
            f"drop {len(found.going)}?",
            command("ralph-wrap", "drop", "--all", *["--force"] * wanted.force, "--yes"),
            yes=yes,
        )
    return found.tips, found.refused


def _loss(row: DroppedBranch) -> str:
    return f"LOST: {named(row.lost, _LOST)}" if row.lost else ""


def _refusal_of(refused: Sequence[DroppedBranch], *, forever: bool) -> RefusedError:
    """Return the error for all branches that stay because their work would be lost."""
    again = command("ralph-wrap", "drop", "--all", *["--forever"] * forever, "--force")
    names = named([row.branch for row in refused], _LOST)
    return RefusedError(
        f"kept, because their work would be lost: {names}",
        Commands.of(
            "to see it: ralph-wrap review --only unmerged",
            f"to drop them, too: {again}",
        ),
    )


def _warn_of_copies(rows: Sequence[DroppedBranch], *, force: bool) -> None:
    """Say which remotes still have dropped sessions; the next fetch of another machine would bring them."""
    for name in sorted({name for row in rows for name in row.remotes}):
        ids = " ".join(str(row.id) for row in rows if name in row.remotes)
        again = command("ralph-wrap", "drop", *ids.split(), "--remote", name, *["--force"] * force)
        log.event(
            "remote.copies",
            f"{name} still has {ids}",
            hint=f"to delete that, too: {again}",
        )


def _show(rows: Sequence[DroppedBranch], failures: Sequence[RalphError], *, json: bool) -> None:
    data = [row._asdict() for row in rows]
    if not json:
        for line in filter(None, map(_line, rows)):
            typer.echo(line)
        if not rows:
            remark("no branches match")
    if json and failures:
        message = "; ".join(failure.message for failure in failures)
        refuse("drop", type(failures[0])(message, failures[0].hint), data=data)
    elif json:
        answer("drop", data)
    else:
        for failure in failures:
            print_error(failure)
    if failures:
        raise SystemExit(failures[0].exit_code)


def _line(row: DroppedBranch) -> str:
    if not row.dropped:
        return ""
    if not row.tip:
        return one_line(f"{row.branch}  deleted on {' '.join(row.remotes)}")
    saved = f"  with {row.saved}" if row.saved and row.saved != row.branch else ""
    action = "deleted for ever" if row.forever else "dropped"
    return one_line(f"{row.branch}  {action} at {row.tip[:_SHOWN]}{saved}")


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else duration(text)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}", "ralph-wrap drop --help") from None


def restore(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="An id, the name, or the title of the dropped branch.",
            autocompletion=completion.dropped,
        ),
    ] = None,
    project: Directory = Path(),
    json: Json = False,
) -> None:
    """Bring back a dropped branch and its saved work; without an ID, list what can be brought back."""
    with boundary("restore", json=json, project=project):
        environ = become_owner(project)
        found = find_project(project, environ)
        if name is None:
            keep = of_project(found.main, environ, "keep_dropped").keep_dropped
            _list(use_case.restorable(found, keep), json=json)
            return
        restored = use_case.restore(found, name, time.time())
        if json:
            answer("restore", restored._asdict())
            return
        typer.echo(one_line("  ".join(filter(None, (restored.branch, restored.saved, "restored")))))


def _list(rows: Sequence[RestorableBranch], *, json: bool) -> None:
    if json:
        answer("restore", [row._asdict() for row in rows])
    elif rows:
        cells = [[tables.shown(cell(row)) for cell in _CELLS.values()] for row in rows]
        wider = "ralph-wrap restore | less -S"
        lines = tables.aligned(
            [*_CELLS], cells, tables.of_terminal(), (("TITLE", 16),), ("TIP", "SAVED"), wider
        )
        typer.echo("\n".join(lines))
    else:
        typer.echo("Nothing that was dropped can be restored.")


def _shown_time(moment: str | None) -> str | None:
    return None if moment is None else f"{moment[:16].replace('T', ' ')} UTC"


_CELLS: dict[str, Callable[[RestorableBranch], object]] = {
    "TITLE": lambda row: row.title,
    "BRANCH": lambda row: row.branch or row.saved,
    "TIP": lambda row: row.tip and row.tip[:_SHOWN],
    "SAVED": lambda row: row.saved is not None,
    "DROPPED": lambda row: _shown_time(row.dropped),
    "EXPIRES": lambda row: _shown_time(row.expires) or "never",
}
