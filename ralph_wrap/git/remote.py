"""Remotes: list their names, push to them, and fetch from them (git-push(1), *Output*)."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import Git, decode, decode_lines, run_git, start_git
from ralph_wrap.git.objects import VOLATILE, list_refs, set_refs
from ralph_wrap.system.process import CompletedCommand, RunningCommand
from ralph_wrap.system.process_table import bytes_read

# The configuration could push more than what we name.
_OF_ANOTHER = "(atomic push failure)"  # another ref of the same push was rejected
_NO_ANSWER = "\t[remote failure]"  # the connection ended before the server said what became of a ref
_NO_REFS = "refs/ralph-none/"  # no ref is ever below this
_NOTHING_ELSE = ("--no-follow-tags", "--recurse-submodules=no")
_PUSHED = "refs/ralph-push/"  # what the refs of a running push are, and are to become
_MANY = 50  # refs of a push; for fewer, two more git processes cost more
_NONCE = 8  # bytes
_LONGEST_PUSH = 86400  # seconds after which its refs count as left by a kill
_KEEPALIVE = "ssh -o ServerAliveInterval=15 -o ServerAliveCountMax=3"
"""sshd answers for a server that works; without an answer for 45 s, ssh gives the connection up."""
_PROGRESS = re.compile(
    r"(remote: )?([\w ]+: +\d+% \(\d+/\d+\)|[\w ]+ objects: +\d+|Total \d+ \(|Delta compression )"
    r"|From |.* -> "
)
"""Lines of a fetch or a push that are no reason of a failure."""


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


class Silence:
    """How long a running push or fetch has shown no progress: its standard error gets no line.

    A transfer may take hours. A connection that is dead, or a server that hangs, shows nothing. A fetch of
    few objects prints nothing meanwhile (``git unpack-objects``), so the bytes that git reads count, too.
    Those do not count for a push: while a hook of the server hangs, the server sends 5 bytes each 5 s.

    Arguments:
        running: the command.
        patience: seconds.
        fetches: it is a fetch, or a list of refs.

    """

    def __init__(self, running: RunningCommand, patience: float, *, fetches: bool = False) -> None:
        self._running = running
        self._patience = patience
        self._fetches = fetches
        self._seen = self._look()
        self._limit = time.monotonic() + patience

    @property
    def is_too_long(self) -> bool:
        """Whether nothing has come for that time, as far as this was read."""
        if (seen := self._look()) != self._seen:
            self._seen, self._limit = seen, time.monotonic() + self._patience
        return time.monotonic() >= self._limit

    def _look(self) -> tuple[str, bytes]:
        return self._running.latest(), bytes_read(self._running.pid) if self._fetches else b""


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
    return _start(git, *_push_words(atomic=False), *lease, "--", remote, f"{commit}:{ref}")


def start_atomic_push(
    git: Git, remote: str, changes: Sequence[RemoteChange], *, silence: float = 0
) -> RunningCommand:
    """Start ``git push`` of several refs: the remote changes all of them, or none.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        changes: one change for each ref.
        silence: seconds after which git gives a silent HTTP connection up; 0 for never. A server that works
            counts as silent: it sends 5 bytes each 5 s, and libcurl's average is below 1 byte a second then.

    Raises:
        ValueError: there is no change. Git would push what its configuration names.

    """
    if not changes:
        raise ValueError("a push without refs")
    leases = [f"--force-with-lease={ref}:{before or ''}" for ref, before, _ in changes]
    refspecs = [f"{after or ''}:{ref}" for ref, _, after in changes]
    words = (*_push_words(atomic=True), *leases, "--", remote, *refspecs)
    return _start(git, *words, config=_unless_silent(silence))


@contextlib.contextmanager
def leased_push(git: Git, remote: str, changes: Sequence[RemoteChange]) -> Iterator[RunningCommand]:
    """Start ``git push`` of any number of refs, each with a lease, and yield it; it ends with the context.

    The remote changes all of them, or none.

    Git compares each refspec and each lease with each ref of the remote. With 1,000 of them, and 8,000 refs
    at the remote, a push took 19 s of processor time. Git looks up what one pattern names, and it looks up a
    lease in the ref that tracks the ref of the remote. So refs of ours, below ``refs/ralph-push/``, name old
    and new objects meanwhile. After a kill they hold only objects; after a day, the next push deletes them.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        changes: one change for each ref.

    Raises:
        ValueError: there is no change. Git would push what its configuration names.
        GitError: our refs cannot be written.

    """
    if len(changes) < _MANY or _tracks(git, remote, [change.ref for change in changes]):
        with start_atomic_push(git, remote, changes) as running:
            yield running
        return
    deletions = [f":{change.ref}" for change in changes if change.after is None]
    before = {change.ref: change.before for change in changes if change.before}
    after = {change.ref: change.after for change in changes if change.after}
    with _pushed_refs(git, remote, before, after) as (prefix, config):
        words = (*_push_words(atomic=True), "--force-with-lease", "--", remote)
        with _start(git, *words, f"{prefix}*:refs/*", *deletions, config=config) as running:
            yield running


@contextlib.contextmanager
def pushed_deletion(
    git: Git, remote: str, prefix: str, refs: Mapping[str, str] | None
) -> Iterator[RunningCommand]:
    """Start a push that deletes all refs of a remote below a prefix, and yield it; it ends with the context.

    Git needs a time that grows with the square of the number if each ref is named.

    Arguments:
        prefix: ends with a slash.
        refs: the object id that each ref must have: with other refs below the prefix, all stay. ``None``: all
            are deleted, whatever they are.

    """
    words = (*_push_words(atomic=True), "--prune")
    ending = ("--", remote, f"{_NO_REFS}*:{prefix}*")
    if refs is None:
        with _start(git, *words, *ending) as running:
            yield running
        return
    words = (*words, "--force-with-lease")
    with (
        _pushed_refs(git, remote, refs, {}) as (_, config),
        _start(git, *words, *ending, config=config) as running,
    ):
        yield running


@contextlib.contextmanager
def _pushed_refs(
    git: Git, remote: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name objects by refs of ours; yield the prefix of those in *after*, and the configuration of the push.

    Arguments:
        before: what refs of the remote must be: the push takes its leases from there.
        after: what they are to become.

    """
    prefix = f"{_PUSHED}{int(time.time())}-{os.urandom(_NONCE).hex()}/"
    kept = {f"{prefix}before/{ref.removeprefix('refs/')}": oid for ref, oid in before.items()}
    kept |= {f"{prefix}after/{ref.removeprefix('refs/')}": oid for ref, oid in after.items()}
    try:
        set_refs(git, kept, sync=False)
        yield (
            f"{prefix}after/",
            ("-c", f"remote.{remote}.fetch=+refs/*:{prefix}before/*", *VOLATILE),
        )
    finally:
        refs = list_refs(git, _PUSHED)
        set_refs(git, dict.fromkeys(ref for ref in refs if ref.startswith(prefix)), sync=False)
        with contextlib.suppress(GitError):  # another process deletes them, too
            set_refs(git, dict.fromkeys(ref for ref in refs if _is_left(ref)), sync=False)


def _is_left(ref: str) -> bool:
    """Return whether a killed push has left a ref of ours."""
    begun = ref.removeprefix(_PUSHED).partition("-")[0]
    return begun.isdecimal() and int(begun) < time.time() - _LONGEST_PUSH


def _push_words(*, atomic: bool) -> tuple[str, ...]:
    return (
        "push",
        "--porcelain",
        "--progress",
        "--no-verify",
        *(("--atomic",) if atomic else ()),
        *_NOTHING_ELSE,
    )


def _tracks(git: Git, remote: str, refs: Collection[str]) -> bool:
    """Return whether refs of the user track some refs of a remote: git would take the leases from those."""
    listed = run_git(git, "config", "--get-all", "--", f"remote.{remote}.fetch", accept=(0, 1)).stdout
    sources = [spec.lstrip("+^").partition(":")[0].partition("*")[0] for spec in decode_lines(listed)]
    return any(ref.startswith(source) for source in sources for ref in refs)


def start_remote_listing(git: Git, remote: str, *patterns: str) -> RunningCommand:
    """Start ``git ls-remote`` of the refs that match a pattern: object id, tabulator, name, in lines."""
    return _start(git, "ls-remote", "--refs", "--quiet", "--", remote, *patterns)


def start_fetch(git: Git, remote: str, refspecs: Sequence[str], *, silence: float = 0) -> RunningCommand:
    """Start ``git fetch`` of some refs, each to a ref of ours; our refs that the remote lacks are deleted.

    Arguments:
        remote: one of the names that :func:`list_remotes` returns.
        refspecs: as git-fetch(1) has them. A pattern that matches nothing is no error.
        silence: as for :func:`start_atomic_push`.

    """
    options = ("--no-tags", "--prune", "--no-write-fetch-head", "--no-recurse-submodules")
    words = ("fetch", "--progress", *options, "--", remote, *refspecs)
    return _start(git, *words, config=_unless_silent(silence))


def _start(git: Git, *words: str, config: tuple[str, ...] = ()) -> RunningCommand:
    """Start a git command that talks to a remote; its ssh notices that a server is gone.

    Without that, ssh waits for ever for an answer of a machine that is off (ssh_config(5)). The command that
    the user names for ssh stays as it is.
    """
    if {"GIT_SSH", "GIT_SSH_COMMAND"}.isdisjoint(git.env):
        named = run_git(git, "config", "--get", "core.sshCommand", accept=(0, 1))
        if not named.stdout:
            git = git._replace(env={**git.env, "GIT_SSH_COMMAND": _KEEPALIVE})
    return start_git(git, *words, config=config, with_terminal=False)


def _unless_silent(silence: float) -> tuple[str, ...]:
    """Return the configuration with which git gives a silent connection up (git-config(1), *http.*)."""
    if not silence:
        return ()
    return ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={silence:.0f}")


def is_refused(completed: CompletedCommand) -> bool:
    """Return whether a failed push has an answer: the remote does not take it, also not later."""
    lines = [line for line in decode_lines(completed.stdout) if line.startswith("!")]
    return bool(lines) and not any(_NO_ANSWER in line for line in lines)


def push_error(completed: CompletedCommand) -> str:
    """Return why a push or a fetch failed, on one line, without user names and passwords in URLs."""
    rejected = [line for line in decode_lines(completed.stdout) if line.startswith("!")]
    printed = [line.strip() for line in decode(completed.stderr).splitlines()]
    lines = [line for line in printed if line and not _PROGRESS.match(line)]
    if rejected:
        first = next((line for line in rejected if not line.endswith(_OF_ANOTHER)), rejected[0])
        said = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]
        return "; ".join(filter(None, (first.rpartition("\t")[2], *said)))
    number = next((number for number, line in enumerate(lines) if line.startswith(("fatal: ", "error: "))), 0)
    reason = lines[max(0, number - 1) : number + 1]  # the line before may be the error message of ssh
    return without_secrets("; ".join(reason)) or f"git failed ({completed.status})"
