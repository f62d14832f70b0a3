"""Copy commits of a submodule's repository into one that stays.

Not by ``git fetch``: that obeys the configuration of both sides, cannot name a commit without a ref in older
git, and writes more than refs. A pack is made of what the other side lacks, and put there as it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import decode_lines, existing_commits, list_refs, resolve_commit, run_git, write_pack
from ralph_wrap.git.oid import is_oid
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.create.submodules import CLONED, is_repository
from ralph_wrap.worktree.save.commits import unheld

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree


class RepositoryTips(NamedTuple):
    """The outermost commits of a repository, and tags.

    Attributes:
        every: object ids that its refs, HEAD and reflogs name.
        loose: those that the other repository does not hold.
        common: commits that both have, and that refs hold in the other one.

    """

    every: frozenset[str]
    loose: tuple[str, ...]
    common: tuple[str, ...]


def store_of(worktree: LinkedWorktree, repository: Path) -> Path:
    """Return the repository in which the commits of a submodule are to stay.

    Arguments:
        worktree: that the submodule is in, or a submodule of it.
        repository: of the submodule, in the worktree's registration.

    """
    common = worktree.common_dir
    own = common / repository.relative_to(worktree.registration)
    if not is_repository(own):
        return common
    try:
        borrowed = files.read(own / "objects" / "info" / "alternates").splitlines()
    except FileNotFoundError:
        return own
    if any(line.startswith(b'"') for line in borrowed):  # quoted, as it may be (git 2.11)
        return common
    places = ((own / "objects" / os.fsdecode(line)).resolve() for line in borrowed)
    going = (worktree.registration, worktree.path)
    return common if any(place.is_relative_to(one) for place in places for one in going) else own


def tips(
    git: Git, store: Git, repository: Path, problems: list[str], *, cloned: bool = False
) -> RepositoryTips:
    """Look for what a repository holds and another one does not.

    Arguments:
        git: git in it.
        store: git in the other one.
        repository: its directory.
        problems: gets a line for what cannot be copied.
        cloned: it was cloned by us, perhaps not to the end, and nobody has worked in it: what it has of
            its origin is nobody's work.

    Raises:
        GitError: that cannot be told.
        OSError: the same.

    """
    rows = decode_lines(
        run_git(git, "for-each-ref", "--format=%(objectname) %(objecttype) %(refname)").stdout
    )
    refs = [row.split(" ", 2) for row in rows]
    problems += [f"{name} names a {kind}" for _, kind, name in refs if kind not in {"commit", "tag"}]
    tags = {oid for oid, kind, _ in refs if kind == "tag"}
    every = {oid for oid, kind, _ in refs if kind == "commit"}
    every |= {*unheld(repository, git, problems)}
    known = (
        {oid for oid, _, name in refs if name.startswith(("refs/remotes/", "refs/tags/"))}
        if cloned
        else set()
    )
    known |= _recorded(repository)
    theirs = {*list_refs(store).values()}
    if head := resolve_commit(store, "HEAD"):
        theirs.add(head)
    common = {*existing_commits(git, theirs)} | _held(store, every - theirs)
    loose = {*_outermost(git, every, common | {*existing_commits(git, known)})}
    # A tag is an object of its own, which no commit leads to, and leads to what it names.
    loose |= tags - theirs - known
    return RepositoryTips(frozenset(every | tags), tuple(sorted(loose)), tuple(sorted(common)))


def transfer(git: Git, store: Git, found: RepositoryTips) -> None:
    """Copy what is loose, and make sure that all of it has come.

    Raises:
        GitError: it cannot be copied.
        OSError: the same.

    """
    assert git.git_dir is not None
    assert store.git_dir is not None
    shallow = _shallow(git.git_dir)
    if not shallow <= _shallow(store.git_dir):
        raise OSError("it is a shallow clone, and the rest of its history is not here")
    if any((git.git_dir / "objects" / "pack").glob("*.promisor")):
        raise OSError("it is a partial clone, and the rest of its objects are not here")
    write_pack(git, store.git_dir / "objects", found.loose, found.common)
    if missing := _missing(store, found.loose):
        raise OSError(f"{missing} of its objects are missing")


def snapshots_of(store: Git, agent_id: str, found: RepositoryTips) -> tuple[str, ...]:
    """Return the refs by which a repository holds what was found, those of an earlier attempt included."""
    refs = list_refs(store, f"refs/ralph/snapshots/{agent_id}/")
    return tuple(sorted(name for name, oid in refs.items() if oid in found.every))


def _recorded(repository: Path) -> set[str]:
    try:
        content = files.read(repository / CLONED)
    except FileNotFoundError:
        return set()
    # Whole ids only: git would take the beginning of one for any commit that begins so.
    return {line for line in decode_lines(content) if is_oid(line)}


def _shallow(git_dir: Path) -> set[bytes]:
    try:
        return {*(git_dir / "shallow").read_bytes().split()}
    except FileNotFoundError:
        return set()


def _held(store: Git, oids: Collection[str]) -> set[str]:
    """Return those of some commits that refs of a repository hold."""
    there = existing_commits(store, oids) if oids else []
    if not there:
        return set()
    try:
        answer = run_git(store, "rev-list", "--stdin", "--not", "--all", stdin=_stdin(there))
    except GitError:  # of what no ref holds, some may have been collected by now
        return set()
    return {*there} - {*decode_lines(answer.stdout)}


def _outermost(git: Git, oids: Collection[str], without: Collection[str]) -> list[str]:
    if not oids:
        return []
    asked = _stdin([*oids, *(f"^{oid}" for oid in without)])
    rows = [
        line.split()
        for line in decode_lines(run_git(git, "rev-list", "--parents", "--stdin", stdin=asked).stdout)
    ]
    inner = {parent for _, *parents in rows for parent in parents}
    return [commit for commit, *_ in rows if commit not in inner]


def _missing(store: Git, wanted: Sequence[str]) -> int:
    listed = run_git(store, "rev-list", "--objects", "--stdin", "--not", "--all", stdin=_stdin(wanted))
    oids = b"".join(line.split(b" ")[0] + b"\n" for line in listed.stdout.splitlines())
    answer = run_git(store, "cat-file", "--batch-check", stdin=oids + _stdin(wanted))
    return answer.stdout.count(b" missing\n")


def _stdin(oids: Collection[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()
