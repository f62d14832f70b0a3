"""What a directory belongs to: repository, checkout, worktrees."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ralph_wrap.errors import GitError, GitTooOldError, IsolationError, NotARepositoryError
from ralph_wrap.git.command import Git, finish, lines, run, run_again, start, text

OLDEST = (2, 15)
"""The oldest version that a session runs isolated with."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What a directory belongs to.

    Attributes:
        root: top level of the checkout, resolved.
        common_dir: what all its worktrees share, resolved.
        prefix: the directory's place below *root*.
        head: the commit at HEAD, ``None`` before the first commit.
        git_version: of the git that answers here.

    """

    root: Path
    common_dir: Path
    prefix: Path
    head: str | None
    git_version: tuple[int, ...]


def parse_version(output: bytes) -> tuple[int, ...]:
    """Read ``git version 2.39.5 (Apple Git-154)``; what cannot be read counts as new enough."""
    found = re.match(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", output)
    return tuple(int(part) for part in found.groups() if part) if found else OLDEST


def locate(git: Git) -> Repository:
    """Find the repository of a directory.

    Raises:
        GitTooOldError: git is older than 2.15.
        NotARepositoryError: there is none.
        IsolationError: it is bare, or git refuses it (another owner's, say).
        OSError: there is no git.

    """
    # Paths may hold newlines. rev-parse repeats an option that it does not know, which separates them.
    between = "--ralph-wrap-separator"
    with (
        start(git, "version") as version,
        start(git, "rev-parse", "--is-bare-repository", "--is-inside-work-tree") as kind,
        start(
            git, "rev-parse", "--show-toplevel", between, "--git-common-dir", between, "--show-prefix"
        ) as places,
        start(git, "rev-parse", "--quiet", "--verify", "HEAD^{commit}") as head,
    ):
        git_version = parse_version(version.wait().stdout)
        if git_version < OLDEST:
            number = ".".join(map(str, git_version))
            raise GitTooOldError(f"git {number} is older than 2.15", "install git 2.15 or newer")
        answer = kind.wait()
        if answer.status != 0:
            raise _no_repository(git, text(answer.stderr))
        bare, inside = lines(answer.stdout)
        if bare == "true":
            raise IsolationError(
                f"{git.cwd} is a bare repository: it has no checkout to work in",
                "name a checkout of it with --project",
            )
        if inside != "true":
            raise IsolationError(f"{git.cwd} is inside a .git directory", "name the checkout with --project")
        top, common, prefix = text(finish(places, "rev-parse").stdout).split(f"{between}\n")
        found = head.wait()
        return Repository(
            root=Path(top[:-1]).resolve(),
            common_dir=(git.cwd / common[:-1]).resolve(),
            prefix=Path(prefix[:-1]),
            head=lines(found.stdout)[0] if found.status == 0 else None,
            git_version=git_version,
        )


def _no_repository(git: Git, stderr: str) -> Exception:
    # No machine format tells the reasons apart, so the text is shown and only one case is guessed at:
    # a .git is there, and git still says no.
    if any((parent / ".git").exists() for parent in (git.cwd, *git.cwd.parents)):
        return IsolationError(
            str(GitError("rev-parse", 128, stderr)),
            f"if it belongs to another user: git config --global --add safe.directory {git.cwd}",
        )
    return NotARepositoryError(f"{git.cwd} is not in a git repository", "git init && git commit there")


ABSOLUTE_POINTERS = ("-c", "worktree.useRelativePaths=false")
"""Git 2.48 would add an extension to the shared configuration that older git and libgit2 refuse."""


def worktree_holding(git: Git, ref: str) -> str | None:
    """Return the path of the worktree that has a branch checked out, ``None`` if none has.

    ``-z`` is git 2.36 and newer, so a path that holds a newline comes back cut.
    """
    path = ""
    for line in lines(run_again(git, "worktree", "list", "--porcelain").stdout):
        key, _, value = line.partition(" ")
        if key == "worktree":
            path = value
        elif key == "branch" and value == ref:
            return path
    return None


def is_registered(git: Git, path: Path) -> bool:
    """Tell whether the repository has a worktree registered at a path."""
    listing = run_again(git, "worktree", "list", "--porcelain").stdout
    return b"worktree " + os.fsencode(path) + b"\n" in listing


def is_ignored(git: Git, path: str) -> bool:
    """Tell whether a path that need not exist is ignored."""
    return run(git, "check-ignore", "-q", path, accept=(0, 1)).status == 0


def file_system_config(git: Git) -> tuple[str, ...]:
    """Return what the repository says of its file system: whether it knows executable files and symlinks."""
    answer = run(git, "config", "--get-regexp", r"^core\.(filemode|symlinks)$", accept=(0, 1))
    said = dict(line.partition(" ")[::2] for line in lines(answer.stdout))
    settings = {"core.filemode": "true", "core.symlinks": "true"} | said
    return tuple(part for key, value in settings.items() for part in ("-c", f"{key}={value}"))
