"""Worktrees made and finished in this process, and what is in a directory or a tree of git."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import git
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, NewWorktree
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.ownership import WorktreeOwner
from ralph_wrap.worktree.remove import finish
from ralph_wrap.worktree.save.result import SaveRequest
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import pytest

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.ownership import SessionMark
    from ralph_wrap.worktree.remove import WorktreeOutcome

ID = "00aa"
SESSION = f"20260102T030405Z-{ID}"
WIP = f"ralph/{ID}-wip"

Listing = dict[bytes, tuple[str, bytes]]
"""Path to mode, as git counts modes, and content; a symlink's content is its target."""


@dataclass(frozen=True)
class Tree:
    """A worktree of a scratch repository."""

    repo: Repo
    linked: LinkedWorktree

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.linked.path

    @property
    def inside(self) -> Repo:
        """The same repository, seen from the worktree."""
        return Repo(self.path)

    def finish(
        self,
        *,
        keep_dirty: bool = False,
        unstarted: bool = False,
        restored: str | None = None,
        cancel: CancelToken = NEVER,
    ) -> WorktreeOutcome:
        """End it as a session would."""
        return finish(
            self.linked,
            git.Git(self.repo.path, git.git_environment(os.environ)),
            SaveRequest(ID, SESSION, commits_only=keep_dirty, unstarted=unstarted, restored=restored),
            trash=self.repo.path / ".ralph" / "run" / "trash",
            keep=None,
            cancel=cancel,
        )


def located(repo: Repo) -> tuple[Git, Repository]:
    """Return git at a repository's top level, and the repository."""
    where = git.Git(repo.path, git.git_environment(os.environ))
    return where, git.locate_repository(where)


def make_tree(
    repo: Repo,
    *,
    continued: bool = False,
    registered: Callable[[LinkedWorktree], object] = lambda _: None,
    mark: SessionMark | None = None,
) -> Tree:
    """Make a worktree on a branch of its own, or on one that may be there."""
    where, repository = located(repo)
    (repo.path / ".ralph" / "run").mkdir(parents=True, exist_ok=True)
    assert repository.head is not None
    linked = create(
        where,
        repository,
        NewWorktree(
            repo.path / ".ralph" / "worktrees" / SESSION,
            f"ralph/{ID}",
            repository.head,
            WorktreeOwner("a test", mark),
            continued,
        ),
        CheckoutWatch(),
        registered=registered,
    )
    return Tree(repo, linked)


def edit_while_staging(patch: pytest.MonkeyPatch, module: ModuleType, path: Path) -> None:
    """Edit a file once after git has read it, as if git wrote the index a second later.

    Arguments:
        patch: lasts as long as git is slow.
        module: uses ``stage_changes`` and ``write_tree``.
        path: gets the content ``first``, which git reads, and then ``final``, in the same second.

    """
    stage, write = module.stage_changes, module.write_tree
    edited = list[bool]()

    def _slow(scratch: Git) -> None:
        later = time.time() + 1
        os.utime(str(scratch.index_file), (later, later))

    def _stage(scratch: Git, *arguments: object) -> object:
        if not edited:
            time.sleep(1 - time.time() % 1)
            path.write_bytes(b"first\n")
        done = stage(scratch, *arguments)
        if not edited:
            path.write_bytes(b"final\n")
            edited.append(True)
        _slow(scratch)
        return done

    def _write(scratch: Git) -> object:
        tree = write(scratch)
        _slow(scratch)
        return tree

    patch.setattr(module, "stage_changes", _stage)
    patch.setattr(module, "write_tree", _write)


def edit_while_lifting(patch: pytest.MonkeyPatch, module: ModuleType, repo: Repo, name: str) -> None:
    """Edit a hidden file after git has lifted its flag, as if git wrote that index a second later.

    Arguments:
        patch: lasts as long as git is slow.
        module: uses ``lift_flags``.
        repo: has the file; its index gets the file's time in this second, and then the flag.
        name: of the file; its content becomes that content in capitals.

    """
    lift, path = module.lift_flags, repo.path / name
    content = path.read_bytes()
    time.sleep(1 - time.time() % 1)
    path.write_bytes(content)
    repo.git("update-index", "--really-refresh")
    repo.git("update-index", "--assume-unchanged", name)

    def _lift(worktree: LinkedWorktree, scratch: Git, listing: object) -> bool:
        lifted = bool(lift(worktree, scratch, listing))
        path.write_bytes(content.upper())
        os.utime(path, ns=(listed.st_mtime_ns, listed.st_mtime_ns))
        later = time.time() + 2
        os.utime(str(scratch.index_file), (later, later))
        return lifted

    listed = path.stat()
    patch.setattr(module, "lift_flags", _lift)


def on_disk(top: Path) -> Listing:
    """Return every file and symlink below a directory, without ``.git`` of the top and without the trash.

    What lies in the trash is being deleted while the test looks.
    """
    found: Listing = {}
    root = os.fsencode(top)
    for directory, names, files in os.walk(root):
        if directory == root and b".git" in names:
            names.remove(b".git")
        if directory == root + b"/.ralph/run" and b"trash" in names:
            names.remove(b"trash")
        for name in [*files, *names]:
            path = Path(os.fsdecode(directory), os.fsdecode(name))
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                entry = ("120000", os.fsencode(path.readlink()))
            elif stat.S_ISDIR(mode):
                continue
            else:
                entry = ("100755" if mode & stat.S_IXUSR else "100644", path.read_bytes())
            found[os.fsencode(path.relative_to(top))] = entry
    found.pop(b".git", None)
    return found


def owners(top: Path) -> set[tuple[int, int]]:
    """Return user and group ids of a directory and of all below it; worktrees may be going meanwhile."""
    found = set()
    for directory, names, files in os.walk(top):
        for name in (".", *names, *files):
            with contextlib.suppress(FileNotFoundError):
                status = Path(directory, name).lstat()
                found.add((status.st_uid, status.st_gid))
    return found


def in_git(repo: Repo, revision: str) -> Listing:
    """Return what a tree of git holds."""
    found: Listing = {}
    for row in os.fsencode(repo.git("ls-tree", "-r", "-z", revision)).split(b"\0")[:-1]:
        info, _, path = row.partition(b"\t")
        mode, _, oid = info.split(b" ")
        found[path] = (mode.decode(), repo.show(oid.decode()))
    return found


def put(top: Path, listing: Listing) -> None:
    """Make a directory hold exactly these files; ``.git`` is left alone."""
    for path in list(top.iterdir()):
        if path.name == ".git":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, (mode, content) in listing.items():
        path = top / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode == "120000":
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)
            path.chmod(0o755 if mode == "100755" else 0o644)
