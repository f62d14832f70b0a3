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
from ralph_wrap.state import check_results as checks
from ralph_wrap.state.check_results import CheckResult
from ralph_wrap.state.project import Project


def check_results(project: Project) -> dict[str, CheckResult]:
    """Return the newest result of the project's check for each checked tip."""
    return checks.results(project)


__all__ = [
    "LandingResult",
    "LandingTarget",
    "MergeMethod",
    "check_results",
    "land",
    "problem",
    "target_of",
    "undo_killed",
]
