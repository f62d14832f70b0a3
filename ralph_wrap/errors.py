"""The errors that ralph-wrap raises itself.

::

    RalphError                 125  failed
    |-- ProblemsError            1  problems      a check of doctor failed
    |-- UsageError               2  usage
    |-- NotARepositoryError      3  not_a_repository
    |-- NotFoundError            4  not_found     no such session, branch, path, base
    |-- RefusedError             5  refused       work would be lost, so it is kept
    |-- ConflictError            6  conflict      it already exists, or another process uses it
    |-- NotOursError             7  not_ours      ralph-wrap did not create it, and does not touch it
    |-- GitTooOldError           8  git_too_old
    |-- TamperedError            9  tampered      the repository has what the user has not accepted
    |-- GitError               125  failed        a git command of ralph-wrap failed
    |   |-- BlockingFileError  125  failed        git would wait for a FIFO or a device
    |   |-- DamageError        125  failed        an object of the repository is damaged or missing
    |-- IsolationError         125  failed        no worktree is possible: a reason to fall back
    |-- NoCheckoutError        125  failed        the directory is in no checkout: no reason to fall back
    |-- DamagedRepositoryError 125  failed        git cannot use the repository: no reason to fall back
    |-- PlainRootBusyError     125  failed        another session works in the plain project root
    |-- BranchBusyError        125  failed        another worktree has the requested branch checked out
    |-- NoIdLeftError          125  failed        all 65,536 agent ids are in use
    |-- StoppedError           125  failed        a signal came before the agent could start
    |-- SetupError             125  failed        the setup of the worktree for the agent failed
    |-- SandboxError           125  failed        the sandbox that the user wants is not possible here
    |-- UntrustedError         125  failed        the user has not approved what the project decides
    |-- UnreachableError       125  failed        a remote does not answer; a later attempt may succeed
    |-- AgentError             126  failed        the agent command cannot run
    |   |-- AgentNotFoundError 127  failed        the agent command was not found
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from typing import ClassVar

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What git says of an object that is not there.
_LACKING = ("from promisor remote", "unable to read ", "cannot read object ", "lazy fetching disabled")
TO_SEE_DAMAGE = "git fsck --full --no-dangling"
"""The command that lists what is damaged in a repository."""

_IN_A_PARTIAL_CLONE = (
    "ralph-wrap fetches no object; "
    "in a partial clone, with git 2.36 or newer: git fetch --refetch --no-filter"
)


class RalphError(Exception):
    """An error with a message for people and an exit status for programs.

    Arguments:
        message: the request and the reason why it failed, in one line.
        hint: the command to run, or what to change, in one line; may be empty. Several commands are
            ``system.log.Commands``.

    """

    exit_code: ClassVar[int] = 125
    """Exit status of a command that ends with this error (the convention of ``env`` and ``docker run``)."""
    code: ClassVar[str] = "failed"
    """``error.code`` in the JSON envelope."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LockedError(TimeoutError):
    """Another process held a lock all the time.

    Arguments:
        sentence: which process holds which lock.
        hint: what the user can do.
        path: the locked file or directory.

    """

    def __init__(self, sentence: str, hint: str, path: os.PathLike[str]) -> None:
        super().__init__(errno.ETIMEDOUT, sentence, os.fspath(path))
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        return self.sentence


def explained(error: OSError) -> RalphError:
    """Return an error of the operating system as a reason in one line, with what the user can do."""
    if isinstance(error, LockedError):
        return ConflictError(error.sentence, error.hint)
    reason = error.strerror or str(error)
    if error.filename is not None:
        reason += f": {os.fsdecode(error.filename)}"
    if error.errno in _NO_ROOM:
        directory = os.path.dirname(os.fsdecode(error.filename or ""))  # noqa: PTH120 -- any path
        return RalphError(reason, f"make room on the disk: {shlex.join(['df', '-h', directory or '.'])}")
    if error.filename is not None:
        look = shlex.join(["ls", "-ld", _nearest(os.path.abspath(os.fsdecode(error.filename)))])  # noqa: PTH100
        return RalphError(reason, f"to see who may do that there: {look} && id")
    return RalphError(reason, "to see what is wrong here: ralph-wrap doctor")


def _nearest(path: str) -> str:
    """Return the path, or the nearest directory above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)  # noqa: PTH120 -- any path
    return path


class ProblemsError(RalphError):
    """Checks of the doctor failed: the answer is no, and ralph-wrap itself did not fail."""

    exit_code = 1
    code = "problems"


class UsageError(RalphError):
    """An option or a configuration key is wrong, or a file that it names."""

    exit_code = 2
    code = "usage"


class NotARepositoryError(RalphError):
    """The directory is not in a git repository."""

    exit_code = 3
    code = "not_a_repository"


class NotFoundError(RalphError):
    """There is no such session, branch, path or base."""

    exit_code = 4
    code = "not_found"


FIRST_COMMIT = "git add -A && git commit --allow-empty -m start"
"""The commands that a repository without a commit needs: a worktree has only what is committed."""


def no_commit(directory: Path) -> NotFoundError:
    """Return the error of a command that needs a commit, in a repository without one; ``run`` falls back."""
    return NotFoundError(f"{directory} has no commit yet", FIRST_COMMIT)


class RefusedError(RalphError):
    """Removal would lose work, so ralph-wrap kept it."""

    exit_code = 5
    code = "refused"


class ConflictError(RalphError):
    """The thing to create already exists, or another process uses the thing to change."""

    exit_code = 6
    code = "conflict"


class NotOursError(RalphError):
    """Ralph-wrap did not create it, and so does not touch it."""

    exit_code = 7
    code = "not_ours"


class GitTooOldError(RalphError):
    """Git is older than 2.15; the oldest version that is tested is 2.30."""

    exit_code = 8
    code = "git_too_old"


class TamperedError(RalphError):
    """Something in ``.git`` makes git run, read or show what the user has not accepted.

    Nothing falls back from this error.
    """

    exit_code = 9
    code = "tampered"


class GitError(RalphError):
    """A git command that ralph-wrap ran failed.

    Arguments:
        command: the git sub-command, for the message.
        status: its exit status; negative for a signal.
        stderr: its output on standard error.
        hint: what the user can do, if the caller knows more than git.

    Attributes:
        forbids_fallback: the user can mend it by a command. So no session works without a worktree for it.

    """

    def __init__(self, command: str, status: int, stderr: str, hint: str = "") -> None:
        self.status = status
        self.stderr = stderr
        self.forbids_fallback = any(words in stderr for words in _LACKING)
        # A list of names follows its line, each in a line of its own that begins with a tab.
        lines = [line for line in stderr.replace(":\n\t", ": ").splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith(("fatal:", "error:"))), "".join(lines[-1:]))
        hint = hint or (_IN_A_PARTIAL_CLONE if self.forbids_fallback else "")
        super().__init__(f"git {command} failed ({status}): {reason or 'no message'}", hint)


class BlockingFileError(GitError):
    """A FIFO or a device is where git expects a file, and git would wait for it without end.

    Arguments:
        command: the git sub-command, for the message.
        path: of the FIFO or device.

    """

    def __init__(self, command: str, path: str) -> None:
        message = f"{path} is a FIFO or a device and not a file, so git {command} would hang"
        RalphError.__init__(self, message, f"if another program put it there: rm {shlex.quote(path)}")
        self.status = 128
        self.stderr = message
        self.forbids_fallback = True


class DamageError(GitError):
    """An object of the repository is damaged or missing: what needs it stays as it is.

    Arguments:
        words: the object, where it is used, and what git says.

    """

    def __init__(self, words: str) -> None:
        RalphError.__init__(self, words, f"to see all damage: {TO_SEE_DAMAGE}")
        self.status = 128
        self.stderr = words
        self.forbids_fallback = True


class IsolationError(RalphError):
    """A worktree is not possible here; the session may fall back to the plain project root."""


class NoCheckoutError(RalphError):
    """The directory belongs to a repository, and to no checkout of it in which a session could begin."""


class DamagedRepositoryError(RalphError):
    """Git cannot use the repository. An agent may have damaged it, so no session works without a worktree."""


class PlainRootBusyError(RalphError):
    """Another session works in the plain project root."""


class BranchBusyError(RalphError):
    """Another worktree has the requested branch checked out; a second session may not work on it."""


class NoIdLeftError(RalphError):
    """All 65,536 agent ids belong to a live agent or to a branch."""


class StoppedError(RalphError):
    """A signal stopped the session before the agent could start."""


class SetupError(RalphError):
    """The setup command of the worktree failed; the session does not start an agent in it."""


class SandboxError(RalphError):
    """The sandbox that the user wants is not possible; ralph-wrap starts no agent without it."""


class UntrustedError(RalphError):
    """The project decides something that the user has not approved, or belongs to another user."""


class UnreachableError(RalphError):
    """A remote does not answer; a later attempt may succeed."""


class AgentError(RalphError):
    """The agent command exists but cannot run."""

    exit_code = 126


class AgentNotFoundError(AgentError):
    """The agent command was not found."""

    exit_code = 127
