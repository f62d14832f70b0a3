"""Look at the repository before a command works in it: warn, or refuse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.state.audit.look import audit
from ralph_wrap.state.audit.warnings import log_findings, log_problem, tampered
from ralph_wrap.state.project import find_project_without_git

DespiteTampering = Annotated[
    bool,
    typer.Option(
        "--despite-tampering", help="Go on although ralph-wrap audit finds what you have not accepted."
    ),
]
"""The option of the commands that refuse."""


def warn_of_tampering(directory: Path, environ: Mapping[str, str], *, refuse: bool = False) -> None:
    """Log what the repository of a directory has that the user has not accepted; no git runs.

    Arguments:
        directory: the directory that the user names.
        refuse: raise an error instead.

    Raises:
        TamperedError: there is something, and the command refuses.

    """
    project = find_project_without_git(directory, environ)
    if project is None:
        return
    result = audit(project)
    if result.refused and refuse:
        raise tampered(result)
    log_problem(result.problem)
    log_findings(result.findings)
