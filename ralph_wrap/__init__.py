"""Run coding agents in a loop, each in its own git worktree, and never lose their work.

The public names are loaded when they are first used: the command line must not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.context import (
        AgentResult,
        Worktree,
        WorktreeInfo,
        add_worktree,
        branch_exists,
        current_worktree,
        list_worktrees,
        remove_worktree,
        run_agent,
        worktree_exists,
    )
    from ralph_wrap.errors import RalphError
    from ralph_wrap.report import SessionReport
    from ralph_wrap.session import Session
    from ralph_wrap.workspace import Workspace

__all__ = [
    "AgentResult",
    "RalphError",
    "Session",
    "SessionReport",
    "Settings",
    "Workspace",
    "Worktree",
    "WorktreeInfo",
    "add_worktree",
    "branch_exists",
    "current_worktree",
    "list_worktrees",
    "remove_worktree",
    "run_agent",
    "worktree_exists",
]

_HOMES = {
    "AgentResult": "ralph_wrap.context",
    "RalphError": "ralph_wrap.errors",
    "Session": "ralph_wrap.session",
    "SessionReport": "ralph_wrap.report",
    "Settings": "ralph_wrap.config",
    "Workspace": "ralph_wrap.workspace",
    "Worktree": "ralph_wrap.context",
    "WorktreeInfo": "ralph_wrap.context",
    "add_worktree": "ralph_wrap.context",
    "branch_exists": "ralph_wrap.context",
    "current_worktree": "ralph_wrap.context",
    "list_worktrees": "ralph_wrap.context",
    "remove_worktree": "ralph_wrap.context",
    "run_agent": "ralph_wrap.context",
    "worktree_exists": "ralph_wrap.context",
}


if not TYPE_CHECKING:  # or every name would be there for whoever checks types

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 -- see above

        return getattr(import_module(_HOMES[name]), name)
