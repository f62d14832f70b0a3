"""Save what a worktree holds and no branch does.

What is looked at, since each of it goes with the worktree and none of it is on a branch:

- files on disk that differ from HEAD or are untracked, whatever the configuration, assume-unchanged or
  skip-worktree say: they become one commit on top of HEAD, on ``ralph/<id>-wip``;
- an index that differs from the files: that commit's second parent, as ``git stash`` does, so that
  ``git stash apply --index ralph/<id>-wip`` brings both back;
- commits of a detached HEAD: ``ralph/<id>-wip`` itself, or what it stands on;
- commits that only the worktree's own bookkeeping knows (see ``commits``);
- what git cannot save or does not even see (repositories nested in the worktree, also in ignored
  directories, files below a submodule's path): a problem.

Everything is done through a copy of the index, and with the repository named explicitly: the agent may
have replaced the worktree's ``.git`` by then. A problem never stops the rest from being saved; whoever
gets a result with problems must not remove the worktree.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import git
from ralph_wrap.errors import GitError
from ralph_wrap.worktree.commits import save_commits, unreachable
from ralph_wrap.worktree.walk import walk

if TYPE_CHECKING:
    from ralph_wrap.git import Git, Status
    from ralph_wrap.worktree.create import LinkedWorktree
    from ralph_wrap.worktree.walk import Walk

_ATTEMPTS = 3  # at a picture of files that somebody goes on writing
_NAMED = 3  # files that a problem names; the others are counted


@dataclass(frozen=True, slots=True)
class Saved:
    """What a worktree held besides its branch.

    Attributes:
        branch: ``ralph/<id>-wip`` if something was uncommitted or on no branch.
        paths: what was uncommitted, as ``git status`` names it.
        snapshots: refs that were made for commits that no branch held.
        ignored: ignored files and directories (with a slash), which are not saved.
        ignored_files: how many files those are.
        problems: what could not be saved, one line each; empty if the worktree may go.

    """

    branch: str | None
    paths: tuple[str, ...]
    snapshots: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Head:
    commit: str | None
    detached: bool


def save(
    worktree: LinkedWorktree,
    where: Git,
    index: Path,
    *,
    agent_id: str,
    session: str,
    commits_only: bool = False,
) -> Saved:
    """Save what would be lost with the worktree, and verify it.

    Arguments:
        worktree: whose work.
        where: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.
        agent_id: names the branch and the snapshots.
        session: named in the commit's message.
        commits_only: do not save files; having to is then a problem.

    Raises:
        GitError: it cannot even be told what there is to save.
        OSError: the same.

    """
    here = worktree.git(where)
    scratch = dataclasses.replace(here, index=index)
    problems: list[str] = []
    status, walked = _look(worktree, here, scratch, problems)
    head = _head(here)
    nested = sorted({*walked.repositories, *status.nested, *walked.bare_beside(status.ignored)})
    problems += [f"nested repository {path} cannot be saved" for path in nested]
    branch = None
    if not status.clean and commits_only:
        problems.append(f"{len(status.changed) + len(status.untracked)} uncommitted paths")
    elif not status.clean:
        branch = _save_files(worktree, scratch, head, status, problems, agent_id, session)
    if branch is None and head.detached and head.commit and unreachable(here, [head.commit]):
        branch = f"ralph/{agent_id}-wip"
        git.create_ref(here, f"refs/heads/{branch}", head.commit, f"ralph-wrap: end of {session}")
    return Saved(
        branch=branch,
        paths=(*status.changed, *status.untracked),
        snapshots=save_commits(worktree.registration, here, agent_id, problems),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
        problems=tuple(problems),
    )


def holds(worktree: LinkedWorktree, where: Git, index: Path, place: Path) -> bool:
    """Tell whether everything in a worktree is still as it was saved.

    Arguments:
        worktree: saved without a problem.
        where: git at the repository.
        index: as it was given to :func:`save`.
        place: where the worktree's directory is now.

    Raises:
        GitError: that cannot be told.

    """
    here = dataclasses.replace(worktree.git(where), cwd=place, work_tree=place)
    if index.exists():
        return not _not_in_index(dataclasses.replace(here, index=index))
    return _status(here).clean


def _look(worktree: LinkedWorktree, here: Git, scratch: Git, problems: list[str]) -> tuple[Status, Walk]:
    with git.start_status(here) as asking, git.start(here, "ls-files", "-v", "-s", "-z") as entries:
        walked = walk(worktree.path)
        problems += walked.problems
        problems += _unsaved_bookkeeping(worktree)
        try:
            answer = git.finish(asking, "status").stdout
            listing = git.finish(entries, "ls-files").stdout
        except GitError as error:
            problems.append(f"the index cannot be read, what was staged in it is not saved: {error.message}")
            head = git.resolve_commit(here, "HEAD")
            git.run(scratch, "read-tree", *((head,) if head else ("--empty",)))
            return _status(scratch), walked
    for path in re.findall(rb"(?:\A|\0). 160000 [0-9a-f]+ \d\t([^\0]+)", listing):
        directory = worktree.path / git.text(path)
        if directory.is_dir() and not (directory / ".git").exists() and any(directory.iterdir()):
            problems.append(f"git does not look at the files below the submodule's path {git.text(path)}")
    if _lift_flags(worktree, scratch, listing):
        return _status(scratch), walked
    return git.parse_status(answer), walked


def _unsaved_bookkeeping(worktree: LinkedWorktree) -> list[str]:
    found = []
    if (worktree.registration / "modules").exists():
        found.append("a submodule was initialised in it: its repository cannot be saved")
    if (worktree.registration / "rebase-apply" / "applying").exists():
        found.append("git am is in progress: its patches cannot be saved")
    try:
        alternates = (worktree.common_dir / "objects" / "info" / "alternates").read_bytes()
    except FileNotFoundError:
        return found
    borrowed = (worktree.common_dir / "objects" / git.text(line) for line in alternates.splitlines())
    if any(place.resolve().is_relative_to(worktree.path) for place in borrowed):
        found.append("the repository borrows objects from it")
    return found


def _head(here: Git) -> _Head:
    symbolic = git.run(here, "symbolic-ref", "--quiet", "HEAD", accept=(0, 1))
    return _Head(git.resolve_commit(here, "HEAD"), detached=symbolic.status == 1)


def _status(here: Git) -> Status:
    with git.start_status(here) as asking:
        return git.parse_status(git.finish(asking, "status").stdout)


def _copy_index(worktree: LinkedWorktree, scratch: Git) -> None:
    # copy2 keeps the time of last modification, by which git tells entries whose files may have changed in
    # the very moment the index was written. A newer copy would make it miss such changes.
    if scratch.index is not None and not scratch.index.exists():
        shutil.copy2(worktree.registration / "index", scratch.index)


def _lift_flags(worktree: LinkedWorktree, scratch: Git, listing: bytes) -> bool:
    """Make git look at files that it was told to take for unchanged; tell whether there are any.

    ``git ls-files -v`` shows *assume unchanged* as a lower-case tag and *skip worktree* as S. In a sparse
    checkout an absent file of the latter kind is not deleted, but left out.
    """
    entries = re.findall(rb"(?:\A|\0)([a-zS]) \d+ [0-9a-f]+ \d\t([^\0]+)", listing)
    if not entries:
        return False
    _copy_index(worktree, scratch)
    sparse = (
        git.run(scratch, "config", "--bool", "--get", "core.sparseCheckout", accept=(0, 1)).stdout
        == b"true\n"
    )
    lifted = {
        "--no-assume-unchanged": [path for tag, path in entries if tag.islower()],
        "--no-skip-worktree": [
            path
            for tag, path in entries
            if tag in b"sS" and (not sparse or os.path.lexists(worktree.path / git.text(path)))
        ],
    }
    for option, paths in lifted.items():
        git.run(
            scratch, "update-index", option, "-z", "--stdin", stdin=b"".join(path + b"\0" for path in paths)
        )
    return True


def _save_files(
    worktree: LinkedWorktree,
    scratch: Git,
    head: _Head,
    status: Status,
    problems: list[str],
    agent_id: str,
    session: str,
) -> str | None:
    _copy_index(worktree, scratch)
    if status.unmerged:
        _resolve(scratch)
    index_tree = git.write_tree(scratch)
    for _ in range(_ATTEMPTS):
        failure = git.add_all(scratch, exclude=status.nested)
        left = _not_in_index(scratch)
        if failure is not None:
            _add_what_can_be(scratch, left)
            left = _not_in_index(scratch)
        tree = git.write_tree(scratch)
        if not left:
            break
    else:
        reason = failure.message if failure else "still being written"
        problems.append(f"{len(left)} files cannot be saved ({', '.join(left[:_NAMED])}): {reason}")
    head_tree = git.tree_of(scratch, head.commit) if head.commit else None
    if tree == head_tree == index_tree:
        return None
    parents = [head.commit] if head.commit else []
    if index_tree != tree:
        parents.append(git.commit_tree(scratch, index_tree, parents, f"ralph: index of session {session}\n"))
    message = f"ralph: saved work of session {session}\n\nWhat was not committed when the session ended.\n"
    if operation := _operation(worktree):
        message += f"A {operation} was in progress.\n"
    branch = f"ralph/{agent_id}-wip"
    commit = git.commit_tree(scratch, tree, parents, message)
    git.create_ref(scratch, f"refs/heads/{branch}", commit, f"ralph-wrap: end of {session}")
    if missing := git.missing_objects(scratch, f"refs/heads/{branch}", head.commit):
        problems.append(f"{branch} lacks {missing} objects")
    return branch


def _not_in_index(scratch: Git) -> list[str]:
    """Return the files whose content on disk is not in the index; nested repositories cannot be there."""
    status = _status(scratch)
    return [*status.unstaged, *(path for path in status.untracked if not path.endswith("/"))]


def _add_what_can_be(scratch: Git, paths: list[str]) -> None:
    """Add as many of these files as possible: one that cannot be stored makes git give up on all of them."""
    if not paths or git.add(scratch, paths) is None or len(paths) == 1:
        return
    middle = len(paths) // 2
    _add_what_can_be(scratch, paths[:middle])
    _add_what_can_be(scratch, paths[middle:])


def _resolve(scratch: Git) -> None:
    """Replace conflicts in the index by one side, our own first: a tree cannot hold them.

    Nothing is lost: all sides are in commits, and the file with its conflict markers is on disk.
    """
    sides: dict[bytes, dict[bytes, bytes]] = {}
    for entry in git.run(scratch, "ls-files", "--unmerged", "-z").stdout.split(b"\0")[:-1]:
        info, _, path = entry.partition(b"\t")
        mode, oid, stage = info.split(b" ")
        sides.setdefault(path, {})[stage] = b"%s %s" % (mode, oid)
    answer = b""
    for path, staged in sides.items():
        ours = staged.get(b"2") or staged.get(b"3") or staged[b"1"]
        nothing = b"0" * len(ours.partition(b" ")[2])
        answer += b"0 %s\t%s\0%s\t%s\0" % (nothing, path, ours, path)
    git.run(scratch, "update-index", "-z", "--index-info", stdin=answer)


_OPERATIONS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}


def _operation(worktree: LinkedWorktree) -> str | None:
    return next((name for file, name in _OPERATIONS.items() if (worktree.registration / file).exists()), None)
