"""Save commits that only a worktree's registration names: in its reflog, its own refs, or an operation.

Git deletes these files with the registration. A commit that they name, and no branch, tag, remote branch or
snapshot contains, gets a ref ``refs/ralph/snapshots/<id>/commit-<n>``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.git import create_ref, decode_lines, existing_commits, list_refs, run_git
from ralph_wrap.git.oid import oids_in
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralph_wrap.git import Git

_NAMELESS = ("index", "sharedindex", "ralph-wrap-warm")  # no agent made the commit that the last one names
_LARGEST = 64 << 20  # bytes read of one file; a reflog of 300,000 entries
_NO_NAMES = {"objects", "modules", "hooks", "lfs"}  # in a repository, these name no commits of its own


def save_commits(registration: Path, git: Git, agent_id: str, problems: list[str]) -> tuple[str, ...]:
    """Give a ref to each commit that no other ref contains, and return these refs.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        git: git in the worktree.
        agent_id: names the refs.
        problems: gets a line for each file that cannot be read.

    Raises:
        GitError: a ref cannot be made.

    """
    return make_snapshots(git, agent_id, unheld(registration, git, problems))


def unheld(registration: Path, git: Git, problems: list[str]) -> list[str]:
    """Return the commits that the registration names and no ref contains, without their ancestors.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        git: git in the worktree.
        problems: gets a line for each file that cannot be read.

    Raises:
        GitError: git failed.

    """
    return unreachable(git, existing_commits(git, _named_objects(registration, git, problems)))


def make_snapshots(git: Git, agent_id: str, tips: Sequence[str]) -> tuple[str, ...]:
    """Give a ref ``refs/ralph/snapshots/<id>/commit-<n>`` to each commit, and return these refs.

    Raises:
        GitError: a ref cannot be made.

    """
    prefix = f"refs/ralph/snapshots/{agent_id}/commit-"
    numbers = [ref.removeprefix(prefix) for ref in list_refs(git, f"{prefix}*")]
    first = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    made = []
    for number, tip in enumerate(tips, first):
        create_ref(git, f"{prefix}{number}", tip, "ralph-wrap: on no branch")
        made.append(f"{prefix}{number}")
    return tuple(made)


def unreachable(git: Git, commits: list[str]) -> list[str]:
    """Return the commits that no branch, tag, remote branch or snapshot contains, without their ancestors."""
    if not commits:
        return []
    excluded = ("--not", "--branches", "--tags", "--remotes", "--glob=refs/ralph/*")
    answer = run_git(git, "rev-list", "--parents", "--stdin", *excluded, stdin="\n".join(commits).encode())
    rows = [line.split() for line in decode_lines(answer.stdout)]
    inner = {parent for _, *parents in rows for parent in parents}
    return [commit for commit, *_ in rows if commit not in inner]


def _files(registration: Path) -> Iterator[Path]:
    for directory, names, file_names in os.walk(registration):
        if Path(directory) == registration:
            names[:] = [name for name in names if name not in _NO_NAMES]
        yield from (Path(directory, name) for name in file_names)


def _named_objects(registration: Path, git: Git, problems: list[str]) -> set[str]:
    """Return the object ids in the registration's files (gitrepository-layout(5)), except its index."""
    found: set[str] = set()
    for path in _files(registration):
        if path.name.startswith(_NAMELESS) or path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _LARGEST:
            problems.append(f"{path} is too large to look for commits in it")
            continue
        content = files.read(path, _LARGEST)
        found |= oids_in(content)
    if (registration / "reftable").exists():
        found |= set(decode_lines(run_git(git, "reflog", "--format=%H", "HEAD", accept=(0, 128)).stdout))
    return {oid for oid in found if oid.strip("0")}
