"""The refs of branches on their way out and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import branches, git
from ralph_wrap.branches import HEADS, WIP, Branch
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state import inventory, project

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralph_wrap.git import Git
    from ralph_wrap.state.project import Project

DROPPED = "refs/ralph/dropped/"
"""Where deleted branches are, by what follows ``ralph/`` in their names."""

SNAPSHOTS = "refs/ralph/snapshots/"
"""Where commits are that no branch holds, by agent id."""

_ID = re.compile(r"[0-9a-f]{4}")
_REASON = "ralph-wrap: dropped"


class Restored(NamedTuple):
    """What was brought back: id, branch and its tip, branch of saved work; ``None`` where there was none."""

    id: str | None
    branch: str | None
    tip: str | None
    saved: str | None


def delete(where: Git, going: Iterable[Branch], now: float) -> dict[str, RalphError | None]:
    """Delete branches, all in one transaction if nothing is in the way of one, and return why some are left.

    Arguments:
        now: seconds since 1970.

    """
    there = git.refs(where, DROPPED)
    ways: dict[str, list[RefChange]] = {}
    problems: dict[str, RalphError | None] = {}
    for one in going:
        try:
            ways[one.name] = _way_out(one, there)
            _forget(where, one, there, now)
            problems[one.name] = None
        except ConflictError as error:
            problems[one.name] = error
        except GitError as error:
            del ways[one.name]
            problems[one.name] = ConflictError(f"{one.name} cannot be dropped: {error.message}", "try again")
    try:
        change_refs(where, [change for way in ways.values() for change in way], _REASON, int(now))
    except GitError:  # one was moved since, say: the others may go all the same
        for name, way in ways.items():
            try:
                change_refs(where, way, _REASON, int(now))
            except GitError as error:
                problems[name] = ConflictError(f"{name} cannot be dropped: {error.message}", "try again")
    return problems


def _way_out(one: Branch, there: Mapping[str, str]) -> list[RefChange]:
    """Return how a branch and its saved work leave.

    Raises:
        ConflictError: something else was dropped under its name before, and can still be brought back.

    """
    found: list[RefChange] = []
    for name, tip in ((one.name, one.tip), (one.saved_name, one.saved)):
        if name is None or tip is None or (name == one.name and found):
            continue
        ref = DROPPED + name.removeprefix("ralph/")
        if there.get(ref, tip) != tip:
            raise ConflictError(
                f"{name} was dropped once before, as {there[ref][:12]}, and can still be brought back",
                f"git branch NAME {there[ref][:12]} && git update-ref -d {ref} {there[ref][:12]}",
            )
        found += [RefChange(ref, None, tip), RefChange(HEADS + name, tip, None)]
    return found


def _forget(where: Git, one: Branch, there: Mapping[str, str], now: float) -> None:
    """Forget that the same was dropped before: git keeps the time of that, and from now on it counts anew.

    Raises:
        GitError: the branch is not where it was any more; nothing is forgotten.

    """
    old = [
        change
        for name, tip in {one.name: one.tip, one.saved_name: one.saved}.items()
        if name and tip and (ref := DROPPED + name.removeprefix("ralph/")) in there
        for change in (RefChange(HEADS + name, tip, tip), RefChange(ref, tip, None))
    ]
    if old:
        change_refs(where, old, _REASON, int(now))


def expire(place: Project, environ: Mapping[str, str], keep: float, now: float) -> list[str]:
    """Forget what was dropped so long ago that nobody will want it back, and return the names it had.

    What there is no time for is kept.

    Arguments:
        keep: seconds; 0 is for ever.
        now: seconds since 1970.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    project.repository_of(place)
    where = place.git(environ)
    refs = git.refs(where, DROPPED)
    if not keep or not refs:
        return []
    times = ref_times(where, refs)
    old = {ref: tip for ref, tip in refs.items() if now - times.get(ref, now) > keep}
    if not old:
        return []
    stems = {ref.removeprefix(DROPPED).removesuffix(WIP) for ref in old}
    left = {ref.removeprefix(DROPPED).removesuffix(WIP) for ref in refs.keys() - old.keys()}
    there = git.refs(where, branches.OURS)
    left |= {found.id for found in inventory.unfinished(place, environ)}  # whose snapshots they may be
    for stem in stems - left:
        names = {f"{branches.OURS}{stem}", f"{branches.OURS}{stem}{WIP}"}
        if _ID.fullmatch(stem) and not names & there.keys():
            old |= git.refs(where, f"{SNAPSHOTS}{stem}/")
    change_refs(
        where, [RefChange(ref, tip, None) for ref, tip in old.items()], "ralph-wrap: expired", int(now)
    )
    return sorted(f"ralph/{ref.removeprefix(DROPPED)}" for ref in old if ref.startswith(DROPPED))


def restore(place: Project, environ: Mapping[str, str], name: str, now: float) -> Restored:
    """Bring back a branch that was dropped, and its saved work.

    Arguments:
        name: the id or the name that it had.
        now: seconds since 1970.

    Raises:
        NotFoundError: none was dropped under this name, or so long ago that it is gone.
        ConflictError: there is such a branch by now.
        RalphError: there is no repository, or git cannot do it.

    """
    project.repository_of(place)
    where = place.git(environ)
    stem = name.removeprefix(HEADS).removeprefix("ralph/")
    there = git.refs(where, DROPPED, branches.OURS)
    wanted = [stem, *([f"{stem}{WIP}"] if _ID.fullmatch(stem) else [])]
    found = {one: there[DROPPED + one] for one in wanted if DROPPED + one in there}
    for one in dict.fromkeys([stem, *found]):
        if branches.OURS + one in there:
            raise ConflictError(
                f"there is a branch ralph/{one}: it is not overwritten", f"git branch -m ralph/{one} NAME"
            )
    if not found:
        raise NotFoundError(
            f"nothing was dropped as ralph/{stem}, or it is gone by now",
            f"git for-each-ref {DROPPED} lists what can be brought back",
        )
    changes = [
        change
        for one, tip in found.items()
        for change in (RefChange(branches.OURS + one, None, tip), RefChange(DROPPED + one, tip, None))
    ]
    try:
        change_refs(where, changes, "ralph-wrap: restored", int(now))
    except GitError as error:
        raise ConflictError(f"ralph/{stem} cannot be brought back: {error.message}", "try again") from None
    saved = f"{stem}{WIP}"
    return Restored(
        id=stem if _ID.fullmatch(stem) else None,
        branch=f"ralph/{stem}" if stem in found else None,
        tip=found.get(stem),
        saved=f"ralph/{saved}" if saved in found else None,
    )
