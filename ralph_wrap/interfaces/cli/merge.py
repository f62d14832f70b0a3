"""``ralph-wrap merge``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap import branches
from ralph_wrap.branches import Branch
from ralph_wrap.branches.dropped import find
from ralph_wrap.commands.merge import LandingResult, MergeMethod, land, problem, target_of
from ralph_wrap.config import of_project
from ralph_wrap.config.authority import needed_to_land
from ralph_wrap.errors import NotFoundError, RalphError, UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.approval_prompt import require, warn_of_programs
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, open_project, print_error
from ralph_wrap.interfaces.cli.fetch import fetch_first
from ralph_wrap.interfaces.cli.merge_on_complete import name_saved
from ralph_wrap.interfaces.cli.options import IDS, Directory, FetchedFrom, Json
from ralph_wrap.interfaces.cli.tampering import DespiteTampering, warn_of_tampering
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import one_line
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command

_SHOWN = 12  # digits of an object id


def merge(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help=IDS, autocompletion=completion.branches)],
    directory: Directory = Path(),
    into: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="The target branch. (default: the main branch)")
    ] = None,
    squash: Annotated[bool, typer.Option("--squash", help="Make one commit of each branch.")] = False,
    rebase: Annotated[
        bool, typer.Option("--rebase", help="Repeat each commit on the target, with its author.")
    ] = False,
    no_ff: Annotated[bool, typer.Option("--no-ff", help="Always make a merge commit.")] = False,
    best_order: Annotated[
        bool,
        typer.Option("--best-order", help="Merge the branches with the fewest conflicts first."),
    ] = False,
    remote: FetchedFrom = None,
    despite_tampering: DespiteTampering = False,
    json: Json = False,
) -> None:
    """Merge branches of sessions into a target branch, or change nothing and say why.

    Each branch is merged in a temporary worktree first, where the configured check must succeed, too. The
    target moves together with its checkout, which must be clean. Git hooks do not run; merged branches stay.
    """
    with boundary("merge", json=json, project=directory), SignalHandlers() as signals:
        method = _method(squash=squash, rebase=rebase, no_ff=no_ff)
        environ = become_owner(directory)
        warn_of_tampering(directory, environ, refuse=not despite_tampering)
        project = open_project(directory, environ)
        fetch_first(project, remote)
        settings = of_project(project.main, environ)
        require(project, settings, lambda key: key in needed_to_land(settings), signals)
        wanted = _wanted(project, ids)
        target = target_of(project, into, settings.main)
        main = _main(project, settings.main) if into else target.name
        warn_of_programs(project)
        landed = land(
            project,
            wanted,
            target,
            method=method,
            best_order=best_order,
            check=settings.landing_check,
            check_timeout=settings.check_timeout,
            main=main,
            cancel=signals.cancel,
        )
        try:
            _show(landed, json=json)
        except RalphError as error:
            if signals.cancel.first is None:
                raise
            print_error(error)
        finally:
            if signals.cancel.first is not None:
                raise SystemExit(128 + signals.cancel.first)


def _wanted(project: Project, names: Sequence[str]) -> list[Branch]:
    """Return the branches to merge, each once."""
    all_branches = branches.read(project)
    named = [_named(project, all_branches, name) for name in names]
    return list({branch.name: branch for branch in named}.values())


def _main(project: Project, configured: str | None) -> str | None:
    """Return the name of the main branch; ``None`` if there is none."""
    try:
        return branches.main_branch(project, configured).name
    except NotFoundError:
        return None


def _named(project: Project, all_branches: list[Branch], name: str) -> Branch:
    branch = find(project, all_branches, name)
    if name == branch.saved_name and not branch.only_saved:
        raise UsageError(
            f"{branch.saved_name} is saved work, which cannot be merged",
            command("ralph-wrap", "apply", branch.label),
        )
    return branch


def _method(*, squash: bool, rebase: bool, no_ff: bool) -> MergeMethod:
    switches = {MergeMethod.SQUASH: squash, MergeMethod.REBASE: rebase, MergeMethod.NO_FF: no_ff}
    chosen = [method for method, is_on in switches.items() if is_on]
    if len(chosen) > 1:
        raise UsageError("--squash, --rebase and --no-ff exclude each other", "give one of them")
    return chosen[0] if chosen else MergeMethod.MERGE


def _show(landed: Sequence[LandingResult], *, json: bool) -> None:
    data = [result._asdict() for result in landed]
    error = problem(landed)
    if not json:
        for result in landed:
            typer.echo("  ".join(map(one_line, words(result))))
        for result in landed:
            name_saved(result)
    conclude("merge", data, error, json=json)


def words(result: LandingResult) -> Iterator[str]:
    """Yield the cells of a branch's row; an error gives the reason why a branch is left."""
    yield result.branch
    yield result.outcome
    if result.outcome == "landed":
        yield f"{result.target} {(result.before or '')[:_SHOWN]}..{(result.after or '')[:_SHOWN]}"
        yield str(result.way)
    elif result.outcome == "nothing to do":
        yield f"{result.target} has {_already(result)} already"


def _already(result: LandingResult) -> str:
    if not result.detached:
        return "its changes"
    count = "1 commit" if result.detached == 1 else f"{result.detached} commits"
    return f"the branch, but not {count} of a detached HEAD,"
