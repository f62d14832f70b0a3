"""Several refs changed at once: all of them, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.git.command import DURABLE, Git, lines, run

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class RefChange(NamedTuple):
    """What becomes of one ref.

    Attributes:
        ref: its full name.
        before: what it has to hold; ``None`` if it must not exist.
        after: what it then holds, *before* if it is only looked at; ``None`` deletes it.

    """

    ref: str
    before: str | None
    after: str | None


def change_refs(git: Git, changes: Sequence[RefChange], reason: str, at: int) -> None:
    """Change refs in one transaction, in which git makes and moves refs before it deletes any.

    Those that are made get a reflog, which keeps the time.

    Arguments:
        changes: what is to be done.
        reason: for the reflogs.
        at: the time for them, in seconds since 1970.

    Raises:
        GitError: one of the refs does not hold what it has to, or cannot be changed; none is.

    """
    told = []
    for ref, before, after in changes:
        # Whoever can write refs can make one stand for another: that one is not meant (git-symbolic-ref(1)).
        told.append("option no-deref\0")
        if before is None:
            told.append(f"create {ref}\0{after}\0")
        elif after is None:
            told.append(f"delete {ref}\0{before}\0")
        elif before == after:
            told.append(f"verify {ref}\0{before}\0")
        else:
            told.append(f"update {ref}\0{after}\0{before}\0")
    dated = git._replace(env={**git.env, "GIT_COMMITTER_DATE": f"@{at} +0000"})
    stdin = "".join(told).encode("utf-8", "surrogateescape")
    run(dated, "update-ref", "--create-reflog", "-m", reason, "-z", "--stdin", config=DURABLE, stdin=stdin)


def ref_times(git: Git, refs: Collection[str]) -> dict[str, int]:
    """Return when refs were last changed, in seconds since 1970; those without a reflog are left out.

    Arguments:
        refs: full names.

    """
    if not refs:
        return {}
    stdin = "".join(f"{ref}\n" for ref in refs).encode("utf-8", "surrogateescape")
    shown = ("--walk-reflogs", "--no-show-signature", "--format=%gD", "--date=unix", "--stdin")
    found: dict[str, int] = {}
    for row in lines(run(git, "log", *shown, stdin=stdin).stdout):
        ref, _, time = row.rpartition("@{")
        if time.removesuffix("}").isdecimal():
            found[ref] = max(found.get(ref, 0), int(time.removesuffix("}")))
    return found
