"""``ralph-wrap review --pr``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ralph_wrap.cli.boundary import answer, remark
from ralph_wrap.log import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.log import Log
    from ralph_wrap.project import Project


def pull_request(place: Project, environ: Mapping[str, str], name: str, told: Log, *, json: bool) -> None:
    """Open a pull request for a branch, and print where it is.

    Arguments:
        place: the project.
        environ: our environment.
        name: id or name of the branch.
        told: of what was done.
        json: print it as JSON.

    """
    from ralph_wrap.pullrequest import open_pull_request  # noqa: PLC0415 -- seldom asked for

    opened = open_pull_request(place, environ, name, told)
    if json:
        answer("review", opened._asdict())
        return
    typer.echo(one_line(opened.url))
    if not opened.created:
        remark(f"it was open already; {opened.branch} is pushed to {opened.remote}")
