"""Land branches: merge them into a target branch, or change nothing if a merge fails.

A temporary worktree first merges each branch (``trial_merge``), and the project's check runs there
(``run_check``). Only then the target moves, with its clean checkouts (``move_target`` has the order). One
process at a time lands branches in a project (``worktree.temporary``). A change of another process meanwhile
stays.

No git hook runs. The landed branch stays where it is, and so does its saved work.
"""

from __future__ import annotations

from ralph_wrap.commands.merge.merge import LandingResult, land, problem, undo_killed
from ralph_wrap.commands.merge.target import LandingTarget, target_of
from ralph_wrap.commands.merge.trial_merge import MergeMethod

__all__ = [
    "LandingResult",
    "LandingTarget",
    "MergeMethod",
    "land",
    "problem",
    "target_of",
    "undo_killed",
]
