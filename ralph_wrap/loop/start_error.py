"""Explain why an agent could not start, and how to fix it."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from ralph_wrap.errors import AgentError, AgentNotFoundError, RalphError


def unstarted(
    error: OSError, command: str, cwd: Path, project: Path, *, isolated: bool, wanted: Path
) -> RalphError:
    """Return the error that ends the session.

    Arguments:
        error: the error of ``execvp(3)``.
        command: the program of the agent.
        cwd: the working directory.
        project: the directory that the user named; there the user can commit the program.
        isolated: *cwd* is in a worktree, so its files come from a commit.
        wanted: the working directory, if the worktree had it; *cwd* is the nearest one above.

    """
    program = cwd / command
    relative = not command.startswith("/")
    if isinstance(error, FileNotFoundError):
        if not cwd.is_dir():
            return RalphError(f"the workspace {cwd} is gone")
        message = f"agent command {command} was not found in {cwd}"
        hint = (
            f"to see what is there: ls {shlex.quote(os.fspath(cwd))}"
            if relative
            else "name a file that exists"
        )
        if program.is_file():
            hint = "the file exists, but the interpreter in its first line does not"
        elif relative and wanted != cwd:
            hint = f"the worktree has no {wanted}: name the path of the command from {cwd}, where it starts"
        elif relative and isolated:
            add = f"git add {shlex.quote(command)} && {_commit(command)}"
            step = add if (project / command).is_file() else "git ls-files"
            hint = f"the worktree has only committed files: {in_directory(project, step)}"
        return AgentNotFoundError(message, hint)
    hint = ""
    if error.errno == errno.E2BIG:  # 128 KiB for each argument (execve(2): MAX_ARG_STRLEN)
        hint = (
            "a prompt that the agent takes as an argument must be shorter than 128 KiB: keep the text in a"
            ' file of the project, and let the prompt name it; or set prompt = "stdin" or "file" in'
            " [agents.NAME]"
        )
    elif error.errno == errno.ENOEXEC:
        hint = "its first line must name an interpreter: #!/bin/sh"
    elif program.is_file() and not os.access(program, os.X_OK):
        hint = f"chmod +x {shlex.quote(command)}"
        if relative:
            hint = in_directory(project, hint + (f" && {_commit(command)}" if isolated else ""))
    return AgentError(f"agent command {command} cannot be run: {error.strerror}", hint)


def _commit(command: str) -> str:
    file = shlex.quote(command)
    return f"git commit -m {shlex.quote(f'Add {Path(command).name}')} {file}"


def in_directory(directory: Path, command: str) -> str:
    """Return a command line that runs a command in a directory, which is relative to the user's own."""
    return command if directory == Path() else f"cd {shlex.quote(os.fspath(directory))} && {command}"
