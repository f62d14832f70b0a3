"""``ralph-wrap clean``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import clean as use_case
from ralph_wrap.commands.clean import CleanedItem, Cleaning
from ralph_wrap.config import of_project
from ralph_wrap.errors import RalphError
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, open_project, print_lines
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import get_logger, one_line
from ralph_wrap.system.text import readable_size

log = get_logger()

_KEYS = ("keep_sessions", "keep_dropped", "max_output")


def clean(
    directory: Directory = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would go.")] = False,
    json: Json = False,
) -> None:
    """Delete old records and logs of sessions that have landed, and dropped branches that are due.

    Never touches a branch, or anything of a session whose work has not landed. sweep does the same.
    """
    with boundary("clean", json=json, project=directory):
        project = open_project(directory, become_owner(directory))
        cleaned = clean_project(project, dry_run=dry_run)
        if not json:
            print_lines([_line(item) for item in cleaned.items], "nothing is old")
        for failure in cleaned.failures[1:]:
            log.warning("clean.failed", failure.message, failure.hint or "")
        problem = cleaned.failures[0] if cleaned.failures else None
        conclude("clean", [item._asdict() for item in cleaned.items], problem, json=json)


def clean_project(project: Project, *, dry_run: bool) -> Cleaning:
    """Clean a project as its settings say.

    Raises:
        UsageError: something in the configuration file is wrong.
        UntrustedError: the user has not approved what the project says about this.

    """
    settings = of_project(project.main, project.environ, *_KEYS)
    return use_case.clean(
        project,
        keep_sessions=settings.keep_sessions,
        keep_dropped=settings.keep_dropped,
        max_output=settings.max_output,
        now=time.time(),
        dry_run=dry_run,
    )


def clean_beside(project: Project) -> None:
    """Clean a project as a part of another command: what goes is logged, and a failure stops nothing."""
    try:
        cleaned = clean_project(project, dry_run=False)
    except RalphError as error:
        log.warning("clean.failed", f"nothing old was deleted: {error.message}", error.hint or "")
        return
    for failure in cleaned.failures:
        log.warning("clean.failed", f"not everything old was deleted: {failure.message}", failure.hint or "")
    for action, kind, name in (
        ("deleted", "old thing", "clean.done"),
        ("shortened", "long log", "clean.shortened"),
    ):
        if gone := [item for item in cleaned.items if item.action == action]:
            size = readable_size(sum(item.size or 0 for item in gone))
            words = f"{len(gone)} {kind}{'' if len(gone) == 1 else 's'} {action}, {size}"
            log.event(name, words, names=[item.name for item in gone])


def _line(item: CleanedItem) -> str:
    size = None if item.size is None else readable_size(item.size)
    return one_line("  ".join(filter(None, (item.kind, item.name, item.action, size, item.note, item.title))))
