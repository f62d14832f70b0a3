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
        identity: environment variables that name a committer, where git knows none.

    """

    base: str | None
    identity: Mapping[str, str]


def look_first(settings: Settings, place: Project, where: Git, environ: Mapping[str, str]) -> Prospect:
    """Check everything that can be checked before anything is made.

    Raises:
        UsageError: base or branch cannot be what they are said to be.
        AgentError: the agent's command cannot be run.

    """
    look_up(settings.command, environ)
    if place.repository is None:
        return Prospect(None, {})
    base = place.repository.head
    with git.start(where, "var", "GIT_COMMITTER_IDENT") as known:
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
        return Prospect(base, identity)


def taken_ids(place: Project, where: Git, agent_id: str = "") -> set[str]:
    """Return the agent ids that belong to a branch, or to what else is kept of a session.

    Arguments:
        place: the project.
        where: git in it.
        agent_id: look for this one only.

    """
    if place.repository is None:
        return set()
    patterns = ("refs/heads/ralph/", "refs/ralph/")
    if agent_id:
        patterns = (f"refs/heads/ralph/{agent_id}*", f"refs/ralph/*/{agent_id}*")
    return git.agent_ids(git.run(where, "for-each-ref", "--format=%(refname)", *patterns).stdout)
