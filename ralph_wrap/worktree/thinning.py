"""Delete the snapshots of a session that newer ones have replaced, in the loop and at its end.

**Why this is safe.** A snapshot has the whole state of the worktree at the end of an iteration, so the newest
one has all work that was uncommitted then. An older one is only history.

- While the loop runs, the last 50 stay whatever happens. At the end, 20 stay, and only after the save was
  verified and the worktree is gone: the saved work is newer than each of them.
- The message of a commit names its session and iteration. The snapshot of an earlier session of the same id
  stays, and so does one of a HEAD that was away from the branch.
- An agent can reset its branch, and then a snapshot may be the only thing that contains an earlier commit. A
  commit below a snapshot gets a ref ``commit-<n>`` first, unless the branch of the session or an earlier
  ``commit-<n>`` contains it. No other ref counts: anybody may delete it meanwhile.
- The refs go in one transaction that names their commits, and those of the branch and of each ``commit-<n>``,
  which are the proof. If one of them has moved, or git fails, all stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ralph_wrap.branches import HEADS
from ralph_wrap.git import Git, decode_lines, run_git
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.worktree.retention import SNAPSHOTS, iteration_of
from ralph_wrap.worktree.save.commits import lone_parents, make_snapshots
from ralph_wrap.worktree.save.trees import SNAPSHOT_TITLE

_RECENT, _BY_TENS, _AFTER_END = 50, 500, 20  # snapshots
_WITH_MESSAGES = "--format=%(refname)%00%(objectname)%00%(contents:subject)"
_WITH_TARGETS = "--format=%(refname)%00%(objectname)%00%(symref)"


def superseded(numbers: Collection[int]) -> set[int]:
    """Return the iterations whose snapshots go while the loop runs.

    The last 50 stay. Before them it is the last one of each ten, and 500 iterations back the last one of each
    hundred. At most some 130 are left, however often this is done.

    Arguments:
        numbers: of the iterations that have a snapshot.

    """
    newest_first = sorted(numbers, reverse=True)
    blocks: set[tuple[int, int]] = set()
    gone: set[int] = set()
    for number in newest_first[_RECENT:]:
        width = 10 if newest_first[0] - number < _BY_TENS else 100
        if (width, number // width) in blocks:
            gone.add(number)
        blocks.add((width, number // width))
    return gone


def superseded_at_end(numbers: Collection[int]) -> set[int]:
    """Return the iterations whose snapshots go after an orderly end: all but the last 20."""
    return {*sorted(numbers, reverse=True)[_AFTER_END:]}


def thin_snapshots(
    git: Git,
    agent_id: str,
    session: str,
    now: float,
    choose: Callable[[Collection[int]], set[int]],
    branch: str,
) -> list[str]:
    """Delete snapshots of iterations of a session, and return their refs.

    Arguments:
        git: git in the repository.
        agent_id: names the refs.
        session: session id.
        now: seconds since 1970.
        choose: returns those of some iterations whose snapshots go.
        branch: of the session, without ``refs/heads/``.

    Raises:
        GitError: git failed; no snapshot has gone.

    """
    prefix = f"{SNAPSHOTS}{agent_id}/"
    own: dict[int, str] = {}  # object id by iteration
    for line in decode_lines(run_git(git, "for-each-ref", _WITH_MESSAGES, prefix).stdout):
        ref, oid, subject = line.split("\0")
        number = iteration_of(ref)
        if number and subject == f"{SNAPSHOT_TITLE}{number} of session {session}":
            own[number] = oid
    gone = {f"{prefix}{number}": own[number] for number in sorted(choose(own.keys()))}
    if not gone:
        return []
    holding = _holding(git, prefix, branch)
    make_snapshots(git, agent_id, lone_parents(git, gone.values(), holding.values()))
    changes = [RefChange(ref, oid, oid) for ref, oid in holding.items()]
    changes += [RefChange(ref, oid, None) for ref, oid in gone.items()]
    change_refs(git, changes, "ralph-wrap: newer ones have replaced it", int(now))
    return [*gone]


def _holding(git: Git, prefix: str, branch: str) -> dict[str, str]:
    """Return the refs of a session that stay: its branch, and the commits that are on no branch.

    A symbolic ref contains nothing: it can lead to a ref that goes.
    """
    refs = {}
    for line in decode_lines(run_git(git, "for-each-ref", _WITH_TARGETS, HEADS + branch, prefix).stdout):
        ref, oid, target = line.split("\0")
        if not target and (ref == HEADS + branch or not iteration_of(ref)):
            refs[ref] = oid
    return refs
