"""Explain why an agent could not start, and how to fix it."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from ralph_wrap.errors import AgentError, AgentNotFoundError, GitError, RalphError
from ralph_wrap.git import Git, git_environment, run_git


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
            hint = _to_have_it_there(command, project)
        return AgentNotFoundError(message, hint)
    hint = _to_run_it(error, command, program, project, isolated=isolated)
    return AgentError(f"agent command {command} cannot be run: {error.strerror}", hint)


def _to_run_it(error: OSError, command: str, program: Path, project: Path, *, isolated: bool) -> str:
    """Return what helps where the program of an agent exists and cannot be run; empty if nothing is known."""
    if error.errno == errno.E2BIG:  # 128 KiB for each argument (execve(2): MAX_ARG_STRLEN)
        return (
            "a prompt that the agent takes as an argument must be shorter than 128 KiB: keep the text in a"
            ' file of the project, and let the prompt name it; or set prompt = "stdin" or "file" in'
            " [agents.NAME]"
        )
    if error.errno == errno.ENOEXEC:
        return "its first line must name an interpreter: #!/bin/sh"
    if program.is_dir():
        return "it is a directory: name a file"
    if not program.is_file() or os.access(program, os.X_OK):
        return ""
    hint = f"chmod +x {shlex.quote(command)}"
    if command.startswith("/"):
        return hint
    return _in_directory(project, hint + (f" && {_commit(command)}" if isolated else ""))


def _to_have_it_there(command: str, project: Path) -> str:
    """Return how a worktree gets a program that is missing in it: it has only the files of its commit."""
    if not (project / command).is_file():
        return f"the worktree has only committed files: {_in_directory(project, 'git ls-files')}"
    whole, here = Path(os.path.normpath(Path.cwd() / project / command)), Path.cwd() / project
    top = next((path for path in (here, *here.parents) if os.path.lexists(path / ".git")), here)
    if not whole.is_relative_to(top):
        return f"the worktree is elsewhere: name the whole path, {shlex.quote(os.fspath(whole))}"
    if _is_in_head(command, here):
        return "HEAD has it, but the commit that the session started from has not: see --base and --branch"
    # Forced, because git may ignore it.
    add = f"git add -f {shlex.quote(command)} && {_commit(command)}"
    return f"the worktree has only committed files: {_in_directory(project, add)}"


def _is_in_head(command: str, directory: Path) -> bool:
    try:
        git = Git(directory, git_environment(os.environ))
        return bool(run_git(git, "ls-tree", "-z", "HEAD", "--", command, accept=(0, 128)).stdout)
    except (GitError, OSError):
        return False


def _commit(command: str) -> str:
    file = shlex.quote(command)
    return f"git commit -m {shlex.quote(f'Add {Path(command).name}')} {file}"


def _in_directory(directory: Path, command: str) -> str:
    """Return a command line that runs a command in a directory, which is relative to the user's own."""
    return command if directory == Path() else f"cd {shlex.quote(os.fspath(directory))} && {command}"
