"""What a user puts where ralph-wrap has a directory: a worktree, a directory, in four ways."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.mounts import mounted
from tests.support.needs import needs_mounts
from tests.support.repo import make_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

KINDS = ("a worktree of the user", "a directory", "a worktree of another repository")
"""What can be put there. The worktree of another session is made by the tests themselves."""

WAYS = ("mv", "git worktree move", "bind mount", "symlink")
"""How it gets there."""


def ways(kind: str) -> tuple[str, ...]:
    """Return the ways that are possible for a kind."""
    return WAYS if kind != "a directory" else tuple(way for way in WAYS if way != "git worktree move")


CASES = [
    pytest.param(
        kind,
        way,
        marks=[needs_mounts] * (way == "bind mount"),
        id=f"{kind}, {way}",
    )
    for kind in KINDS
    for way in ways(kind)
]
"""Each kind in each way."""


@dataclass(frozen=True)
class Stranger:
    """A directory that is not ours.

    Attributes:
        path: where its user has it.
        repo: the repository that it is a worktree of; ``None`` for a plain directory.

    """

    path: Path
    repo: Repo | None

    @property
    def registration(self) -> Path | None:
        """Where its repository registers it."""
        return self.repo.path / ".git" / "worktrees" / self.path.name if self.repo else None

    @contextlib.contextmanager
    def put(self, directory: Path, way: str) -> Iterator[None]:
        """Have it in a place, from which everything was taken away, and take it back afterwards."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        with self._there(directory, way):
            yield
        if self.repo is not None:
            self.repo.git("worktree", "repair", self.path)

    @contextlib.contextmanager
    def _there(self, directory: Path, way: str) -> Iterator[None]:
        if way == "bind mount":
            with mounted(directory, "--bind", os.fspath(self.path)):
                yield
            directory.rmdir()
            return
        if way == "symlink":
            directory.symlink_to(self.path)
            yield
            directory.unlink()
            return
        if way == "git worktree move":
            assert self.repo is not None
            self.repo.git("worktree", "move", "-f", "-f", self.path, directory)
        else:
            self.path.rename(directory)
        yield
        directory.rename(self.path)

    def contents(self, directory: Path) -> dict[str, object]:
        """Return everything in it, and what its repository knows of it but where it is."""
        found: dict[str, object] = dict(listing(directory if directory.exists() else self.path))
        if self.registration is not None:
            known = listing(self.registration)
            known.pop("gitdir")
            found |= {f"registration/{name}": entry for name, entry in known.items()}
        return found


REGISTRATIONS = ("as it was", "renamed", "repaired", "pruned", "named by the stranger")
"""What becomes of the registration of our own worktree, which was moved away."""


@contextlib.contextmanager
def replaced(
    repo: Repo, directory: Path, away: Path, registration: str, found: Stranger, way: str
) -> Iterator[None]:
    """Have another directory in the place of a worktree of ours, and put everything back afterwards.

    Arguments:
        repo: the project.
        directory: the worktree.
        away: where it is meanwhile.
        registration: one of ``REGISTRATIONS``.
        found: the entry in its place.
        way: how that gets there, one of ``WAYS``.

    """
    registered = repo.path / ".git" / "worktrees" / directory.name
    kept = away.with_name("registration")
    shutil.copytree(registered, kept)
    pointer = (directory / ".git").read_bytes()
    directory.rename(away)
    renamed = registered.with_name("renamed")
    if registration == "renamed":
        registered.rename(renamed)
    elif registration == "repaired":
        repo.git("worktree", "repair", away)
    elif registration == "pruned":
        repo.git("worktree", "unlock", directory)
        repo.git("worktree", "prune")
    try:
        with found.put(directory, way):
            if registration == "named by the stranger" and found.registration is not None:
                # `git worktree repair` would go on to our registration, which names this directory, too. In
                # the order in which the kernel lists them, it writes that one to the directory's .git file.
                (found.registration / "gitdir").write_text(f"{directory}/.git\n")
            yield
    finally:
        for path in (registered, renamed):
            shutil.rmtree(path, ignore_errors=True)
        away.rename(directory)
        (directory / ".git").write_bytes(pointer)
        shutil.move(kept, registered)


def stranger(kind: str, repo: Repo, directory: Path) -> Stranger:
    """Make one, with an untracked file and a change in it.

    Arguments:
        kind: one of ``KINDS``.
        repo: the project.
        directory: outside the project, for everything that is made.

    """
    directory.mkdir(exist_ok=True)
    path = directory / "mine"
    if kind == "a directory":
        path.mkdir()
        owner = None
    else:
        owner = repo if kind == "a worktree of the user" else make_repo(directory / "other")
        owner.git("worktree", "add", "-q", "-b", "mine", path)
        (path / "file.txt").write_text("changed by the user\n")
    (path / "untracked").write_text("the user's own\n")
    (path / "deep").mkdir()
    (path / "deep" / "file").write_text("the user's own, too\n")
    return Stranger(path, owner)


def exchange_until_killed(directory: Path, link: Path) -> subprocess.Popen[bytes]:
    """Exchange a directory and a symlink beside it, as fast as possible (``renameat2(2)``)."""
    return subprocess.Popen(("python3", "-I", "-S", "-c", _EXCHANGE, directory, link))


_EXCHANGE = """
import ctypes, os, sys
library, at_cwd, exchange = ctypes.CDLL(None), -100, 2  # AT_FDCWD, RENAME_EXCHANGE
while True:
    library.renameat2(at_cwd, os.fsencode(sys.argv[1]), at_cwd, os.fsencode(sys.argv[2]), exchange)
"""
