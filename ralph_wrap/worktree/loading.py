"""Load every module that works on the worktrees of sessions and programs.

A module imports another one inside a function where that keeps a start fast. A session or a server loads all
of them before an agent or a user works: meanwhile another version of ralph-wrap may be installed.
"""

from __future__ import annotations

from importlib import import_module

_LATE = (
    "ralph_wrap.state.landings",
    "ralph_wrap.worktree.create.report_copies",
    "ralph_wrap.worktree.create.submodules",
    "ralph_wrap.worktree.fingerprints",
    "ralph_wrap.worktree.leaks.compare",
    "ralph_wrap.worktree.leaks.monitor",
    "ralph_wrap.worktree.managed.create",
    "ralph_wrap.worktree.pool.maintenance",
    "ralph_wrap.worktree.recover",
    "ralph_wrap.worktree.save.checkpoint",
    "ralph_wrap.worktree.save.submodules",
)
"""They import all other modules of ``worktree`` but those that only a merge or ``apply`` needs."""


def load_all() -> None:
    """Load all of them."""
    for name in _LATE:
        import_module(name)
