"""Land branches: merge them into another one, with nothing moved where that cannot be.

Each branch is merged in a temporary worktree first (``trial_merge``), and the project's check is run there
(``run_check``). Only then the target moves, and its clean checkouts with it (``move_target`` tells the
order). One process at a time does so in a project (``worktree.temporary``). What another process has moved
meanwhile stays.

No hook of git runs in any of it. The branch that has landed stays where it is, and so does its saved work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.commands.merge.merge import Landed, land, named_branch, problem, undo_killed
from ralph_wrap.commands.merge.target import Target, target_of
from ralph_wrap.commands.merge.trial_merge import How
from ralph_wrap.state import check_results as checks
from ralph_wrap.state import project

if TYPE_CHECKING:
    from ralph_wrap.state.check_results import Check
    from ralph_wrap.state.project import Project


def check_results(place: Project) -> dict[str, Check]:
    """Return the newest result of the project's check, by the tip that it was about."""
    return checks.results(place.root / project.RUN)


__all__ = [
    "How",
    "Landed",
    "Target",
    "check_results",
    "land",
    "named_branch",
    "problem",
    "target_of",
    "undo_killed",
]
