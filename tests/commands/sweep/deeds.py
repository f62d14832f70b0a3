"""What may be done to a session of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ralph_wrap.commands.sweep import SweptSession
from ralph_wrap.config import Isolation, OnDirty
from tests.support.expected_session import ENDS, REWRITINGS, SPOILINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import SearchStrategy

    Deed = tuple[str, str]
    Life = tuple[dict[str, Any], str, list[Deed], list[Deed], list[Deed]]

OPTIONS: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"keep_worktree": True},
    {"on_dirty": OnDirty.KEEP},
    {"drop_empty": True},
    {"background": True},
    {"isolation": Isolation.OFF},
]


DEEDS = {
    "work": ["write", "write", "change", "delete", "commit", "commit", "amend", "nest"],
    "end": ["killed", *ENDS],
    "record": [*REWRITINGS, "written on another machine", *SPOILINGS, "restored", "written anew"],
    "lock": ["copied", "copied", "away", "brought back"],
    "worktree": ["away", "renamed", "unregistered", "brought back"],
    "process": ["a child", "elsewhere", "a person"],
}
"""What may be done to a session, and how; what cannot be done changes nothing."""


def deeds_of(*names: str) -> SearchStrategy[Deed]:
    """Return a strategy for deeds."""
    return st.sampled_from([(name, how) for name in names for how in DEEDS[name]])


LIVES = st.tuples(
    st.sampled_from(OPTIONS),
    st.sampled_from(["begun", "made", "planned", *["begun"] * 3]),
    st.lists(deeds_of("work"), max_size=3),
    st.lists(deeds_of("end"), max_size=1),
    st.lists(deeds_of("record", "lock", "worktree", "process"), max_size=1),
)
"""Options of a session, how far it comes, and what is done to it then."""


UNENDED = st.runner().flatmap(lambda machine: st.sampled_from(machine.unended))


THEN = st.sampled_from(["nothing", "sweep", "sweep", "adopt one", "adopt all", "ask"])


def without_notes(swept: Iterable[SweptSession]) -> list[SweptSession]:
    """Return what a sweep did, without notes and hints."""
    return sorted(row._replace(note=None, hint=None) for row in swept)


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Return what differs."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
