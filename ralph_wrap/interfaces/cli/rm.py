"""``ralph-wrap rm``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import rm as use_case
from ralph_wrap.commands import sweep as sweeping
from ralph_wrap.commands.stop import stop
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, open_project, remark
from ralph_wrap.interfaces.cli.consent import require_consent
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import SessionEntry, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.state.wording import state_of
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import near

log = get_logger()


def rm(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help=IDS, autocompletion=completion.sessions)
    ] = None,
    directory: Directory = Path(),
    every: Annotated[
        bool,
        typer.Option("--all", help="Every session in the background, and every kept worktree; asks first."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")] = False,
    json: Json = False,
) -> None:
    """End background sessions, save their work and remove their worktrees. Branches stay."""
    with boundary("rm", json=json, project=directory):
        if bool(ids) == every:
            raise UsageError("either ids or --all must be given", "to list them: ralph-wrap ps")
        environ = become_owner(directory)
        project = open_project(directory, environ)
        names = ids or _all(project, yes=yes)
        reachable, foreign = use_case.without_foreign(project, names)
        stopped, problem = stop(project, reachable, StopMode.SOON)
        orphans = any(ended.outcome == "orphan" for ended in stopped)
        unfinished = sweeping.kept(sweeping.sweep(project)) if orphans else None
        names = [ended.session or ended.id for ended in stopped if ended.outcome != "unknown"]
        removed, failure = use_case.remove_all(project, names)
        data = [session._asdict() for session in removed]
        if not json:
            for session in removed:
                typer.echo(
                    "  ".join(
                        word
                        for word in (
                            session.session,
                            "removed" if session.removed else "gone",
                            session.saved,
                            _ignored(session.ignored, " went with it"),
                        )
                        if word
                    )
                )
        conclude("rm", data, unfinished or failure or problem or foreign, json=json)


def _all(project: Project, *, yes: bool) -> list[str]:
    """Return the sessions that ``--all`` stands for, after the user has seen them and said yes."""
    found = use_case.removable(project)
    for entry in found.others:
        stays = f"session {entry.session or entry.id} is {_state(entry)}, and stays"
        log.event("session.left", stays, hint=advice_for(Verdict(entry.verdict), entry.id))
    if not found.wanted:
        remark("no session has a worktree to remove")
        return []
    running = sum(entry.verdict == Verdict.LIVE.value for entry in found.wanted)
    stops = f" Those that run are stopped first: {running}." if running else ""
    require_consent(
        f"the worktrees of these sessions go.{stops} What is not committed is saved first, and the branches"
        " stay; ignored files are deleted:",
        [] if yes else [_row(entry, use_case.count_ignored(project, entry)) for entry in found.wanted],
        f"remove {len(found.wanted)}?",
        "ralph-wrap rm --all --yes",
        yes=yes,
    )
    return [entry.session or entry.id for entry in found.wanted]


def _row(entry: SessionEntry, ignored: int | None) -> str:
    words = (entry.id, _state(entry), near(entry.workspace or ""), entry.title, _ignored(ignored))
    return "  ".join(filter(None, words))


def _ignored(number: int | None, then: str = "") -> str:
    return f"{number} ignored file{'' if number == 1 else 's'}{then}" if number else ""


def _state(entry: SessionEntry) -> str:
    return state_of(entry.verdict, entry.ended_by, entry.state) or entry.verdict
