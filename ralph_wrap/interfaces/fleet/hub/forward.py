"""Bring what a hub has to origin, in few pushes, and what origin has to the hub.

**Why this order.** The hub can be killed at any point, and the answer to a push can be lost.

1. Fetch all refs of origin to ``refs/hub/seen/``.
2. If origin has gone back (:mod:`.mark`), note what it has now: all work that it has lost counts as new then.
   Keep the commits that it has got since.
3. Compare by :mod:`.plan`, and take over what origin alone has changed. Each change of a ref names its old
   value, so a session that pushes in this moment is not overwritten: the next round sees it.
4. Note in ``refs/hub/pushing/`` what the push brings. Then push, each ref with a lease on what origin had.
5. Note in ``refs/hub/origin/`` what origin has taken.

After a kill in 4 or 5, the next round finds in 1 what origin has. If it is what was noted, the push arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import decode_lines, list_refs, run_git, store_blob
from ralph_wrap.git.remote import Silence, leased_push, push_error, start_fetch
from ralph_wrap.interfaces.fleet.hub.mark import OriginMark
from ralph_wrap.interfaces.fleet.hub.plan import RefMove, at_risk, displaced, plan
from ralph_wrap.interfaces.fleet.hub.refusals import PushAnswer, Refusals
from ralph_wrap.interfaces.fleet.hub.repository import (
    KEPT,
    ORIGIN,
    PUSHING,
    REFUSED,
    REMOTE,
    SEEN,
    is_ours,
    place_of,
)
from ralph_wrap.interfaces.fleet.remote import MOST_REFS
from ralph_wrap.state.remote_claim import CLAIMS
from ralph_wrap.state.remote_refs import owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.git.remote import RemoteChange
    from ralph_wrap.interfaces.fleet.hub.repository import HubRepository
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log
    from ralph_wrap.system.process import CompletedCommand, RunningCommand

_PATIENCE = 600.0  # seconds of silence of one command
_LOOK = 0.1
_LOSSES = 3  # pushes without an answer; then one session may be the cause, and the hub pushes in parts
_OURS = ("refs/heads/", "refs/ralph/")


class Forwarder:
    """Forwards the refs of a hub to origin.

    Arguments:
        repository: of the hub.
        interval: seconds between two rounds.
        cancel: the second signal ends a running command.

    """

    def __init__(self, repository: HubRepository, interval: float, cancel: CancelToken, log: Log) -> None:
        self._git = repository.git
        self._cancel = cancel
        self._log = log
        self._mark = OriginMark(repository.git, repository.name)
        self._refusals = Refusals(interval)
        self._losses = 0
        self._deletion = store_blob(repository.git, b"")

    def round(self) -> bool:
        """Fetch from origin and push to it; return whether origin has all then.

        Raises:
            RalphError: origin does not answer, or has lost all its refs.

        """
        specs = [f"+refs/{part}*:{SEEN}{part}*" for part in ("heads/", "ralph/")]
        with start_fetch(self._git, REMOTE, specs) as running:
            self._completed(running, "fetch")
        ours, theirs = self._refs(*_OURS), self._noted(SEEN)
        agreed, pushing = self._noted(ORIGIN), self._noted(PUSHING)
        if agreed and not theirs:  # or the hub would delete what perhaps nothing else has
            raise RalphError(
                f"origin is empty, and had {len(agreed)} refs: the hub keeps them", "is --origin right?"
            )
        if self._mark.went_back(theirs, agreed, pushing):
            agreed, pushing = self._begin_anew(ours, theirs, agreed), {}
            ours = self._refs(*_OURS)
        self._note(ORIGIN, {self._mark.ref: theirs.get(self._mark.ref)})
        lacking = _without(self._git, at_risk(ours, theirs, agreed), SEEN)
        found = plan(ours, theirs, agreed, pushing, self._deletion, lacking)
        if is_whole := self._move(found.moves):
            self._note(PUSHING, dict.fromkeys(self._noted(PUSHING)))
        return (
            self._push_all(found.pushes, has_moved=any(is_ours(move.ref) for move in found.moves))
            and is_whole
        )

    def _begin_anew(
        self, ours: Mapping[str, str], theirs: Mapping[str, str], agreed: Mapping[str, str]
    ) -> dict[str, str]:
        """Note what a restored origin has; return it. The hub takes over all other refs that origin has."""
        self._log.warning(
            "hub.restored", "origin has gone back to an earlier state: the hub brings its refs there again"
        )
        kept = displaced(ours, theirs)
        lacking = _without(self._git, kept.values(), *_OURS)
        for ref, oid in kept.items():
            if oid in lacking:
                run_git(self._git, "update-ref", ref, oid)
                self._log.warning("hub.kept", f"origin has got {oid} since the backup; see {ref}")
        refs = [ref for ref in {*ours, *agreed} if is_ours(ref)]
        now = {ref: theirs.get(ref) if ref in ours else None for ref in refs}
        self._note(ORIGIN, now)
        return {ref: oid for ref, oid in now.items() if oid} | {
            ref: oid for ref, oid in agreed.items() if not is_ours(ref)
        }

    def _push_all(self, changes: Sequence[RemoteChange], *, has_moved: bool) -> bool:
        """Push; what origin has refused before goes alone, and not in each round.

        Arguments:
            has_moved: the hub has taken something over, so the mark must move.

        """
        self._forget({change.ref for change in changes})
        due = [change for change in changes if not self._refusals.is_waiting(change.ref)]
        parts = [*_parts([change for change in due if change.ref not in self._refusals])]
        is_whole = len(due) == len(changes)
        for part in parts or ([[]] if has_moved else []):
            is_whole = self._push(part) and is_whole
        for part in _parts([change for change in due if change.ref in self._refusals]):
            is_whole = self._finish(part, *self._try(part, atomic=False)) and is_whole
        return is_whole

    def _forget(self, pushed: Collection[str]) -> None:
        """Forget the refusals of refs that the hub does not push any more."""
        self._refusals.keep({*pushed, self._mark.ref})
        self._note(REFUSED, {ref: None for ref in self._noted(REFUSED) if ref not in pushed})

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
            if move.rescue.startswith(KEPT):
                self._log.warning(
                    "hub.kept", f"origin has lost commits of {move.ref}; the hub has {move.rescue}"
                )
            elif move.rescue:
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
        taken, answer, reason = self._try(changes, atomic=True)
        if len(taken) < len(changes):
            lost = {owner_of(ref) for ref in answer.moved if ref.startswith(CLAIMS)}
            rest = [change for change in changes if owner_of(change.ref) not in lost]
            return self._push_apart(rest) and len(rest) == len(changes) if rest else False
        return self._finish(changes, taken, answer, reason)

    def _push_apart(self, changes: Sequence[RemoteChange]) -> bool:
        """Push what origin takes of some refs: a hook of it may refuse all because of one session."""
        taken, answer, reason = self._try(changes, atomic=False)
        owners = sorted({owner_of(change.ref) or change.ref for change in changes})
        if taken or len(owners) == 1:
            return self._finish(changes, taken, answer, reason)
        half = {*owners[: len(owners) // 2]}
        first = [change for change in changes if (owner_of(change.ref) or change.ref) in half]
        second = [change for change in changes if change not in first]
        return self._push_apart(first) & self._push_apart(second)

    def _try(
        self, changes: Sequence[RemoteChange], *, atomic: bool
    ) -> tuple[list[RemoteChange], PushAnswer, str]:
        """Push; return what origin has taken, its answer, and why it refuses something.

        Raises:
            RalphError: the connection was lost. The next round finds what origin has taken.

        """
        mark = self._mark.change()
        marked = [*changes, *([] if self._refusals.is_waiting(mark.ref) else [mark])]
        self._note(PUSHING, {change.ref: change.after or self._deletion for change in marked})
        with leased_push(self._git, REMOTE, marked, atomic=atomic) as running:
            completed = self._completed(running, "push", (0, 1, 128))
        answer = PushAnswer(completed, [change.ref for change in marked])
        taken = set() if atomic and completed.status != 0 else answer.taken
        if mark.ref in taken:
            self._mark.moved(mark)
        self._note(ORIGIN, {change.ref: change.after for change in marked if change.ref in taken})
        self._losses = self._losses + 1 if answer.is_lost else 0 if atomic else self._losses
        if answer.is_lost and self._losses <= _LOSSES:
            raise RalphError(f"push: origin does not answer: {push_error(completed)}")
        return [change for change in changes if change.ref in taken], answer, push_error(completed)

    def _finish(
        self, changes: Sequence[RemoteChange], taken: Sequence[RemoteChange], answer: PushAnswer, reason: str
    ) -> bool:
        """Say what origin has taken, and what it refuses for a reason; return whether it has taken all."""
        if taken:
            self._log.event("hub.forwarded", f"origin has {len(taken)} more refs", refs=len(taken))
        missing = {change.ref for change in changes} - {change.ref for change in taken}
        note = store_blob(self._git, reason.encode()) if answer.refused else ""
        for ref in answer.refused:
            if self._refusals.add(ref, reason):  # once for each reason
                self._log.warning("hub.refused", f"origin has refused {ref}: {reason}")
        self._note(REFUSED, {ref: note for ref in answer.refused if ref in missing})
        return not missing

    def _note(self, prefix: str, refs: Mapping[str, str | None]) -> None:
        rows = [
            f"update {place_of(prefix, ref)}\0{oid}\0\0" if oid else f"delete {place_of(prefix, ref)}\0\0"
            for ref, oid in refs.items()
        ]
        if rows:
            run_git(self._git, "update-ref", "-z", "--stdin", stdin="".join(rows).encode())

    def _completed(
        self, running: RunningCommand, verb: str, accept: tuple[int, ...] = (0,)
    ) -> CompletedCommand:
        silence = Silence(running, _PATIENCE, fetches=verb == "fetch")
        while not running.ended(_LOOK):
            if self._cancel.hurried or silence.is_too_long:
                raise RalphError(f"{verb}: origin did not answer in time")
        completed = running.wait()
        if completed.status not in accept:
            raise RalphError(f"{verb}: origin does not answer: {push_error(completed)}")
        return completed


def _without(git: Git, commits: Collection[str], *prefixes: str) -> set[str]:
    """Return those of some commits that no ref below some prefixes holds."""
    if not commits:
        return set()
    stdin = "".join(f"{commit}\n" for commit in commits).encode()
    held = [f"--glob={prefix}" for prefix in prefixes]
    answer = run_git(git, "rev-list", "--stdin", "--not", *held, stdin=stdin)
    return {*commits} & {*decode_lines(answer.stdout)}


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


def _parts(changes: Sequence[RemoteChange]) -> Iterator[Sequence[RemoteChange]]:
    for start in range(0, len(changes), MOST_REFS):
        yield changes[start : start + MOST_REFS]
