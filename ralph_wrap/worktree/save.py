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

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import GitError
from ralph_wrap.worktree.commits import make_snapshots, save_commits, unheld, unreachable
from ralph_wrap.worktree.layout import is_sparse
from ralph_wrap.worktree.walk import walk

if TYPE_CHECKING:
    from ralph_wrap.git import Git, Status
    from ralph_wrap.worktree.create import LinkedWorktree
    from ralph_wrap.worktree.walk import Walk

_ATTEMPTS = 3  # at a picture of files that somebody goes on writing
_NAMED = 3  # files that a problem names; the others are counted


class Saved(NamedTuple):
    """What a worktree held besides its branch.

    Attributes:
        branch: ``ralph/<id>-wip`` if something was uncommitted or on no branch.
        paths: what was uncommitted, as ``git status`` names it.
        snapshots: refs that were made for commits that no branch held.
        ignored: ignored files and directories (with a slash), which are not saved.
        ignored_files: how many files those are.
        problems: what could not be saved, one line each; empty if the worktree may go.
        missing: files that were never checked out.

    """

    branch: str | None
    paths: tuple[str, ...]
    snapshots: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    problems: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was uncommitted."""
        return not self.paths


class _Head(NamedTuple):
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
    unstarted: bool = False,
) -> Saved:
    """Save what would be lost with the worktree, and verify it.

    Arguments:
        worktree: whose work.
        where: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.
        agent_id: names the branch and the snapshots.
        session: named in the commit's message.
        commits_only: do not save files; having to is then a problem.
        unstarted: no agent has worked in it: files that are missing were never checked out.

    Raises:
        GitError: it cannot even be told what there is to save.
        OSError: the same.

    """
    here = worktree.git(where)
    scratch = here._replace(index_file=index)
    problems: list[str] = []
    head = _head(here)
    if unstarted:
        git.run(scratch, "read-tree", head.commit or "HEAD")
        found = _status(scratch)
        missing = tuple(path for path in found.unstaged if not os.path.lexists(worktree.path / path))
        if {*found.changed, *found.untracked} == {*missing}:
            return Saved(
                None, (), save_commits(worktree.registration, here, agent_id, problems), (), 0, (), missing
            )
    status, walked = look(worktree, here, scratch, problems)
    problems += [f"nested repository {path} cannot be saved" for path in nested(status, walked)]
    branch = None
    if not status.clean and commits_only:
        problems.append(_counted(len(status.changed) + len(status.untracked), "uncommitted path"))
    elif not status.clean:
        branch = _save_files(worktree, scratch, head, status, problems, agent_id, session)
    if branch is None and head.detached and head.commit and unreachable(here, [head.commit]):
        branch = _name(here, agent_id, head.commit, session)
    return Saved(
        branch=branch,
        paths=(*status.changed, *status.untracked),
        snapshots=save_commits(worktree.registration, here, agent_id, problems),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
        problems=tuple(problems),
    )


def holds(worktree: LinkedWorktree, where: Git, index: Path, place: Path, saved: Saved) -> bool:
    """Tell whether everything in a worktree, and all its commits, are still as they were saved.

    Arguments:
        worktree: saved without a problem.
        where: git at the repository.
        index: as it was given to :func:`save`.
        place: where the worktree's directory is now.
        saved: what :func:`save` returned.

    Raises:
        GitError: that cannot be told.

    """
    here = worktree.git(where, place)
    if unheld(worktree.registration, here, []):
        return False  # a commit was made since, of which only the registration knows
    if index.exists():
        return {*_not_in_index(here._replace(index_file=index))} <= {*saved.missing}
    return _status(here).clean


def look(worktree: LinkedWorktree, here: Git, scratch: Git, problems: list[str]) -> tuple[Status, Walk]:
    """Return what a worktree holds besides its HEAD, whatever flags hide it.

    Arguments:
        worktree: which one.
        here: git in it.
        scratch: the same with the copy of the index, which is made if it is needed.
        problems: gets a line for all that git does not see or cannot save.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
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


def nested(status: Status, walked: Walk) -> list[str]:
    """Return the repositories in a worktree that are not its own."""
    return sorted({*walked.repositories, *status.nested, *walked.bare_beside(status.ignored)})


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
    if scratch.index_file is not None and not scratch.index_file.exists():
        shutil.copy2(worktree.registration / "index", scratch.index_file)


def _lift_flags(worktree: LinkedWorktree, scratch: Git, listing: bytes) -> bool:
    """Make git look at files that it was told to take for unchanged; tell whether there are any.

    ``git ls-files -v`` shows *assume unchanged* as a lower-case tag and *skip worktree* as S. In a sparse
    checkout an absent file of the latter kind is not deleted, but left out.
    """
    entries = re.findall(rb"(?:\A|\0)([a-zS]) \d+ [0-9a-f]+ \d\t([^\0]+)", listing)
    if not entries:
        return False
    _copy_index(worktree, scratch)
    asked = ("config", "--bool", "--get", "core.sparseCheckout")
    sparse = is_sparse(worktree.registration) or git.run(scratch, *asked, accept=(0, 1)).stdout == b"true\n"
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
        _unlock(scratch)
        left = _not_in_index(scratch)
        if failure is not None:
            _add_what_can_be(scratch, left)
            left = _not_in_index(scratch)
        tree = git.write_tree(scratch)
        if not left:
            break
    else:
        reason = failure.message if failure else "still being written"
        names = ", ".join(left[:_NAMED])
        problems.append(f"{_counted(len(left), 'file')} cannot be saved ({names}): {reason}")
    head_tree = git.tree_of(scratch, head.commit) if head.commit else None
    if tree == head_tree == index_tree:
        return None
    parents = [head.commit] if head.commit else []
    trees = [tree, *([head_tree] if head_tree else []), *([index_tree] if index_tree != tree else [])]
    branch = f"ralph/{agent_id}-wip"
    if not _is_saved_already(scratch, branch, trees, head.commit):
        if index_tree != tree:
            parents.append(
                git.commit_tree(scratch, index_tree, parents, f"ralph: index of session {session}\n")
            )
        message = (
            f"ralph: saved work of session {session}\n\nWhat was not committed when the session ended.\n"
        )
        if unfinished := operation(worktree):
            message += f"A {unfinished} was in progress.\n"
        branch = _name(scratch, agent_id, git.commit_tree(scratch, tree, parents, message), session)
    if missing := git.missing_objects(scratch, branch, head.commit):
        problems.append(f"{branch} lacks {missing} objects")
    return branch


def _is_saved_already(here: Git, branch: str, trees: list[str], head: str | None) -> bool:
    """Tell whether somebody who died after it has saved the same: files, HEAD and index."""
    commits = git.parents(here, f"refs/heads/{branch}")
    if not commits or (head is not None and head not in commits):
        return False
    return [git.tree_of(here, commit) for commit in commits] == trees


def _name(here: Git, agent_id: str, commit: str, session: str) -> str:
    """Make ``ralph/<id>-wip`` name a commit, and return what names it now.

    What the branch named before gets a snapshot; if somebody works on it, the commit gets one instead.
    """
    branch = f"ralph/{agent_id}-wip"
    ref = f"refs/heads/{branch}"
    reason = f"ralph-wrap: end of {session}"
    before = git.refs(here, ref).get(ref)
    if before is None:
        git.create_ref(here, ref, commit, reason)
    elif before != commit:
        if git.worktree_holding(here, ref):
            return make_snapshots(here, agent_id, [commit])[0]
        make_snapshots(here, agent_id, [before])
        git.move_ref(here, ref, before, commit, reason)
    return branch


def _not_in_index(scratch: Git) -> list[str]:
    """Return the files whose content on disk is not in the index; nested repositories cannot be there."""
    status = _status(scratch)
    return [*status.unstaged, *(path for path in status.untracked if not path.endswith("/"))]


def _add_what_can_be(scratch: Git, paths: list[str]) -> None:
    """Add as many of these files as possible: one that cannot be stored makes git give up on all of them."""
    if not paths:
        return
    failure = git.add(scratch, paths)
    _unlock(scratch)
    if failure is None or len(paths) == 1:
        return
    middle = len(paths) // 2
    _add_what_can_be(scratch, paths[:middle])
    _add_what_can_be(scratch, paths[middle:])


def _unlock(scratch: Git) -> None:
    """Remove the lock that a git has left which was killed (out of memory); this index is ours alone."""
    if scratch.index_file is not None:
        scratch.index_file.with_name(f"{scratch.index_file.name}.lock").unlink(missing_ok=True)


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


def operation(worktree: LinkedWorktree) -> str | None:
    """Return what git is in the middle of in a worktree."""
    return next((name for file, name in _OPERATIONS.items() if (worktree.registration / file).exists()), None)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
