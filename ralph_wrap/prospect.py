"""What can be known, and what can be wrong, before anything is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ralph_wrap import git, user
from ralph_wrap.agents import look_up
from ralph_wrap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.config import Settings
    from ralph_wrap.git import Git
    from ralph_wrap.project import Project


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is known before anything is made.

    Attributes:
        base: the commit to start from; ``None`` if there is none.
        taken: agent ids that belong to a branch.
        identity: environment variables that name a committer, where git knows none.

    """

    base: str | None
    taken: set[str]
    identity: Mapping[str, str]


def look_first(settings: Settings, place: Project, where: Git, environ: Mapping[str, str]) -> Prospect:
    """Check everything that can be checked before anything is made.

    Raises:
        UsageError: base or branch cannot be what they are said to be.
        AgentError: the agent's command cannot be run.

    """
    look_up(settings.command, environ)
    if place.repository is None:
        return Prospect(None, set(), {})
    base = place.repository.head
    with (
        git.start(where, "var", "GIT_COMMITTER_IDENT") as known,
        git.start(where, "for-each-ref", "--format=%(refname)", "refs/heads/ralph/", "refs/ralph/") as refs,
    ):
        if settings.branch is not None and not git.is_branch_name(where, settings.branch):
            raise UsageError(
                f"{settings.branch!r} cannot be the name of a branch", "see git help check-ref-format"
            )
        if settings.base != "head":
            base = git.resolve_commit(where, settings.base)
            if base is None:
                raise UsageError(
                    f"base {settings.base!r} names no commit", "git log --oneline --all lists them"
                )
        identity = user.FALLBACK_IDENTITY if known.wait().status != 0 else {}
        return Prospect(base, git.agent_ids(git.finish(refs, "for-each-ref").stdout), identity)
