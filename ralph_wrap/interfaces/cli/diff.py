"""``ralph-wrap diff``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import diff as use_case
from ralph_wrap.errors import RalphError
from ralph_wrap.git import immune_config, immune_environment
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, open_project
from ralph_wrap.interfaces.cli.fetch import fetch_first
from ralph_wrap.interfaces.cli.options import ID, Directory, FetchedFrom
from ralph_wrap.interfaces.cli.tampering import warn_of_tampering
from ralph_wrap.state.project import objects_of
from ralph_wrap.system import signals
from ralph_wrap.system.log import get_logger

log = get_logger()

_SHOWING = (
    "GIT_PAGER",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
)  # git(1): variables by which the user chooses the output


def diff(
    branch: Annotated[str, typer.Argument(metavar="ID", help=ID, autocompletion=completion.branches)],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="ID2", help="Another branch to compare it with.", autocompletion=completion.branches
        ),
    ] = None,
    directory: Directory = Path(),
    stat: Annotated[
        bool, typer.Option("--stat", help="Print only the files and the number of changed lines.")
    ] = False,
    saved: Annotated[
        bool,
        typer.Option(
            "--saved", help="Include saved work; of a session that runs, what is not committed now."
        ),
    ] = False,
    iteration: Annotated[
        int | None, typer.Option(metavar="N", help="Only this iteration, as its session recorded it.")
    ] = None,
    remote: FetchedFrom = None,
) -> None:
    """Show the changes of a branch since it began, or the difference between two branches.

    It shows what a merge would land: the changes since the merge base with the main branch. Runs git diff
    with your pager and your own git settings; those of the repository do not count.
    """
    with boundary("diff", json=False, project=directory):
        environ = become_owner(directory)
        warn_of_tampering(directory, environ)
        project = open_project(directory, environ)
        fetch_first(project, remote)
        with contextlib.ExitStack() as stack:
            objects, picture = stack.enter_context(objects_of(project)), None
            if saved and other is None and iteration is None:
                picture = stack.enter_context(use_case.uncommitted(project, objects, branch))
            if picture is not None:
                objects = picture.objects
                for line in picture.missing:
                    log.warning("diff.incomplete", line)
            sides = use_case.sides(
                project, objects, branch, other, saved=saved, iteration=iteration, picture=picture
            )
            for name in sides.lacking:
                log.warning("work.missing", f"{name} has no saved work")
            if sides.remark:
                log.warning("base.recorded", f"{sides.remark}: only the session's record says where it began")
            if use_case.are_same(objects, sides):
                words = f"{branch} and {other} have the same files" if other else f"{branch} has no changes"
                if iteration is not None:
                    words = f"iteration {iteration} of {branch} changed no file"
                hint = "" if saved or other or iteration is not None else use_case.hint(project, branch)
                log.event("diff.empty", words, **({"hint": hint} if hint else {}))
                return
            shown = {name: environ[name] for name in _SHOWING if name in environ}
            sub_command = ("diff", "--stat") if stat else ("diff",)
            order = use_case.order_file(objects, sides)
            order_option = () if order is None else (f"-O{order}",)
            argv = ("git", "-C", project.checkout, *immune_config(objects), *sub_command, *order_option)
            try:
                status = signals.run_in_foreground(
                    (*argv, sides.before, sides.after, "--"), immune_environment(objects) | shown
                )
            except OSError as error:
                raise RalphError(f"git cannot be run: {error.strerror}", "check the PATH") from None
        if status:
            raise SystemExit(status)
