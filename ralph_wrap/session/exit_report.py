"""Add the outcome of the worktree to the report of a session."""

from __future__ import annotations

import os

from ralph_wrap import branches
from ralph_wrap.errors import RalphError
from ralph_wrap.git import count_commits, pointer
from ralph_wrap.state.project import Project
from ralph_wrap.state.report import RemovedFiles, SavedSubmodule, SessionReport
from ralph_wrap.worktree.remove import WorktreeOutcome

_NAMED = 10  # maximum number of ignored files to name; the others are counted
_OF_OUTCOME = {"saved_paths", "snapshots", "submodules", "clones_removed"}  # lists that the outcome replaces


def commits_ahead(project: Project, configured: str, report: SessionReport) -> int | None:
    """Return the number of commits of the session's branch that the main branch lacks.

    Arguments:
        configured: ``main`` in the configuration.
        report: of the session.

    Returns:
        The number; ``None`` without a branch or a main branch, or if git cannot say.

    """
    if report.branch is None or project.repository is None:
        return None
    common_dir = project.repository.common_dir
    at_head = None if configured else pointer.branch_at_head(common_dir, common_dir)
    if at_head and not at_head[0].startswith(branches.OURS) and at_head[1] == report.base:
        return report.commits  # the main checkout has the main branch, which is where the session began
    try:
        main = branches.main_branch(project, configured).tip
        return count_commits(project.git, main, f"{branches.HEADS}{report.branch}")
    except (RalphError, OSError):
        return None


def with_outcome(report: SessionReport, outcome: WorktreeOutcome) -> SessionReport:
    """Return a report with the outcome of saving and removing the worktree."""
    saved = outcome.saved
    counts = {name: count for name, count in report.cut.items() if name not in _OF_OUTCOME}
    report = report._replace(lost=outcome.lost, way_out=outcome.way_out, cut=counts)
    if saved is None:
        return report._replace(kept=outcome.kept)
    ignored = RemovedFiles(files=saved.ignored_files, paths=list(saved.ignored[:_NAMED]))
    return report._replace(
        saved=saved.branch,
        saved_paths=saved.paths if saved.branch else (),
        saved_commits=saved.detached,
        snapshots=saved.snapshots,
        submodules=tuple(
            SavedSubmodule(
                path=submodule.path or submodule.name,
                repository=os.fspath(submodule.store),
                refs=list(submodule.refs),
            )
            for submodule in saved.inner
            if submodule.refs
        ),
        kept=outcome.kept,
        ignored_removed=None if outcome.kept else ignored,
        clones_removed=() if outcome.kept else saved.clones,
    )
