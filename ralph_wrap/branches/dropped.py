"""The branches that ``ralph-wrap drop`` has deleted, and that ``restore`` can bring back."""

from __future__ import annotations

from collections.abc import Sequence

from ralph_wrap import branches
from ralph_wrap.branches import Branch
from ralph_wrap.errors import NotFoundError, UsageError
from ralph_wrap.git import list_refs
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.system.text import command

DROPPED = "refs/ralph/dropped/"
"""The refs of dropped branches below ``ralph/``; the rest of the name follows."""
DROPPED_ELSEWHERE = "refs/ralph/dropped-branches/"
"""The refs of the other ones; the whole name follows."""


def dropped_ref(name: str) -> str:
    """Return the ref of a dropped branch."""
    below = name.removeprefix("ralph/")
    return DROPPED_ELSEWHERE + name if below == name else DROPPED + below


def branch_of(ref: str) -> str:
    """Return the short name of the branch that was dropped to a ref."""
    other = ref.removeprefix(DROPPED_ELSEWHERE)
    return f"ralph/{ref.removeprefix(DROPPED)}" if other == ref else other


def dropped(project: Project) -> list[Branch]:
    """Return the branches that were dropped and can be restored.

    Raises:
        RalphError: there is no repository.

    """
    repository_of(project)
    refs = list_refs(project.git, DROPPED, DROPPED_ELSEWHERE)
    tips = {branch_of(ref): tip for ref, tip in refs.items()}
    return branches.of_tips(tips, branches.recorded(project))


def find(project: Project, known: Sequence[Branch], wanted: str) -> Branch:
    """Return the branch with a name; the error for one that was dropped, or that is gone, says so.

    Arguments:
        known: as :func:`ralph_wrap.branches.read` returns them.
        wanted: as for :func:`ralph_wrap.branches.named`.

    Raises:
        UsageError: the title of several branches fits.
        NotFoundError: there is no such branch.

    """
    try:
        return branches.named(known, wanted)
    except NotFoundError as error:
        try:
            gone = branches.named(dropped(project), wanted)
        except (NotFoundError, UsageError):
            raise gone_for_ever(project, wanted) or error from None
    raise NotFoundError(
        f"branch {gone.name} was dropped",
        f"to bring it back: {command('ralph-wrap', 'restore', gone.label)}",
    )


def gone_for_ever(project: Project, wanted: str) -> NotFoundError | None:
    """Return the error for a branch of a finished session that nothing has any more; ``None`` without one."""
    for session in branches.recorded(project):
        record = session.record
        if session.registry is None or record is None or not record.branch:
            continue
        names = {record.id, record.session, record.branch, record.branch.removeprefix("ralph/")}
        if wanted in names:
            return NotFoundError(
                f"branch {record.branch} does not exist any more, and cannot be restored",
                f"to see what its session printed: {command('ralph-wrap', 'logs', record.session)}",
            )
    return None
