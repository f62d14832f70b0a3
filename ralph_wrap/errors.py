"""Every error that ralph-wrap raises on purpose.

::

    RalphError                 125  failed
    ├── UsageError               2  usage
    ├── NotARepositoryError      3  not_a_repository
    ├── NotFoundError            4  not_found     no such session, branch, path, base
    ├── RefusedError             5  refused       something was kept, because work would be lost
    ├── ConflictError            6  conflict      it is there already, or somebody else has it
    ├── NotOursError             7  not_ours      not made by ralph-wrap: not touched
    ├── GitTooOldError           8  git_too_old
    ├── GitError               125  failed        a git command of ours failed
    ├── IsolationError         125  failed        no worktree to be had: a reason to fall back
    ├── PlainRootBusyError     125  failed        another session works in the plain project root
    ├── BranchBusyError        125  failed        the branch asked for is checked out somewhere else
    ├── NoIdLeftError          125  failed        all 65,536 agent ids are taken
    ├── StoppedError           125  failed        a signal came before the agent could start
    ├── SetupError             125  failed        the worktree could not be made ready for the agent
    ├── UntrustedError         125  failed        nobody has approved what the project wants to run
    └── AgentError             126  failed        the agent command cannot be run
        └── AgentNotFoundError 127  failed        the agent command is not there
"""

from __future__ import annotations

from typing import ClassVar


class RalphError(Exception):
    """An error with a cause for a person and a status for a program.

    Arguments:
        message: what was asked and the fact that stands against it, in one line.
        hint: what to run or change, in one line; empty if there is nothing to say.

    """

    exit_code: ClassVar[int] = 125
    """Exit status of a command that ends with this error (the convention of ``env`` and ``docker run``)."""
    code: ClassVar[str] = "failed"
    """``error.code`` in the JSON envelope."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RalphError):
    """An option, a configuration key or a file named by one is wrong."""

    exit_code = 2
    code = "usage"


class NotARepositoryError(RalphError):
    """The directory is in no git repository."""

    exit_code = 3
    code = "not_a_repository"


class NotFoundError(RalphError):
    """There is no such session, branch, path or base."""

    exit_code = 4
    code = "not_found"


class RefusedError(RalphError):
    """Something was kept, because work would be lost with it."""

    exit_code = 5
    code = "refused"


class ConflictError(RalphError):
    """What is to be made is there already, or what is to be changed is somebody else's at this moment."""

    exit_code = 6
    code = "conflict"


class NotOursError(RalphError):
    """It was not made by ralph-wrap, so it is not touched."""

    exit_code = 7
    code = "not_ours"


class GitTooOldError(RalphError):
    """Git is older than 2.15."""

    exit_code = 8
    code = "git_too_old"


class GitError(RalphError):
    """A git command of ours failed.

    Arguments:
        command: the sub-command, for the message.
        status: its exit status; negative for a signal.
        stderr: what it wrote to standard error.

    """

    def __init__(self, command: str, status: int, stderr: str) -> None:
        self.status = status
        self.stderr = stderr
        lines = [line for line in stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith(("fatal:", "error:"))), "".join(lines[-1:]))
        super().__init__(f"git {command} failed ({status}): {reason or 'no message'}")


class IsolationError(RalphError):
    """A worktree cannot be had here; the session may fall back to the plain project root."""


class PlainRootBusyError(RalphError):
    """Another session works in the plain project root."""


class BranchBusyError(RalphError):
    """The branch asked for is checked out elsewhere, so that no second session may work on it."""


class NoIdLeftError(RalphError):
    """All 65,536 agent ids belong to a live agent or to a branch."""


class StoppedError(RalphError):
    """A signal asked for the end before the agent could start."""


class SetupError(RalphError):
    """The command that makes a worktree ready to work has failed, so that no agent is started in it."""


class UntrustedError(RalphError):
    """The project's configuration has commands that its user has not approved; none of them is run."""


class AgentError(RalphError):
    """The agent command is there but cannot be run."""

    exit_code = 126


class AgentNotFoundError(AgentError):
    """The agent command is not there."""

    exit_code = 127
