"""The changes of a branch: the two commits or trees to compare."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from ralph_wrap import branches, config
from ralph_wrap.errors import NotFoundError, RalphError, UsageError
from ralph_wrap.git import existing_commits, list_refs, tree_of
from ralph_wrap.git.compare import empty_tree, facts_of, merge_base
from ralph_wrap.git.oid import is_oid
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system import document, files
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.branches import Branch
    from ralph_wrap.git import Git
    from ralph_wrap.state.project import Project

SNAPSHOTS = "refs/ralph/snapshots/"
"""The refs of the uncommitted work at the ends of iterations, by agent id and number."""

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_LARGEST = 64 << 20  # bytes read of an event log


class DiffSides(NamedTuple):
    """The two sides of a comparison.

    Attributes:
        before: object id of a commit or a tree.
        after: object id of a commit or a tree.
        lacking: branches without saved work, if the user asked for saved work.

    """

    before: str
    after: str
    lacking: tuple[str, ...] = ()


def sides(
    project: Project,
    name: str,
    other: str | None = None,
    *,
    saved: bool = False,
    iteration: int | None = None,
) -> DiffSides:
    """Return the two sides to compare.

    Arguments:
        name: id or name of a branch; alone, it is compared with the commit from which it started.
        other: id or name of a second branch, with which the first is compared.
        saved: include the saved work of both.
        iteration: only the changes of this iteration.

    Raises:
        UsageError: these arguments exclude each other.
        NotFoundError: a branch or the iteration does not exist.
        RalphError: there is no repository.

    """
    if iteration is not None and (other or saved):
        raise UsageError("--iteration compares two states of one branch", "leave out ID2 and --saved")
    all_branches = branches.read(project)
    branch = branches.named(all_branches, name)
    if iteration is not None:
        return _iteration(project, branch, iteration)
    if other is not None:
        other_branch = branches.named(all_branches, other)
        lacking = tuple(side.name for side in (branch, other_branch) if saved and side.saved is None)
        return DiffSides(_tip(branch, saved=saved), _tip(other_branch, saved=saved), lacking)
    lacking = (branch.name,) if saved and branch.saved is None else ()
    return DiffSides(base_of(project, branch), _tip(branch, saved=saved), lacking)


def are_same(project: Project, sides: DiffSides) -> bool:
    """Return whether the two sides have the same files."""
    return tree_of(project.git, sides.before) == tree_of(project.git, sides.after)


def _tip(branch: Branch, *, saved: bool) -> str:
    return (branch.saved or branch.tip) if saved else branch.tip


def base_of(project: Project, branch: Branch) -> str:
    """Return the start of a branch: the recorded commit, else its merge base with the main branch.

    A branch without a common history with the main branch starts from the empty tree.

    Raises:
        NotFoundError: no commit was recorded, and there is no main branch.

    """
    if branch.base and existing_commits(project.git, [branch.base]):
        return branch.base
    main = branches.main_branch(project, config.of_project(project.root).main)
    return merge_base(project.git, main.tip, branch.tip) or empty_tree(project.git)


def _iteration(project: Project, branch: Branch, number: int) -> DiffSides:
    """Return the states before and after an iteration.

    The event log has the state after each iteration, except the last. That is the state at the session's end.
    """
    agent_id = branch.id or (branch.record or {}).get("id", "")
    snapshots = _snapshots(project.git, agent_id) if agent_id else {}
    ran = max(snapshots, default=0)
    try:
        session = inventory.find(project, agent_id)
    except RalphError:  # no session has this id
        session = None
    recorded = _recorded(session.directory / "events.jsonl") if session and session.directory else {}
    states = _recorded_states(project.git, recorded, snapshots) if recorded else snapshots
    if session and session.record and session.verdict is Verdict.FINISHED:
        last = session.record.iteration
        if (branch.record or {}).get(
            "session"
        ) == session.record.session:  # no later session continued the branch
            states.setdefault(last, branch.saved or branch.tip)
        ran = max(ran, last)
    # Without events every iteration counts: one that changed nothing may have left no snapshot.
    if number not in (states if recorded else range(1, ran + 1)):
        raise NotFoundError(
            f"iteration {number} of {branch.name} is not recorded",
            f"to see the recorded iterations: ralph-wrap logs --events {branch.label}",
        )
    base = base_of(project, branch)
    return DiffSides(_state_after(states, number - 1, base), _state_after(states, number, base))


def _snapshots(git: Git, agent_id: str) -> dict[int, str]:
    """Return the snapshots of an agent id by the number of their iteration."""
    prefix = f"{SNAPSHOTS}{agent_id}/"
    return {
        int(ref.removeprefix(prefix)): tip
        for ref, tip in list_refs(git, prefix).items()
        if _NUMBER.fullmatch(ref.removeprefix(prefix))
    }


def _recorded_states(
    git: Git, recorded: Mapping[int, tuple[str, bool]], snapshots: Mapping[int, str]
) -> dict[int, str]:
    """Return the state after each recorded iteration whose commit or snapshot still exists."""
    heads = facts_of(git, [head for head, _ in recorded.values() if head])
    return {
        number: snapshots[number] if snapshot and number in snapshots else head
        for number, (head, snapshot) in recorded.items()
        if (snapshot and number in snapshots) or head in heads
    }


def _state_after(states: Mapping[int, str], number: int, base: str) -> str:
    """Return the newest state up to an iteration; before the first one it is the base."""
    earlier = [recorded for recorded in states if recorded <= number]
    return states[max(earlier)] if earlier else base


def _recorded(log: Path) -> dict[int, tuple[str, bool]]:
    """Return for each iteration in an event log the commit at HEAD, and whether there is a snapshot.

    Arguments:
        log: the session's event log; an agent may have changed it, so any content is accepted.

    """
    recorded: dict[int, tuple[str, bool]] = {}
    try:
        lines = files.read(log, _LARGEST).split(b"\n")
    except OSError:
        return {}
    for line in lines:
        if b'"iteration.kept"' not in line:
            continue
        with contextlib.suppress(ValueError):
            recorded |= document.parse(line, _recorded_in)
    return recorded


def _recorded_in(event: Mapping[str, Any]) -> dict[int, tuple[str, bool]]:
    number, head = event["iteration"], event["head"]
    if event["event"] != "iteration.kept" or type(number) is not int:
        return {}
    return {number: (head if isinstance(head, str) and is_oid(head) else "", bool(event["snapshot"]))}
