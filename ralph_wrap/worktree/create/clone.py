"""Make a private clone for one session, or nothing at all.

A clone has its own refs, configuration and index, and borrows the objects of the project's repository. The
agent can write to its clone, and writes nothing to the real repository, which may be mounted read-only.

The steps, each undone if a later one fails:

1. Make the replica (see ``replica``), with the session's mark in its registration.
2. Make the clone under another name, with the same mark, then rename it. So a directory at the path of a
   clone is never one without a mark.
3. Check the files out, and refresh the replica.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.branches.intake import BASES
from ralph_wrap.errors import GitError, IsolationError
from ralph_wrap.git import Git, Repository, decode, file_system_config, list_refs, pointer, run_git
from ralph_wrap.git.new_repository import make_repository
from ralph_wrap.system import files
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, NewWorktree
from ralph_wrap.worktree.create.replica import copy_replica, refresh, trust_cloned
from ralph_wrap.worktree.create.transaction import check_out_new
from ralph_wrap.worktree.layout import CONFIG, EVERYTHING, copy_layout, link, prepare
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import CLONE, WorktreeOwner, write_mark

NEW_SUFFIX = ".new"
"""The suffix of a clone that has no mark yet; no agent has worked in it."""

_COPIED = (
    r"^remote\..*\.(url|fetch|pushurl)$|^(branch|user|filter|lfs)\.|^submodule\.(.*\.)?(active|url|branch)$|^extensions\.(objectformat|partialclone)$"
    r"|^core\.(autocrlf|eol|ignorecase|precomposeunicode)$"
)


def create_clone(
    git: Git,
    repository: Repository,
    new: NewWorktree,
    watch: CheckoutWatch,
    *,
    replica: Path,
    agent_id: str,
) -> LinkedWorktree:
    """Make a clone with every file checked out, and its replica.

    Arguments:
        git: git at the project root.
        repository: the project's repository.
        new: the clone to make. If the project has the branch, the clone starts from that one.
        watch: tells of the checkout, and ends it.
        replica: the directory of the replica; it must not exist.
        agent_id: names the refs of the session.

    Raises:
        IsolationError: it cannot be made; nothing is left of the attempt.
        StoppedError: a signal came; nothing is left of the attempt.

    """
    try:
        with contextlib.ExitStack() as undo:
            config = _config(git, repository)
            earlier = list_refs(git, f"refs/heads/ralph/{agent_id}*", f"refs/ralph/snapshots/{agent_id}/")
            ref = f"refs/heads/{new.branch}"
            tip = list_refs(git, ref).get(ref)
            start = tip or new.base
            tree = LinkedWorktree(
                path=new.path,
                registration=replica / "worktrees" / new.path.name,
                common_dir=replica,
                branch=new.branch,
                base=start,
                branch_created=tip is None,
                config=file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
                owner=new.owner,
                clone=True,
            )
            refs = {**earlier, ref: start}
            needed = [("include.path", CONFIG)] if new.layout != EVERYTHING else []
            clone = _NewClone(tree, repository, [*config, *needed], undo)
            clone.make_replica({**refs, f"{BASES}{agent_id}": start})
            clone.make_clone(refs)
            own = new.path / ".git"
            for registration in (own, tree.registration):
                prepare(git, registration, new.layout)
            clone_git = tree._replace(registration=own, common_dir=own).git(git)
            check_out_new(clone_git, watch)
            link(new.path, repository.root, new.layout.links)
            refresh(tree, git._replace(cwd=replica, git_dir=replica))
            files.fsync(own, new.path, new.path.parent, tree.registration, replica)
            undo.pop_all()
    except (GitError, OSError) as error:
        reason = error.message if isinstance(error, GitError) else f"{error.strerror}: {error.filename}"
        hint = error.hint if isinstance(error, GitError) else ""
        clones = new.path.parent
        raise IsolationError(
            f"no clone could be made: {reason}",
            hint or f"user id {os.geteuid()} must be able to write to {clones}, on a disk that is not full",
        ) from error
    return tree


def rebuild_replica(git: Git, repository: Repository, tree: LinkedWorktree, old: Path, agent_id: str) -> None:
    """Make a new replica for the clone of a dead session, from the objects and refs of its own replica.

    In a container, an agent can write to the replica of its session. So only plain files of it are read, as
    those of the clone are. The new replica has our configuration, and is where the agent cannot write.

    Arguments:
        git: git at the project root.
        repository: the project's repository.
        tree: the clone with the new replica. If the clone is nowhere, the replica gets no registration.
        old: the session's own replica.
        agent_id: names the refs of the session.

    Raises:
        IsolationError: a repository that cannot be cloned any more.
        GitError: git refuses a ref.
        OSError: a file of the old replica is not a plain file, or cannot be copied.

    """
    new, final = tree.common_dir.with_name(tree.common_dir.name + NEW_SUFFIX), tree.common_dir
    if os.path.lexists(new):
        shutil.rmtree(new)
    tree = tree._replace(common_dir=new, registration=new / "worktrees" / tree.registration.name)
    with contextlib.ExitStack() as undo:
        clone = _NewClone(tree, repository, _config(git, repository), undo)
        clone.make_replica({f"{BASES}{agent_id}": tree.base})
        new_git = git._replace(cwd=new, git_dir=new)
        copy_replica(old, new, new_git, agent_id)
        copy_layout(old / "worktrees" / tree.registration.name, tree.registration)
        if tree.path.is_dir():
            refresh(tree, new_git)
            trust_cloned(tree, old / "worktrees" / tree.registration.name)
        else:
            shutil.rmtree(tree.registration.parent)
            tree.registration.parent.mkdir()
        files.sync_file_system(new)
        new.rename(final)
        files.fsync(final.parent)
        undo.pop_all()


class _NewClone(NamedTuple):
    """A clone, and its replica, that are made.

    Attributes:
        tree: the clone with its replica.
        repository: the project's repository, whose objects both borrow.
        config: of the clone; the replica takes a part of it.
        undo: takes away what was made, if a later step fails.

    """

    tree: LinkedWorktree
    repository: Repository
    config: list[tuple[str, str]]
    undo: contextlib.ExitStack

    def make_replica(self, refs: Mapping[str, str]) -> None:
        """Make the replica with its registration of the clone."""
        replica, registration = self.tree.common_dir, self.tree.registration
        replica.parent.mkdir(parents=True, exist_ok=True)
        self._make_directory(replica)
        own = [
            (key, value)
            for key, value in self.config
            if key.startswith(("core.", "extensions.", "user.")) or re.fullmatch(r"remote\..*\.url", key)
        ]
        make_repository(
            replica, config=own, refs=refs, borrows=self._objects, shallow=_shallow(self.repository)
        )
        registration.mkdir(parents=True)
        contents = {
            "commondir": b"../..\n",
            pointer.BACK: pointer.gitdir_content(self.tree.path),
            "locked": os.fsencode(f"{self._owner.lock}\n"),
            "HEAD": os.fsencode(f"ref: refs/heads/{self.tree.branch}\n"),
            CLONE: b"",
        }
        for name, content in contents.items():
            files.replace(registration / name, content, sync=False)
        self._write_mark(registration)

    def make_clone(self, refs: Mapping[str, str]) -> None:
        """Make the clone without its files."""
        path = self.tree.path
        new = path.with_name(path.name + NEW_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._make_directory(new)
        make_repository(
            new / ".git",
            config=self.config,
            refs=refs,
            borrows=self._objects,
            head=f"refs/heads/{self.tree.branch}",
            shallow=_shallow(self.repository),
        )
        self._write_mark(new / ".git")
        if os.path.lexists(path):
            raise IsolationError(f"{path} is there already", "move it away")
        new.rename(path)
        self.undo.callback(shutil.rmtree, path, ignore_errors=True)

    @property
    def _owner(self) -> WorktreeOwner:
        assert self.tree.owner is not None
        return self.tree.owner

    @property
    def _objects(self) -> Path:
        return self.repository.common_dir / "objects"

    def _make_directory(self, path: Path) -> None:
        path.mkdir()
        self.undo.callback(shutil.rmtree, path, ignore_errors=True)

    def _write_mark(self, registration: Path) -> None:
        assert self._owner.mark is not None
        write_mark(registration, self._owner.mark)


def _config(git: Git, repository: Repository) -> list[tuple[str, str]]:
    """Return the configuration of the clone: what an agent needs, and nothing that runs only for the user.

    Raises:
        IsolationError: the repository lacks objects, which a clone could not get.

    """
    answer = run_git(git, "config", "--local", "-z", "--get-regexp", _COPIED, accept=(0, 1)).stdout
    found = [decode(entry).partition("\n") for entry in answer.split(b"\0") if entry]
    copied = [(key, value if newline else "true") for key, newline, value in found]
    if any(key == "extensions.partialclone" for key, _ in copied):
        raise IsolationError(
            "the repository is a partial clone, whose objects are elsewhere",
            "git fetch --refetch --no-filter && git config --unset extensions.partialClone",
        )
    version = "1" if any(key.startswith("extensions.") for key, _ in copied) else "0"
    return [
        ("core.repositoryformatversion", version),
        ("core.filemode", str(repository.file_mode).lower()),
        ("core.symlinks", str(repository.symlinks).lower()),
        ("core.bare", "false"),
        ("core.logallrefupdates", "true"),
        *copied,
    ]


def _shallow(repository: Repository) -> bytes:
    try:
        return files.read(repository.common_dir / "shallow")
    except FileNotFoundError:
        return b""
