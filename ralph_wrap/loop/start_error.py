"""Explain why an agent could not start, and how to fix it."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from ralph_wrap.errors import AgentError, AgentNotFoundError, RalphError


def unstarted(error: OSError, command: str, cwd: Path, project: Path, *, isolated: bool) -> RalphError:
    """Return the error that ends the session.

    Arguments:
        error: the error of ``execvp(3)``.
        command: the program of the agent.
        cwd: the working directory.
        project: the directory that the user named; there the user can commit the program.
        isolated: *cwd* is in a worktree, so its files come from a commit.

    """
    program = cwd / command
    relative = not command.startswith("/")
    if isinstance(error, FileNotFoundError):
        if not cwd.is_dir():
            return RalphError(f"the workspace {cwd} is gone")
        message, hint = f"agent command {command} was not found in {cwd}", "name a file that exists"
        if program.is_file():
            hint = "the file exists, but the interpreter in its first line does not"
        elif relative and isolated:
            commit = _in_project(project, f"git add {shlex.quote(command)} && git commit")
            hint = f"the worktree has only committed files: {commit}"
        return AgentNotFoundError(message, hint)
    hint = ""
    if error.errno == errno.ENOEXEC:
        hint = "its first line must name an interpreter: #!/bin/sh"
    elif program.is_file() and not os.access(program, os.X_OK):
        hint = f"chmod +x {shlex.quote(command)}"
        if relative:
            hint = _in_project(project, hint + (f" && git commit {shlex.quote(command)}" if isolated else ""))
    return AgentError(f"agent command {command} cannot be run: {error.strerror}", hint)


def _in_project(project: Path, command: str) -> str:
    return command if project == Path() else f"cd {shlex.quote(os.fspath(project))} && {command}"
