"""Turn each error into a message and an exit status; no other module does."""

from __future__ import annotations

import json as json_format
import os
import select
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ralph_wrap.branches.intake import import_bundles
from ralph_wrap.errors import RalphError, explained
from ralph_wrap.state.project import Project, find_project, has_clones
from ralph_wrap.system import privileges
from ralph_wrap.system.log import Log, current, get_logger
from ralph_wrap.system.text import location

log = get_logger()

VERSION = 1
"""The version of the JSON envelope."""

_READER_LEFT = 141  # 128 + SIGPIPE, as in a shell; Python ignores this signal


@contextmanager
def boundary(
    tool: str, *, json: bool, project: Path | None = None, messages: Log | None = None
) -> Iterator[None]:
    """Turn an error into a message on stderr, or the envelope on stdout, and its exit status.

    Arguments:
        tool: the command, for the envelope.
        json: whether the command prints JSON.
        project: the directory that the user names, for the commands in hints.
        messages: where events and messages go; normally the log in use, or a new one.

    """
    messages = messages or current()
    if project:
        messages.location = location(project)
    with messages.in_use(), _errors_as_messages(tool, json=json), _stdout_written():
        yield


@contextmanager
def _errors_as_messages(tool: str, *, json: bool) -> Iterator[None]:
    try:
        yield
    except (OSError, RalphError) as error:
        expected = explained(error) if isinstance(error, OSError) else error
        with _stdout_written():
            if json:
                refuse(tool, expected)
            else:
                print_error(expected)
        raise SystemExit(expected.exit_code) from None
    except Exception as error:  # noqa: BLE001 -- a bug must not end with a status that looks like an agent's
        print_error(
            RalphError(f"ralph-wrap failed: {error!r}", "please report this, with the traceback below")
        )
        traceback.print_exc()
        raise SystemExit(RalphError.exit_code) from None


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Explain a failed import: an optional part of the package may not be installed.

    Arguments:
        name: of the command, and of the extra that it needs.

    Raises:
        RalphError: the import failed.

    """
    try:
        yield
    except ImportError as error:
        raise RalphError(
            f"{name}: the optional dependencies are not installed, or too old ({error})",
            f"in a clone of ralph-wrap: uv tool install '.[{name}]' (or pipx install --force '.[{name}]')",
        ) from error


@contextmanager
def _stdout_written() -> Iterator[None]:
    """Write all output at the end. If the reader of stdout has gone, end without an error message."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # a parent may start ralph-wrap with stdout closed
                sys.stdout.flush()
    except BrokenPipeError:
        stdout = select.poll()
        stdout.register(1, 0)
        if not stdout.poll(0):  # another pipe is broken, not stdout
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout again at exit
        raise SystemExit(_READER_LEFT) from None


def become_owner(project: Path) -> dict[str, str]:
    """Give up root if another user owns the project, and return the environment to use from here on.

    Python may be installed where only root can read, so nothing is imported after that.

    Arguments:
        project: the directory that the user names.

    Raises:
        RalphError: the kernel refuses the change of user.

    """
    current().location = location(project)
    return privileges.become_owner(project, os.environ)


def open_project(directory: Path, environ: Mapping[str, str]) -> Project:
    """Find a project, and take in what its clones have written since.

    Arguments:
        directory: the directory that the user names.
        environ: of the owner of the project.

    Raises:
        UsageError: the directory does not exist, or is not a directory.

    """
    project = find_project(directory, environ)
    if project.repository is not None and has_clones(project):
        for taken in import_bundles(project):
            if taken.problem is not None:
                log.warning("work.not_taken_in", taken.problem.message, taken.problem.hint or "")
            else:
                log.event("work.taken_in", session=taken.session, refs=list(taken.refs))
    return project


def answer(tool: str, data: Any) -> None:
    """Print the envelope around an answer."""
    _print({"version": VERSION, "success": True, "tool": tool, "data": data})


def refuse(tool: str, error: RalphError, **answered: Any) -> None:
    """Print the envelope around an error.

    Arguments:
        tool: the command.
        error: why the command does not end with 0.
        answered: ``data``, if the command also has an answer.

    """
    failure = {"code": error.code, "message": error.message, "hint": error.hint}
    _print({"version": VERSION, "success": False, "tool": tool, "error": failure, **answered})


def conclude(tool: str, data: Any, problem: RalphError | None, *, json: bool) -> None:
    """End a command that has an answer and maybe a problem: print the envelope, or raise the problem.

    Arguments:
        tool: the command.
        data: the answer. Without *json* the command has printed it already.
        problem: why the command does not end with 0; ``None`` if it does.
        json: print JSON.

    Raises:
        RalphError: the problem, without *json*.
        SystemExit: the problem was printed as JSON.

    """
    if problem is None:
        if json:
            answer(tool, data)
        return
    if not json:
        raise problem
    refuse(tool, problem, data=data)
    raise SystemExit(problem.exit_code)


def print_lines(lines: Sequence[str], empty: str) -> None:
    """Print an answer for people.

    Arguments:
        lines: of the answer.
        empty: what explains an answer without a line.

    """
    for line in lines:
        typer.echo(line)
    if not lines:
        remark(empty)


def remark(message: str) -> None:
    """Explain an empty answer, on stderr; a program sees that stdout is empty."""
    log.event("answer.empty", message)


def _print(envelope: dict[str, Any]) -> None:
    sys.stdout.write(json_format.dumps(envelope) + "\n")


def print_error(error: RalphError) -> None:
    """Print an error and its hint on stderr."""
    log.error("error.raised", error.message, error.hint, code=error.code)
