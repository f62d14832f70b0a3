"""Copy commits of a submodule's repository into a repository that stays.

This module does not use ``git fetch``, which obeys the configuration of both repositories. In older git it
cannot fetch a commit without a ref, and it writes more than refs. Instead git packs the objects that the
other repository lacks, on its file system.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, decode_lines, existing_commits, list_refs, resolve_commit, run_git
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.quarantine import (
    SUBMODULES,
    borrow,
    enter,
    is_working,
    owners,
    pack,
    quarantine,
    release,
)
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.system import files
from ralph_wrap.worktree.create.replica import CLONED
from ralph_wrap.worktree.create.submodules import is_repository
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.commits import named_commits, named_objects, unreachable


class RepositoryTips(NamedTuple):
    """The tips of a repository: commits that no other commit has as an ancestor, and tags.

    Attributes:
        every: object ids that its refs, HEAD and reflogs name.
        loose: the object ids that the other repository lacks.
        common: commits that both repositories have, and that refs of the other one contain.

    """

    every: frozenset[str]
    loose: tuple[str, ...]
    common: tuple[str, ...]


def store_of(worktree: LinkedWorktree, repository: Path) -> Path:
    """Return the repository that gets the commits of a submodule.

    Arguments:
        worktree: the worktree with the submodule.
        repository: the repository of the submodule, in the worktree's registration.

    """
    common = worktree.common_dir
    own = common / repository.relative_to(worktree.registration)
    if not is_repository(own):
        return common
    try:
        borrowed = files.read(own / "objects" / "info" / "alternates").splitlines()
    except FileNotFoundError:
        return own
    if any(line.startswith(b'"') for line in borrowed):  # a quoted path (git 2.11)
        return common
    alternates = ((own / "objects" / os.fsdecode(line)).resolve() for line in borrowed)
    removed = (worktree.registration, worktree.path)
    return common if any(path.is_relative_to(top) for path in alternates for top in removed) else own


def tips(
    git: Git, store: Git, repository: Path, problems: list[str], *, cloned: bool = False
) -> RepositoryTips:
    """Return the tips that a repository holds and another one lacks.

    Arguments:
        git: git in the repository.
        store: git in the other repository.
        repository: the directory of the repository.
        problems: gets a line for each object that cannot be copied.
        cloned: ralph-wrap cloned it, perhaps only in part, and no agent has worked in it. So its remote
            branches and tags are no work.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    rows = decode_lines(
        run_git(git, "for-each-ref", "--format=%(objectname) %(objecttype) %(refname)").stdout
    )
    refs = [row.split(" ", 2) for row in rows]
    problems += [f"{name} names a {kind}" for _, kind, name in refs if kind not in {"commit", "tag"}]
    tags = {oid for oid, kind, _ in refs if kind == "tag"}
    every = {oid for oid, kind, _ in refs if kind == "commit"}
    named = named_objects(repository, git, problems)
    every |= {*unreachable(git, named_commits(git, named, problems))}
    ignored = (
        {oid for oid, _, name in refs if name.startswith(("refs/remotes/", "refs/tags/"))}
        if cloned
        else set()
    )
    ignored |= _recorded(repository)
    refs_of_store = {*list_refs(store).values()}
    if head := resolve_commit(store, "HEAD"):
        refs_of_store.add(head)
    shared = {*existing_commits(git, refs_of_store)}
    common = shared | _held(store, every - refs_of_store)
    loose = {*outermost(git, every, common | {*existing_commits(git, ignored)})}
    # No commit refers to a tag object, and a tag object refers to the commit that it names.
    loose |= tags - refs_of_store - ignored
    return RepositoryTips(frozenset(every | tags), tuple(sorted(loose)), tuple(sorted(common)))


@contextlib.contextmanager
def transferred(git: Git, store: Git, found: RepositoryTips, owner: str) -> Iterator[None]:
    """Copy the loose tips with all their objects, and read every object back; in the block they get refs.

    They come as one pack, which no ``git gc`` deletes (see :mod:`ralph_wrap.git.quarantine`).

    Arguments:
        git: git in the repository that has them.
        store: git in the other repository.
        found: what to copy.
        owner: the session, or its agent id, for the name of the quarantine. Each copy adds a part of its own,
            because several may run at once.

    Raises:
        GitError: git cannot copy them.
        OSError: an object cannot be copied, or is missing or damaged.

    """
    assert git.git_dir is not None
    assert store.git_dir is not None
    shallow = _shallow(git.git_dir)
    if not shallow <= _shallow(store.git_dir):
        raise OSError("it is a shallow clone, and the rest of its history is not here")
    own, objects = (git.common_dir or git.git_dir) / "objects", store.git_dir / "objects"
    if any((own / "pack").glob("*.promisor")):
        raise OSError("it is a partial clone, and the rest of its objects are not here")
    _release_left(objects, owner + SUBMODULES)
    owner += SUBMODULES + os.urandom(4).hex()
    try:
        with quarantine(objects, owner) as directory:  # until there are refs: its lock keeps others off
            borrow(directory, own)
            packed = pack(git._replace(quarantine=directory), objects, found.loose, found.common)
            if packed is not None:
                _require_whole(store._replace(objects=packed), found)
                enter(packed, objects, owner, found.loose)
            _require_whole(store, found)
            yield
    finally:
        with contextlib.suppress(OSError):  # the next sweep does it
            release(objects, owner)


def _release_left(objects: Path, prefix: str) -> None:
    """Release what killed copies have left; those that run hold the lock of their quarantine."""
    with contextlib.suppress(OSError):
        for left in owners(objects):
            if left.startswith(prefix) and not is_working(objects, left):
                release(objects, left)


def _require_whole(store: Git, found: RepositoryTips) -> None:
    if damage := find_damage(store, found.loose, found.common):
        raise OSError(damage)


def snapshots_of(store: Git, agent_id: str, found: RepositoryTips) -> tuple[str, ...]:
    """Return the refs of a repository that hold these tips, including refs of an earlier attempt."""
    refs = list_refs(store, f"refs/ralph/snapshots/{agent_id}/")
    return tuple(sorted(name for name, oid in refs.items() if oid in found.every))


def _recorded(repository: Path) -> set[str]:
    try:
        content = files.read(repository / CLONED)
    except FileNotFoundError:
        return set()
    # Only whole ids: git would resolve the beginning of an id to any commit with this beginning.
    return {line for line in decode_lines(content) if is_oid(line)}


def _shallow(git_dir: Path) -> set[bytes]:
    try:
        return {*files.read(git_dir / "shallow", 1 << 30).split()}
    except FileNotFoundError:
        return set()


def _held(store: Git, oids: Collection[str]) -> set[str]:
    """Return the commits among these that refs of a repository contain.

    Arguments:
        store: git in the repository.
        oids: ids of commits that it may lack.

    Raises:
        GitError: git failed.

    """
    present = existing_commits(store, oids) if oids else []
    if not present:
        return set()
    try:
        answer = run_git(store, "rev-list", "--stdin", "--not", "--all", stdin=_stdin(present))
    except GitError:  # git may have pruned objects that no ref contains
        return set()
    return {*present} - {*decode_lines(answer.stdout)}


def outermost(git: Git, oids: Collection[str], without: Collection[str]) -> list[str]:
    """Return commits among these that no other one contains, and none of *without*.

    Arguments:
        git: git in the repository.
        oids: ids of commits.
        without: ids of commits that the repository has.

    Raises:
        GitError: git failed.

    """
    if not oids:
        return []
    stdin = _stdin([*oids, *(f"^{oid}" for oid in without)])
    rows = [
        line.split()
        for line in decode_lines(run_git(git, "rev-list", "--parents", "--stdin", stdin=stdin).stdout)
    ]
    inner = {parent for _, *parents in rows for parent in parents}
    return [commit for commit, *_ in rows if commit not in inner]


def _stdin(oids: Collection[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()
