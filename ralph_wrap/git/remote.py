"""Remotes: list their names, and push one commit to one branch (git-push(1), *Output*)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralph_wrap.git.command import Git, decode, decode_lines, run_git, start_git

if TYPE_CHECKING:
    from ralph_wrap.system.process import CompletedCommand, RunningCommand


def list_remotes(git: Git) -> list[str]:
    """Return the names of the configured remotes."""
    return decode_lines(run_git(git, "remote").stdout)


def start_push(git: Git, remote: str, commit: str, ref: str, *, replaced: str | None) -> RunningCommand:
    """Start ``git push`` of a commit to a branch of a remote.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        commit: the object id.
        ref: full name of the branch on the remote.
        replaced: the commit that the push replaces on the remote (a lease). ``None``: only a fast-forward is
            allowed.

    """
    lease = () if replaced is None else (f"--force-with-lease={ref}:{replaced}",)
    alone = (
        "--no-follow-tags",
        "--recurse-submodules=no",
    )  # the configuration could push more than the commit
    arguments = ("push", "--porcelain", "--no-verify", *alone, *lease, "--", remote, f"{commit}:{ref}")
    return start_git(git, *arguments, with_terminal=False)


def push_error(completed: CompletedCommand) -> str:
    """Return why a push failed, on one line, without user names and passwords in URLs."""
    rejected = [line for line in decode_lines(completed.stdout) if line.startswith("!")]
    if rejected:
        return rejected[0].rpartition("\t")[2]
    lines = [line.strip() for line in decode(completed.stderr).splitlines() if line.strip()]
    number = next((number for number, line in enumerate(lines) if line.startswith(("fatal: ", "error: "))), 0)
    reason = lines[max(0, number - 1) : number + 1]  # the line before may be the error message of ssh
    return re.sub(r"(://)[^/\s@]*@", r"\1", "; ".join(reason)) or f"git push failed ({completed.status})"
