"""Worktrees for Python programs: as a context in which agents work, or by single functions."""

from ralph_wrap.git import WorktreeInfo
from ralph_wrap.interfaces.api.agent import AgentResult, run_agent
from ralph_wrap.interfaces.api.functions import (
    add_worktree,
    branch_exists,
    list_worktrees,
    remove_worktree,
    worktree_exists,
)
from ralph_wrap.interfaces.api.worktree import Worktree, current_worktree

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
