"""Which branch a merge lands on, in sentences, where it is not the one that a user would expect."""

from __future__ import annotations

from ralph_wrap.branches import HEADS, ORIGIN, ORIGIN_HEAD, SET_HEAD, MainBranch
from ralph_wrap.git import list_refs, symbolic_ref_target
from ralph_wrap.state.project import Project
from ralph_wrap.system.text import command


def notes(project: Project, main: MainBranch | None) -> list[str]:
    """Return a sentence for each fact that explains where a merge lands; none if that is obvious.

    Arguments:
        main: the main branch, which was not configured; ``None`` if there is none.

    """
    target = symbolic_ref_target(project.git, ORIGIN_HEAD)
    default = target.removeprefix(ORIGIN) if target else None
    names = [*([default] if default else []), "main", "master"]
    refs = list_refs(project.git, *(HEADS + name for name in names), *([target] if target else []))
    local = next((name for name in names if HEADS + name in refs), None)
    stale = []
    if target and target not in refs:
        stale = [f"origin/HEAD names {_short(target)}, which does not exist; to mend that: {SET_HEAD}"]
    if main is not None and main.is_checked_out:
        if local is None or local == main.name:
            return stale
        into = command("ralph-wrap", "merge", "ID", "--into", local)
        why = "which the main checkout has checked out, and branches are compared with it"
        return [f"a merge lands on {main.name}, {why}; to land on {local}: {into}", *stale]
    if stale:
        return stale
    if main is not None and not main.ref.startswith(HEADS):
        why = f"origin/HEAD names {main.name}, and there is no local branch of this name"
        return [f"a merge has no branch to land on: {'; '.join([why, *ways_to_land(main)])}"]
    return []


def ways_to_land(main: MainBranch) -> list[str]:
    """Return the commands that help if the main branch is a branch of the remote alone."""
    local = main.ref.removeprefix(ORIGIN)
    return [
        f"if the remote has renamed its main branch: {SET_HEAD}",
        f"to have it here: {_create_command(local, main)}",
    ]


def _create_command(local: str, main: MainBranch) -> str:
    """Return the command that makes a remote's branch a local one; ``git branch`` refuses the name ``-M``."""
    if local.startswith("-"):
        return command("git", "update-ref", f"{HEADS}{local}", main.ref)
    return command("git", "branch", local, main.name)


def _short(ref: str) -> str:
    return ref.removeprefix("refs/remotes/")
