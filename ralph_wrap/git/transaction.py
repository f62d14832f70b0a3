"""Several refs changed at once: all of them, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ralph_wrap.git.command import DURABLE, Git, decode_lines, run_git

_UNLOGGED = ("-c", "core.logAllRefUpdates=false")  # a ref that has a reflog keeps it, and gets an entry


class RefChange(NamedTuple):
    """The change of one ref.

    Attributes:
        ref: its full name.
        before: the object id that the ref must have; ``None`` if the ref must not exist.
        after: the new object id; equal to *before* if the ref is only verified; ``None`` deletes the ref.

    """

    ref: str
    before: str | None
    after: str | None


def change_refs(
    git: Git, changes: Sequence[RefChange], reason: str, at: int, *, logs_new: bool = True
) -> None:
    """Change refs in one transaction; git creates and moves refs before it deletes refs.

    Arguments:
        changes: one change for each ref.
        reason: message for the reflogs.
        at: time for the reflogs, in seconds since 1970.
        logs_new: each created ref gets a reflog, which records the time. It is one more file for each ref.

    Raises:
        GitError: a ref does not have its expected object id, or git cannot change it; no ref was changed.

    """
    instructions = []
    for ref, before, after in changes:
        # An agent can turn a ref into a symbolic ref. Its target must not change (git-symbolic-ref(1)).
        instructions.append("option no-deref\0")
        if before is None:
            instructions.append(f"create {ref}\0{after}\0")
        elif after is None:
            instructions.append(f"delete {ref}\0{before}\0")
        elif before == after:
            instructions.append(f"verify {ref}\0{before}\0")
        else:
            instructions.append(f"update {ref}\0{after}\0{before}\0")
    dated = git._replace(env={**git.env, "GIT_COMMITTER_DATE": f"@{at} +0000"})
    stdin = "".join(instructions).encode("utf-8", "surrogateescape")
    logs = ("--create-reflog",) if logs_new else ()
    config = DURABLE if logs_new else (*DURABLE, *_UNLOGGED)
    run_git(dated, "update-ref", *logs, "-m", reason, "-z", "--stdin", config=config, stdin=stdin)


def ref_times(git: Git, refs: Collection[str]) -> dict[str, int]:
    """Return the times of the last changes of refs, in seconds since 1970; refs without reflog are left out.

    Arguments:
        refs: full names.

    """
    found: dict[str, int] = {}
    for ref, time, _ in _reflogs(git, refs):
        found[ref] = max(found.get(ref, 0), time)
    return found


def ref_origins(git: Git, refs: Collection[str]) -> dict[str, str]:
    """Return the messages with which refs were created; refs without reflog are left out.

    git deletes the reflog with the ref. So the oldest message tells whether a ref was created anew. Old
    messages expire (git-reflog(1)).

    Arguments:
        refs: full names.

    """
    return {ref: message for ref, _, message in _reflogs(git, refs)}  # the oldest one is the last


def _reflogs(git: Git, refs: Collection[str]) -> Iterator[tuple[str, int, str]]:
    """Yield ref, time and message of each entry of the reflogs, the newest first."""
    if not refs:
        return
    stdin = "".join(f"{ref}\n" for ref in refs).encode("utf-8", "surrogateescape")
    options = ("--walk-reflogs", "--no-show-signature", "--format=%gD %gs", "--date=unix", "--stdin")
    for row in decode_lines(run_git(git, "log", *options, stdin=stdin).stdout):
        ref, _, entry = row.partition("@{")  # the name of a ref cannot hold these two characters
        time, _, message = entry.partition("} ")
        if time.isdecimal():
            yield ref, int(time), message
