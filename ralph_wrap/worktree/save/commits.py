"""Save commits that only a worktree's registration names: in its reflog, its own refs, or an operation.

Git deletes these files with the registration. A commit that they name, and no branch, tag, remote branch or
snapshot contains, gets a ref ``refs/ralph/snapshots/<id>/commit-<n>``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, create_ref, decode_lines, delete_ref, existing_commits, list_refs, run_git
from ralph_wrap.git.object_reader import is_gone, read_objects
from ralph_wrap.git.oid import oids_in
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.system import files

_NAMELESS = ("index", "sharedindex", "ralph-wrap-warm")  # no agent made the commit that the last one names
_LARGEST = 64 << 20  # bytes read of one file; a reflog of 300,000 entries
_KEPT_REFS = ("refs/heads/", "refs/tags/", "refs/remotes/", "refs/ralph/")  # they stay with the repository
_NO_NAMES = {"objects", "modules", "hooks", "lfs"}  # in a repository, these name no commits of its own


def named_commits(git: Git, named: Collection[str], problems: list[str]) -> list[str]:
    """Return the commits and tags among some object ids.

    Arguments:
        git: git in the repository.
        named: object ids; many name no object, or one of another kind.
        problems: gets a line for each object that is there and cannot be read: it may be a commit.

    Raises:
        GitError: git failed.

    """
    wanted = sorted(named)
    found = read_objects(git, wanted)
    problems += [
        f"object {oid}, which only the worktree's registration may name, {found[oid].problem}"
        for oid in wanted
        if found[oid].problem and not found[oid].is_missing
    ]
    return [oid for oid in wanted if found[oid].kind in {"commit", "tag"}]


def make_snapshots(git: Git, agent_id: str, tips: Sequence[str], kind: str = "commit") -> tuple[str, ...]:
    """Give a ref ``refs/ralph/snapshots/<id>/<kind>-<n>`` to each commit, and return these refs.

    Arguments:
        kind: ``submodule`` for a commit of a submodule, which no session pushes to the project's remote.

    Raises:
        GitError: a ref cannot be made.

    """
    if not tips:
        return ()
    prefix = f"refs/ralph/snapshots/{agent_id}/{kind}-"
    numbers = [ref.removeprefix(prefix) for ref in list_refs(git, f"{prefix}*")]
    first = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    made = []
    for number, tip in enumerate(tips, first):
        create_ref(git, f"{prefix}{number}", tip, "ralph-wrap: on no branch")
        made.append(f"{prefix}{number}")
    return tuple(made)


def drop_lost_snapshots(
    git: Git,
    agent_id: str,
    witnesses: Sequence[str],
    dropped: Callable[[str, str], object],
    *,
    complete: bool = False,
) -> tuple[str, ...]:
    """Delete the refs of snapshots whose commit is gone, and return one line for each that is damaged.

    A ``git gc --prune=now`` that began before a snapshot may have deleted its commit, and git does not work
    with a ref whose commit is missing. Any other damage may be mended, or pass: such a ref stays.

    Arguments:
        git: git in the repository, or in the worktree.
        agent_id: names the refs.
        witnesses: the base of the session and the commit at HEAD; while one cannot be read, no ref goes.
        dropped: called with each ref as soon as it is deleted, and with its object id.
        complete: look for damage in every object but those of the witnesses, not only in the commits.

    Raises:
        GitError: git failed.
        OSError: there is no room for a temporary directory.

    """
    prefix = f"refs/ralph/snapshots/{agent_id}/"
    refs = list_refs(git, prefix)
    found = read_objects(git, [*dict.fromkeys(refs.values())])
    damaged: list[str] = []
    for ref, oid in sorted(refs.items()):
        if not found[oid].problem:
            damage = find_damage(git, [oid], witnesses) if complete else None
        elif found[oid].is_missing and is_gone(git, oid, witnesses):
            delete_ref(git, ref, oid)
            dropped(ref, oid)
            continue
        else:
            damage = f"commit {oid} {found[oid].problem}"
        damaged += [f"{ref}: {damage}"] if damage else []
    return tuple(damaged)


def unreachable(git: Git, commits: list[str], without: Collection[str] = ()) -> list[str]:
    """Return the commits that no branch, tag, remote branch or snapshot contains, without their ancestors.

    A symbolic ref contains nothing. It can lead to a ref of the worktree, which goes with the worktree; git
    looks at every other ref that it can lead to.

    Arguments:
        git: git in the worktree.
        commits: object ids.
        without: full names of refs that do not count; ``*`` stands for any text.

    Raises:
        GitError: a commit is missing, or git failed.

    """
    if not commits:
        return []
    listed = run_git(git, "for-each-ref", "--format=%(if)%(symref)%(then)%(refname)%(end)", *_KEPT_REFS)
    left_out = [f"--exclude={ref}" for ref in (*decode_lines(listed.stdout), *without) if ref]
    kept = [option for ref in _KEPT_REFS for option in (*left_out, f"--glob={ref}")]  # each glob forgets them
    options, names = ("--parents", "--stdin", "--not", *kept), "\n".join(commits).encode()
    try:
        answer = run_git(git, "rev-list", *options, stdin=names)
    except GitError:
        if not {*commits} <= {*existing_commits(git, commits)}:
            raise
        # A ref whose commit is missing contains nothing.
        answer = run_git(git, "rev-list", "--ignore-missing", *options, stdin=names)
    return _tips(answer.stdout)


def _tips(listed: bytes) -> list[str]:
    """Return the commits in a list with parents that no other one has as its parent."""
    rows = [line.split() for line in decode_lines(listed)]
    inner = {parent for _, *parents in rows for parent in parents}
    return [commit for commit, *_ in rows if commit not in inner]


def lone_parents(git: Git, snapshots: Collection[str], holding: Collection[str]) -> list[str]:
    """Return the first parents of snapshots that none of some commits contains, without their ancestors.

    The first parent of a snapshot was at HEAD, and after a reset it may be in no branch. A second parent is
    the index.

    Arguments:
        git: git in the repository.
        snapshots: object ids.
        holding: object ids of what stays.

    Raises:
        GitError: a commit is missing, or git failed.

    """
    if not snapshots:
        return []
    names = "\n".join(dict.fromkeys(snapshots)).encode()
    rows = decode_lines(run_git(git, "rev-list", "--no-walk", "--parents", "--stdin", stdin=names).stdout)
    if not (heads := {parents[0] for _, *parents in map(str.split, rows) if parents}):
        return []
    names = "\n".join([*sorted(heads), *(f"^{oid}" for oid in holding)]).encode()
    return _tips(run_git(git, "rev-list", "--parents", "--stdin", stdin=names).stdout)


def _files(registration: Path, without: Collection[str]) -> Iterator[Path]:
    for directory, names, file_names in files.walk(registration):
        if Path(directory) == registration:
            names[:] = [name for name in names if name not in _NO_NAMES and name not in without]
            file_names[:] = [name for name in file_names if name not in without]
        yield from (Path(directory, name) for name in file_names)


def named_objects(
    registration: Path, git: Git, problems: list[str], *, without: Collection[str] = ()
) -> frozenset[str]:
    """Return the object ids in the files of a registration (gitrepository-layout(5)), except its index.

    Arguments:
        registration: ``.git/worktrees/<name>``, or the repository of a submodule.
        git: git in the worktree.
        problems: gets a line for each file that is too large to be read, and for a reflog that is damaged.
        without: names in the registration to leave out, too.

    Raises:
        OSError: a file cannot be read.

    """
    found: set[str] = set()
    for path in _files(registration, without):
        if path.name.startswith(_NAMELESS) or path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _LARGEST:
            problems.append(f"{path} is too large to look for commits in it")
            continue
        content = files.read(path, _LARGEST)
        found |= oids_in(content)
    if (registration / "reftable").exists():
        answer = run_git(git, "reflog", "--format=%H", "HEAD", accept=(0, 128))
        found |= set(decode_lines(answer.stdout))
        # At a commit that it cannot read git ends the list, some versions with 128, others with 0.
        if answer.stderr and run_git(git, "reflog", "exists", "HEAD", accept=(0, 1)).status == 0:
            reason = next(iter(decode_lines(answer.stderr)))
            problems.append(f"the reflog of HEAD cannot be read to its end: {reason}")
    return frozenset(oid for oid in found if oid.strip("0"))
