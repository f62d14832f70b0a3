"""Worktrees for Python programs: as a context that agents below it work in, and one by one."""

from ralph_wrap.context.agent import AgentResult, run_agent
from ralph_wrap.context.branch import Worktree, current_worktree
from ralph_wrap.context.place import (
    add_worktree,
    branch_exists,
    list_worktrees,
    remove_worktree,
    worktree_exists,
)
from ralph_wrap.git import WorktreeInfo

__all__ = [
    "AgentResult",
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
