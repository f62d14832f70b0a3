"""Remotes: list their names, push to them, and fetch from them (git-push(1), *Output*)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralph_wrap.git.command import Git, decode, decode_lines, run_git, start_git
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.system.process import CompletedCommand, RunningCommand

# The configuration could push more than what we name.
_OF_ANOTHER = "(atomic push failure)"  # another ref of the same push was rejected
_NO_REFS = "refs/ralph-none/"  # no ref is ever below this
_NOTHING_ELSE = ("--no-follow-tags", "--recurse-submodules=no")

LONGEST_SILENCE = 30
"""Seconds without a byte after which git gives an HTTP connection up. A server that works sends one each 5 s.

When a network is back, an old connection may stay silent for as long as it was away; a new one works at once.
"""


class RemoteChange(NamedTuple):
    """The change of one ref of a remote.

    Attributes:
        ref: its full name there.
        before: the object id that the ref must have; ``None`` if the ref must not exist.
        after: the new object id; ``None`` deletes the ref. If two processes create a ref with the same
            object, git reports success to both. So the object of a lock must be unique.

    """

    ref: str
    before: str | None
    after: str | None


def list_remotes(git: Git) -> list[str]:
    """Return the names of the configured remotes."""
    return decode_lines(run_git(git, "remote").stdout)


def push_addresses(git: Git, remote: str) -> list[str]:
    """Return the addresses to which git pushes for a remote.

    Raises:
        GitError: there is no such remote.

    """
    listed = run_git(git, "remote", "get-url", "--push", "--all", "--", remote)
    return decode_lines(listed.stdout)


def without_secrets(address: str) -> str:
    """Return an address without user names and passwords."""
    return re.sub(r"(://)[^/\s@]*@", r"\1", address)


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
    arguments = (
        "push",
        "--porcelain",
        "--no-verify",
        *_NOTHING_ELSE,
        *lease,
        "--",
        remote,
        f"{commit}:{ref}",
    )
    return start_git(git, *arguments, with_terminal=False)


def start_atomic_push(git: Git, remote: str, changes: Sequence[RemoteChange]) -> RunningCommand:
    """Start ``git push`` of several refs: the remote changes all of them, or none.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        changes: one change for each ref.

    Raises:
        ValueError: there is no change. Git would push what its configuration names.

    """
    return start_leased_push(git, remote, changes, atomic=True)


def start_leased_push(
    git: Git, remote: str, changes: Sequence[RemoteChange], *, atomic: bool
) -> RunningCommand:
    """Start ``git push`` of several refs, each with a lease; arguments and errors are as above.

    Arguments:
        atomic: the remote changes all of them, or none.

    """
    if not changes:
        raise ValueError("a push without refs")
    leases = [f"--force-with-lease={ref}:{before or ''}" for ref, before, _ in changes]
    refspecs = [f"{after or ''}:{ref}" for ref, _, after in changes]
    options = ("push", "--porcelain", "--no-verify", *(("--atomic",) if atomic else ()), *_NOTHING_ELSE)
    return start_git(
        git, *options, *leases, "--", remote, *refspecs, config=_unless_silent(), with_terminal=False
    )


def start_push_deletion(git: Git, remote: str, prefix: str) -> RunningCommand:
    """Start a push that deletes all refs of a remote below a prefix, or none of them.

    Git needs a time that grows with the square of the number if each ref is named, and none to speak of here.

    Arguments:
        prefix: ends with a slash.

    """
    options = ("push", "--porcelain", "--no-verify", "--atomic", "--prune", *_NOTHING_ELSE)
    return start_git(git, *options, "--", remote, f"{_NO_REFS}*:{prefix}*", with_terminal=False)


def start_remote_listing(git: Git, remote: str, *patterns: str) -> RunningCommand:
    """Start ``git ls-remote`` of the refs that match a pattern: object id, tabulator, name, in lines."""
    return start_git(git, "ls-remote", "--refs", "--quiet", "--", remote, *patterns, with_terminal=False)


def start_fetch(git: Git, remote: str, refspecs: Sequence[str]) -> RunningCommand:
    """Start ``git fetch`` of some refs, each to a ref of ours; our refs that the remote lacks are deleted.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        refspecs: as git-fetch(1) has them. A pattern that matches nothing is no error.

    """
    options = ("fetch", "--quiet", "--no-tags", "--prune", "--no-write-fetch-head", "--no-recurse-submodules")
    return start_git(git, *options, "--", remote, *refspecs, config=_unless_silent(), with_terminal=False)


def _unless_silent() -> tuple[str, ...]:
    """Return the configuration with which git gives a silent connection up (git-config(1), *http.*)."""
    return ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={LONGEST_SILENCE}")


def push_error(completed: CompletedCommand) -> str:
    """Return why a push or a fetch failed, on one line, without user names and passwords in URLs."""
    rejected = [line for line in decode_lines(completed.stdout) if line.startswith("!")]
    lines = [line.strip() for line in decode(completed.stderr).splitlines() if line.strip()]
    if rejected:
        first = next((line for line in rejected if not line.endswith(_OF_ANOTHER)), rejected[0])
        said = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]
        return "; ".join(filter(None, (first.rpartition("\t")[2], *said)))
    number = next((number for number, line in enumerate(lines) if line.startswith(("fatal: ", "error: "))), 0)
    reason = lines[max(0, number - 1) : number + 1]  # the line before may be the error message of ssh
    return without_secrets("; ".join(reason)) or f"git failed ({completed.status})"
