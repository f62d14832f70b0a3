"""The changes of a branch: the two commits or trees to compare.

They begin at the merge base with the main branch, so they are what a merge lands. A record can say anything.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import branches, config
from ralph_wrap.branches import Branch, MainBranch
from ralph_wrap.branches.dropped import find
from ralph_wrap.branches.touches import ChangedFile, touches_of
from ralph_wrap.errors import NotFoundError, RalphError, UsageError
from ralph_wrap.git import Git, existing_commits, list_refs, patch, tree_of
from ralph_wrap.git.compare import empty_tree, facts_of, landing_base
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.safe.genuine import require_genuine
from ralph_wrap.session.worktree_view import worktree_of
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.system import document, files
from ralph_wrap.system.text import command
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.picture import Picture, pictured

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
        remark: why *before* is not where a merge begins; empty if it is.

    """

    before: str
    after: str
    lacking: tuple[str, ...] = ()
    remark: str = ""


class Origin(NamedTuple):
    """The commit or tree from which the changes of a branch are shown.

    Attributes:
        id: object id.
        main: the main branch, with which it is the merge base; ``None`` if a session recorded it.
        remark: why it is not where a merge begins; empty if it is.

    """

    id: str
    main: MainBranch | None
    remark: str = ""


def sides(
    project: Project,
    objects: Git,
    name: str,
    other: str | None = None,
    *,
    saved: bool = False,
    iteration: int | None = None,
    picture: Picture | None = None,
) -> DiffSides:
    """Return the two sides to compare.

    Arguments:
        objects: git in a shadow git directory.
        name: id or name of a branch; alone, it is compared with its merge base with the main branch.
        other: id or name of a second branch, with which the first is compared.
        saved: include the saved work of both.
        iteration: only the changes of this iteration.
        picture: the files of the session now, instead of its saved work; *objects* has theirs.

    Raises:
        UsageError: these arguments exclude each other.
        NotFoundError: a branch or the iteration does not exist.
        TamperedError: an object holds something else than its name says.
        RalphError: there is no repository.

    """
    if iteration is not None and (other or saved):
        raise UsageError("--iteration compares two states of one branch", "leave out ID2 and --saved")
    if picture is not None:
        branch = find(project, branches.read(project), name)
        origin = origin_of(project, objects, branch, picture.head)
        found = DiffSides(origin.id, picture.tree, (), origin.remark)
    else:
        found = _sides(project, objects, name, other, saved=saved, iteration=iteration)
    require_genuine(objects, found.before, found.after)
    return found


def _sides(
    project: Project, objects: Git, name: str, other: str | None, *, saved: bool, iteration: int | None
) -> DiffSides:
    all_branches = branches.read(project)
    branch = find(project, all_branches, name)
    if iteration is not None:
        return _iteration(project, objects, branch, iteration)
    if other is not None:
        other_branch = find(project, all_branches, other)
        lacking = tuple(side.name for side in (branch, other_branch) if saved and side.saved is None)
        return DiffSides(_tip(branch, saved=saved), _tip(other_branch, saved=saved), lacking)
    lacking = (branch.name,) if saved and branch.saved is None else ()
    tip = _tip(branch, saved=saved)
    origin = origin_of(project, objects, branch, tip)
    return DiffSides(origin.id, tip, lacking, origin.remark)


@contextlib.contextmanager
def uncommitted(project: Project, objects: Git, name: str) -> Iterator[Picture | None]:
    """Yield the files of a session that runs, with what is not committed; ``None`` for any other branch.

    Arguments:
        objects: git in a shadow git directory.
        name: id or name of the branch.

    Raises:
        NotFoundError: there is no such branch.
        RalphError: git cannot read the worktree.

    """
    branch = find(project, branches.read(project), name)
    worktree = _worktree(project, branch) if branch.verdict == Verdict.LIVE.value else None
    if worktree is None:
        yield None
        return
    try:
        with pictured(worktree, project.git, objects) as picture:
            yield picture
    except OSError as error:
        raise RalphError(f"{worktree.path} cannot be read: {error}", "has the session just ended?") from error


def hint(project: Project, name: str) -> str:
    """Return the command that shows what is not committed, if that may be something; else an empty text."""
    branch = find(project, branches.read(project), name)
    has_more = branch.verdict == Verdict.LIVE.value or branch.saved not in {None, branch.tip}
    return command("ralph-wrap", "diff", "--saved", branch.label) if has_more else ""


def _worktree(project: Project, branch: Branch) -> LinkedWorktree | None:
    """Return the worktree in which a live session works; ``None`` if it works in a clone, or elsewhere."""
    found = inventory.find(project, branch.sessions[0]) if branch.sessions else None
    record = found.record if found is not None and found.verdict is Verdict.LIVE else None
    return None if record is None else worktree_of(project, record)


def are_same(objects: Git, sides: DiffSides) -> bool:
    """Return whether the two sides have the same files."""
    return tree_of(objects, sides.before) == tree_of(objects, sides.after)


def order_file(objects: Git, sides: DiffSides) -> Path | None:
    """Write an order in which the files come first that other programs run; ``None`` if there are none.

    Arguments:
        objects: git in a shadow git directory, which gets the file (git-diff(1), ``-O``).

    """
    files = [
        ChangedFile(change.path, *change.modes, change.objects[1])
        for change in patch.changes(objects, sides.before, sides.after)
    ]
    touches = touches_of(objects, {"": files}, {"": sides.after})[""]
    if not touches or objects.git_dir is None:
        return None
    path = objects.git_dir / "order"
    path.write_bytes(
        b"".join(os.fsencode(_escaped(touch.path)) + b"\n" for touch in touches if "\n" not in touch.path)
    )
    return path


def _escaped(path: str) -> str:
    """Return a pattern for a path, whose characters may all mean something in a pattern."""
    return re.sub(r"([\\*?\[#!])", r"\\\1", path)


def _tip(branch: Branch, *, saved: bool) -> str:
    return (branch.saved or branch.tip) if saved else branch.tip


def origin_of(project: Project, objects: Git, branch: Branch, tip: str) -> Origin:
    """Return the merge base of a tip with the main branch, or the empty tree: see :func:`landing_base`.

    If a merge would land nothing, or there is no main branch, it is the commit that a session recorded.

    Arguments:
        objects: git in a shadow git directory.
        tip: the tip of the branch or of its saved work.

    Raises:
        NotFoundError: there is no main branch, and no commit was recorded.

    """
    recorded = branch.base if branch.base and existing_commits(objects, [branch.base]) else None
    try:
        main = branches.main_branch(project, config.of_project(project.main, project.environ, "main").main)
    except NotFoundError:
        if recorded is None:
            raise
        return Origin(recorded, None, "there is no main branch")
    base = landing_base(objects, main.tip, tip)
    if base == tip and recorded not in {None, tip}:
        assert recorded is not None
        return Origin(recorded, None, f"{main.name} has all of {branch.name}")
    return Origin(base or empty_tree(objects), main if base else None)


def _iteration(project: Project, objects: Git, branch: Branch, number: int) -> DiffSides:
    """Return the states before and after an iteration, as its session recorded them.

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
    states = _recorded_states(objects, recorded, snapshots) if recorded else snapshots
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
            f"to see the recorded iterations: {command('ralph-wrap', 'logs', '--events', branch.label)}",
        )
    base = branch.base if branch.base and existing_commits(objects, [branch.base]) else None
    base = base or origin_of(project, objects, branch, branch.tip).id
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
    objects: Git, recorded: Mapping[int, tuple[str, bool]], snapshots: Mapping[int, str]
) -> dict[int, str]:
    """Return the state after each recorded iteration whose commit or snapshot still exists."""
    heads = facts_of(objects, [head for head, _ in recorded.values() if head])
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
        lines = files.read_beginning(log, _LARGEST).split(b"\n")
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
