"""What a directory belongs to: repository, checkout, worktrees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import GitError, GitTooOldError, IsolationError, NotARepositoryError
from ralph_wrap.git.command import Git, finish, lines, run, start, text

if TYPE_CHECKING:
    from collections.abc import Callable

OLDEST = (2, 15)
"""The oldest version that a session runs isolated with."""


class Repository(NamedTuple):
    """What a directory belongs to.

    Attributes:
        root: top level of the checkout, resolved.
        common_dir: what all its worktrees share, resolved.
        prefix: the directory's place below *root*.
        head: the commit at HEAD, ``None`` before the first commit.
        git_version: of the git that answers here.
        file_mode: its file system knows executable files (git-config(1): core.fileMode).
        symlinks: it knows symlinks (core.symlinks).
        names_committer: its configuration says who commits.

    """

    root: Path
    common_dir: Path
    prefix: Path
    head: str | None
    git_version: tuple[int, ...]
    file_mode: bool
    symlinks: bool
    names_committer: bool


def parse_version(output: bytes) -> tuple[int, ...]:
    """Read ``git version 2.39.5 (Apple Git-154)``; what cannot be read counts as new enough."""
    found = re.match(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", output)
    return tuple(int(part) for part in found.groups() if part) if found else OLDEST


def locate(git: Git, meanwhile: Callable[[], object] = lambda: None) -> Repository:
    """Find the repository of a directory.

    Arguments:
        git: in the directory.
        meanwhile: called while git looks.

    Raises:
        GitTooOldError: git is older than 2.15.
        NotARepositoryError: there is none.
        IsolationError: it is bare, or git refuses it (another owner's, say).
        OSError: there is no git.

    """
    # Paths may hold newlines. rev-parse repeats an option that it does not know, which separates them.
    between = "--ralph-wrap-separator"
    places = ("--show-toplevel", between, "--git-common-dir", between, "--show-prefix", between)
    with (
        start(git, "version") as version,
        start(git, "rev-parse", *places, "HEAD^{commit}") as answering,
        start(git, "config", "-z", "--get-regexp", _ASKED) as configured,
    ):
        meanwhile()
        git_version = parse_version(version.wait().stdout)
        if git_version < OLDEST:
            number = ".".join(map(str, git_version))
            raise GitTooOldError(f"git {number} is older than 2.15", "install git 2.15 or newer")
        answer = answering.wait()
        config = _parse_config(configured.wait().stdout)
    if answer.status != 0:
        _require_checkout(git)
        answer = run(git, "rev-parse", *places)  # there is no commit yet
    top, common, prefix, head = text(answer.stdout).split(f"{between}\n")
    return Repository(
        root=Path(top[:-1]).resolve(),
        common_dir=(git.cwd / common[:-1]).resolve(),
        prefix=Path(prefix[:-1]),
        head=head.strip() or None,
        git_version=git_version,
        file_mode=config.get("core.filemode", "true") not in _NO,
        symlinks=config.get("core.symlinks", "true") not in _NO,
        names_committer=all(any(map(str.isalnum, config.get(key, ""))) for key in _COMMITTER),
    )


_NO = {"false", "no", "off", "0", ""}  # git-config(1): boolean
_COMMITTER = ("user.name", "user.email")
_ASKED = r"^(core\.(filemode|symlinks)|user\.(name|email))$"


def _parse_config(output: bytes) -> dict[str, str]:
    entries = (text(entry).partition("\n") for entry in output.split(b"\0") if entry)
    # "[core] symlinks" without a value is true
    return {key: value if newline else "true" for key, newline, value in entries}


def file_system_config(*, file_mode: bool, symlinks: bool) -> tuple[str, ...]:
    """Return arguments that tell git what a file system knows, whatever the configuration says by now."""
    return (
        *("-c", f"core.filemode={'true' if file_mode else 'false'}"),
        *("-c", f"core.symlinks={'true' if symlinks else 'false'}"),
    )


def _require_checkout(git: Git) -> None:
    answer = run(git, "rev-parse", "--is-bare-repository", "--is-inside-work-tree", accept=(0, 128))
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


def _no_repository(git: Git, stderr: str) -> Exception:
    # No machine format tells the reasons apart, so the text is shown and only one case is guessed at:
    # a .git is there, and git still says no.
    if any((parent / ".git").exists() for parent in (git.cwd, *git.cwd.parents)):
        return IsolationError(
            str(GitError("rev-parse", 128, stderr)),
            f"if it belongs to another user: git config --global --add safe.directory {git.cwd}",
        )
    return NotARepositoryError(
        f"{git.cwd} is not in a git repository", 'git init && git commit --allow-empty -m "First commit"'
    )


ABSOLUTE_POINTERS = ("-c", "worktree.useRelativePaths=false")
"""Git 2.48 would add an extension to the shared configuration that older git and libgit2 refuse."""


def is_ignored(git: Git, path: str, meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Tell whether a path that need not exist is ignored, or would be if git did not know it.

    Arguments:
        path: relative.
        meanwhile: called while git looks.

    Raises:
        GitError: git cannot tell.

    """
    # --no-index: a large one takes long to read.
    with start(git, "check-ignore", "-q", "--no-index", path) as running:
        meanwhile()
        return finish(running, "check-ignore", accept=(0, 1)).status == 0
