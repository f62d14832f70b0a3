"""``ralph-wrap apply``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap import branches
from ralph_wrap.branches.dropped import find
from ralph_wrap.commands import apply as use_case
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.approval_prompt import warn_of_programs
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, open_project, remark
from ralph_wrap.interfaces.cli.options import ID, Json
from ralph_wrap.interfaces.cli.tampering import DespiteTampering, warn_of_tampering
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import get_logger, one_line
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command

log = get_logger()

log = get_logger()


def apply(
    name: Annotated[str, typer.Argument(metavar="ID", help=ID, autocompletion=completion.branches)],
    checkout: Annotated[
        Path | None,
        typer.Option(
            "--checkout", "-C", metavar="CHECKOUT", help="The checkout to change. (default: the main one)"
        ),
    ] = None,
    directory: Annotated[
        Path,
        typer.Option(
            "--project", metavar="DIR", envvar="RALPH_WRAP_PROJECT", help="The directory of the project."
        ),
    ] = Path(),
    despite_tampering: DespiteTampering = False,
    json: Json = False,
) -> None:
    """Put saved work into a checkout, all of it or nothing. Overwrites no file and stages nothing."""
    with boundary("apply", json=json, project=directory), SignalHandlers() as signals:
        environ = become_owner(checkout or directory)
        warn_of_tampering(checkout or directory, environ, refuse=not despite_tampering)
        project, top = _project_and_top(directory, checkout, environ)
        warn_of_programs(project)
        branch = find(project, branches.read(project), name)
        applied = use_case.apply(project, branch, top=top, cancel=signals.cancel)
        if json:
            answer("apply", applied._asdict())
            return
        for path in applied.files:
            typer.echo(one_line(path))
        for path in applied.submodules:
            log.warning("submodule.left", f"submodule {path} stays at its commit")
        if applied.files:
            remark(f"these files of {branch.saved_name} are in {applied.checkout} now, and not staged")
            if checkout is None and top != project.checkout:  # the user stands in a linked worktree
                here = command("ralph-wrap", "apply", branch.label, "-C", project.checkout)
                log.warning(
                    "apply.elsewhere",
                    f"{top} is the main checkout, not the one in which you are",
                    f"to put them into this one as well: {here}",
                )
        else:
            remark(f"nothing to do: {applied.checkout} has this work already")


def _project_and_top(
    directory: Path, checkout: Path | None, environ: Mapping[str, str]
) -> tuple[Project, Path]:
    """Return the project with the branch, and the top level of the checkout to change.

    A checkout of another repository is in another project, which has the branch.
    """
    project = open_project(directory, environ)
    if checkout is None:
        return project, project.main
    of_checkout = find_project(checkout, environ)
    repository, other = project.repository, of_checkout.repository
    if repository is None or (other and other.common_dir != repository.common_dir):
        project = of_checkout
    return project, of_checkout.checkout
