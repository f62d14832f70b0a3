"""Bring what a hub has to origin, in few pushes, and what origin has to the hub.

**Why this order.** The hub can be killed at any point, and the answer to a push can be lost.

1. Fetch all refs of origin to ``refs/hub/seen/``.
2. Compare by :mod:`.plan`, and take over what origin alone has changed. Each change of a ref names its old
   value, so a session that pushes in this moment is not overwritten: the next round sees it.
3. Note in ``refs/hub/pushing/`` what the push brings. Then push, each ref with a lease on what origin had.
4. Note in ``refs/hub/origin/`` what origin has taken.

After a kill in 3 or 4, the next round finds in 1 what origin has. If it is what was noted, the push arrived.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.fleet.hub.plan import RefMove, plan
from ralph_wrap.fleet.hub.repository import ORIGIN, PUSHING, REMOTE, SEEN, place_of
from ralph_wrap.fleet.remote import MOST_REFS
from ralph_wrap.git import decode_lines, list_refs, push_error, run_git, start_fetch, store_blob
from ralph_wrap.git.remote import start_leased_push
from ralph_wrap.state.remote_claim import CLAIMS
from ralph_wrap.state.remote_refs import owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralph_wrap.git import Git, RemoteChange
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log
    from ralph_wrap.system.process import CompletedCommand, RunningCommand

_PATIENCE = 600.0  # seconds for one command
_LOOK = 0.1
_MOVED = "(stale info)"  # the lease of a ref is on another object than the remote has


class Forwarder:
    """Forwards the refs of a hub to origin.

    Arguments:
        git: at the repository of the hub.
        cancel: the second signal ends a running command.

    """

    def __init__(self, git: Git, cancel: CancelToken, log: Log) -> None:
        self._git = git
        self._cancel = cancel
        self._log = log
        self._refused: dict[str, str] = {}
        self._deletion = store_blob(git, b"")

    def round(self) -> bool:
        """Fetch from origin and push to it; return whether origin has all then.

        Raises:
            RalphError: origin does not answer, or has lost all its refs.

        """
        specs = [f"+refs/{part}*:{SEEN}{part}*" for part in ("heads/", "ralph/")]
        self._completed(start_fetch(self._git, REMOTE, specs), "fetch")
        theirs, agreed = self._noted(SEEN), self._noted(ORIGIN)
        if agreed and not theirs:  # or the hub would delete what perhaps nothing else has
            raise RalphError(
                f"origin is empty, and had {len(agreed)} refs: the hub keeps them", "is --origin right?"
            )
        found = plan(
            self._refs("refs/heads/", "refs/ralph/"),
            theirs,
            agreed,
            self._noted(PUSHING),
            self._deletion,
        )
        if is_whole := self._move(found.moves):
            self._note(PUSHING, dict.fromkeys(self._noted(PUSHING)))
        for changes in _parts(found.pushes):
            is_whole = self._push(changes) and is_whole
        return is_whole

    def _refs(self, *prefixes: str) -> dict[str, str]:
        return list_refs(self._git, *prefixes)

    def _noted(self, prefix: str) -> dict[str, str]:
        return {f"refs/{ref.removeprefix(prefix)}": oid for ref, oid in self._refs(prefix).items()}

    def _move(self, moves: Sequence[RefMove]) -> bool:
        """Change refs of the hub: all at once, or else one by one. A session may move one in this moment."""
        if not moves or self._transact("".join(map(_instructions, moves))):
            done = moves
        else:
            done = [move for move in moves if self._transact(_instructions(move))]
        for move in done:
            if move.rescue:
                self._log.warning("hub.replaced", f"origin has replaced {move.ref}; see {move.rescue}")
        return len(done) == len(moves)

    def _transact(self, instructions: str) -> bool:
        stdin = instructions.encode("utf-8", "surrogateescape")
        try:
            run_git(self._git, "update-ref", "-z", "--stdin", stdin=stdin)
        except GitError:
            return False
        return True

    def _push(self, changes: Sequence[RemoteChange]) -> bool:
        """Push refs: all or none, and if origin refuses one of them, all others.

        If another machine has taken a session over since the fetch, its refs wait for the next round.
        """
        self._note(PUSHING, {change.ref: change.after or self._deletion for change in changes})
        taken, completed = self._try(changes, atomic=True)
        rest = changes
        if len(taken) < len(changes) and completed.stdout:
            lost = {owner_of(ref) for ref in _moved_claims(completed)}
            rest = [change for change in changes if owner_of(change.ref) not in lost]
            if rest:
                taken, completed = self._try(rest, atomic=False)
        self._note(ORIGIN, {change.ref: change.after for change in taken})
        if not completed.stdout and not taken:
            raise RalphError(f"origin does not answer: {push_error(completed)}")
        self._report(rest, taken, completed)
        return len(taken) == len(changes)

    def _try(
        self, changes: Sequence[RemoteChange], *, atomic: bool
    ) -> tuple[list[RemoteChange], CompletedCommand]:
        running = start_leased_push(self._git, REMOTE, changes, atomic=atomic)
        completed = self._completed(running, "push", (0, 1))
        rows = [line.split("\t") for line in decode_lines(completed.stdout) if line.count("\t") >= 2]  # noqa: PLR2004
        taken = {row[1].rpartition(":")[2] for row in rows if not row[0].startswith("!")}
        if atomic and completed.status != 0:
            taken = set()
        return [change for change in changes if change.ref in taken], completed

    def _report(
        self, changes: Sequence[RemoteChange], taken: Sequence[RemoteChange], completed: CompletedCommand
    ) -> None:
        self._log.event("hub.forwarded", f"origin has {len(taken)} more refs", refs=len(taken))
        for change in taken:
            self._refused.pop(change.ref, None)
        reason = push_error(completed) if len(taken) < len(changes) else ""
        for ref in sorted({change.ref for change in changes} - {change.ref for change in taken}):
            if self._refused.get(ref) != reason:  # once for each reason
                self._refused[ref] = reason
                self._log.warning("hub.refused", f"origin has refused {ref}: {reason}")

    def _note(self, prefix: str, refs: Mapping[str, str | None]) -> None:
        rows = [
            f"update {place_of(prefix, ref)}\0{oid}\0\0" if oid else f"delete {place_of(prefix, ref)}\0\0"
            for ref, oid in refs.items()
        ]
        if rows:
            run_git(self._git, "update-ref", "-z", "--stdin", stdin="".join(rows).encode())

    def _completed(
        self, running: RunningCommand, what: str, accept: tuple[int, ...] = (0,)
    ) -> CompletedCommand:
        deadline = time.monotonic() + _PATIENCE
        with running:
            while not running.ended(_LOOK):
                if self._cancel.hurried or time.monotonic() > deadline:
                    raise RalphError(f"{what}: origin did not answer in time")
            completed = running.wait()
        if completed.status not in accept:
            raise RalphError(f"{what}: origin does not answer: {push_error(completed)}")
        return completed


def _instructions(move: RefMove) -> str:
    """Return the instructions of ``git update-ref -z --stdin`` for one move."""
    ref, before, after, agreed, rescue = move
    noted = place_of(ORIGIN, ref)
    rows = [f"update {noted}\0{agreed}\0\0" if agreed else f"delete {noted}\0\0"]
    if before == after:
        rows.append(f"verify {ref}\0{before or ''}\0")
    elif after is None:
        rows.append(f"delete {ref}\0{before}\0")
    else:
        rows.append(f"update {ref}\0{after}\0{before or '0' * len(after)}\0")
    if rescue:
        rows.append(f"update {rescue}\0{before}\0\0")
    return "".join(rows)


def _moved_claims(completed: CompletedCommand) -> Iterator[str]:
    """Yield the claims that another machine has moved at origin, as git-push(1) prints them."""
    for line in decode_lines(completed.stdout):
        ref = line.split("\t")[1].rpartition(":")[2] if line.startswith("!") and "\t" in line else ""
        if ref.startswith(CLAIMS) and line.endswith(_MOVED):
            yield ref


def _parts(changes: Sequence[RemoteChange]) -> Iterator[Sequence[RemoteChange]]:
    for start in range(0, len(changes), MOST_REFS):
        yield changes[start : start + MOST_REFS]
