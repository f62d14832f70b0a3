"""Remotes: their names, and pushing one commit to one branch (git-push(1), *Output*)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.git.command import Git, lines, run, start, text

if TYPE_CHECKING:
    from ralph_wrap.process import Completed, Running


def remotes(git: Git) -> list[str]:
    """Return the names of the configured remotes."""
    return lines(run(git, "remote").stdout)


def start_push(git: Git, remote: str, commit: str, ref: str, *, replaced: str | None) -> Running:
    """Start to push a commit to a branch of a remote.

    Arguments:
        git: where.
        remote: its name, one of :func:`remotes`.
        commit: the object id.
        ref: full name of the branch there.
        replaced: what the branch may hold there, to be replaced; empty if it must not be there yet; ``None``:
            it may hold anything that the commit contains.

    """
    lease = () if replaced is None else (f"--force-with-lease={ref}:{replaced}",)
    return start(git, "push", "--porcelain", "--no-verify", *lease, "--", remote, f"{commit}:{ref}")


def push_error(completed: Completed) -> str:
    """Return why a push has failed, on one line."""
    rejected = [line for line in lines(completed.stdout) if line.startswith("!")]
    said = [line for line in text(completed.stderr).splitlines() if line.strip()]
    if rejected:
        return rejected[0].rpartition("\t")[2]
    return next((line for line in said if line.startswith(("fatal: ", "error: "))), " ".join(said[:1]))
