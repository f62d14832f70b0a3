"""Bring the work of a submodule snapshot, which another machine has made, to where a save here would put it.

That is the main checkout's own repository of the submodule, so that git can check out what the branch names.
Without such a repository, or if git cannot copy into it, it is the repository of the project.
"""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import existing_commits, list_refs
from ralph_wrap.worktree.create.submodules import is_repository
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.copy_commits import RepositoryTips, held, transferred
from ralph_wrap.worktree.save.submodule_snapshot.make import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ralph_wrap.git import Git


class BroughtSubmodule(NamedTuple):
    """The work of one submodule, as it is here now.

    Attributes:
        path: of its files, below the top of a worktree; empty if it had none.
        repository: the git directory that has it.
        at: the ref of the commit to check out in it, or of its uncommitted work; empty if there is none.

    """

    path: str
    repository: Path
    at: str


def bring_submodules(store: Git, common_dir: Path, agent_id: str, snapshot: str) -> list[BroughtSubmodule]:
    """Give each commit of a submodule snapshot a ref ``refs/ralph/snapshots/<id>/commit-<n>``.

    Arguments:
        store: git at the repository of the project, which has the snapshot.
        common_dir: this repository.
        agent_id: names the refs.
        snapshot: the commit.

    Raises:
        GitError: a ref cannot be made.
        OSError: a file cannot be read.

    """
    brought = []
    for work in read_snapshot(store, snapshot):
        repository, git = common_dir, store
        own = _own_repository(common_dir, work.name)
        with contextlib.ExitStack() as until_named:
            if own is not None:
                own_git = store._replace(cwd=own, git_dir=own, common_dir=own, work_tree=own, config=())
                with contextlib.suppress(GitError, OSError):  # for example, the project is a shallow clone
                    until_named.enter_context(_copied(store, own_git, work.commits, agent_id))
                    repository, git = own, own_git
            refs = _keep(git, agent_id, work.commits)
        brought.append(BroughtSubmodule(work.path, repository, refs.get(work.at, "")))
    return brought


def _own_repository(common_dir: Path, name: str) -> Path | None:
    """Return the main checkout's repository of a submodule, ``None`` if it has none.

    Arguments:
        common_dir: the repository of the project.
        name: the path below it, which each user of a remote can have written.

    """
    parts = PurePosixPath(name).parts
    if not parts or parts[0] != "modules" or {"..", "/"} & {*parts}:
        return None
    own = common_dir.joinpath(*parts)
    try:
        return own if own.resolve() == own and is_repository(own) else None
    except (OSError, ValueError):  # no path can have this name
        return None


@contextlib.contextmanager
def _copied(store: Git, own: Git, commits: Sequence[str], agent_id: str) -> Iterator[None]:
    """Copy the commits that a repository lacks; in the block they get refs."""
    common = held(own, existing_commits(store, {*commits, *list_refs(own).values()}))
    wanted = {*commits} - common
    found = RepositoryTips(frozenset(), tuple(sorted(wanted)), tuple(sorted(common)))
    with transferred(store, own, found, agent_id) if wanted else contextlib.nullcontext():
        yield


def _keep(git: Git, agent_id: str, commits: Sequence[str]) -> dict[str, str]:
    """Return a snapshot of each commit, by commit; those that are missing are made."""
    prefix = f"refs/ralph/snapshots/{agent_id}/commit-"
    before = {*list_refs(git, f"{prefix}*").values()}
    make_snapshots(git, agent_id, sorted({*commits} - before))
    return {oid: ref for ref, oid in list_refs(git, f"{prefix}*").items()}
