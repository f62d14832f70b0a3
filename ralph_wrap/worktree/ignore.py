"""The ignore rule that keeps worktrees out of the project's own ``git status`` and ``git add``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from ralph_wrap.config import IgnoreLocation
from ralph_wrap.errors import GitError, IsolationError, LockedError, explained
from ralph_wrap.git import Git, Repository, is_ignored
from ralph_wrap.system import files
from ralph_wrap.worktree.lock import repository_lock

RULE = ".ralph/worktrees/"
_PROBE = f"{RULE}probe"
_PLAIN_RULES = {b".ralph", b".ralph/", b"/.ralph", b"/.ralph/"}
_PLAIN_RULES_BELOW = {b".ralph/worktrees", b".ralph/worktrees/", b"/.ralph/worktrees", b"/.ralph/worktrees/"}
_LARGEST = 1 << 20  # bytes of an ignore file that is read to spare a git process


def is_hidden(git: Git, repository: Repository) -> bool:
    """Return whether git ignores the worktrees already; false if git fails.

    Arguments:
        git: git at the project root.
        repository: the project's repository.

    """
    if _has_plain_rule(repository):
        return True
    with contextlib.suppress(GitError):  # ensure_ignored runs the same command, and reports the error
        return is_ignored(git, _PROBE)
    return False


def _has_plain_rule(repository: Repository) -> bool:
    """Return whether a line certainly ignores the worktrees: then no git process needs to say so.

    The first file with a matching line decides, and in it the last such line (gitignore(5)). A file in a
    lower directory comes before both, but git does not look below a directory that it ignores.
    """
    inner = repository.root / ".ralph" / ".gitignore"
    rules = _PLAIN_RULES if os.path.lexists(inner) else _PLAIN_RULES | _PLAIN_RULES_BELOW
    for path in (repository.root / ".gitignore", repository.common_dir / "info" / "exclude"):
        try:
            content = files.read(path, _LARGEST)
        except FileNotFoundError:
            continue
        except OSError:
            return False
        lines = {line.removesuffix(b"\r") for line in content.split(b"\n")}
        if any(line.startswith(b"!") for line in lines):
            return False
        if lines & rules:
            return True
    return False


def ensure_ignored(git: Git, repository: Repository, rule: IgnoreLocation) -> Path | None:
    """Make sure that git ignores the worktrees; any number of sessions may start at once.

    Arguments:
        git: git at the project root.
        repository: the project's repository.
        rule: names the file that gets the rule.

    Returns:
        The file that got the rule; ``None`` if git ignores the worktrees already.

    Raises:
        IsolationError: the rule cannot be written; without it ``git status`` would list our worktrees.

    """
    if rule is IgnoreLocation.OFF or is_ignored(git, _PROBE):
        return None
    if rule is IgnoreLocation.EXCLUDE:
        path = repository.common_dir / "info" / "exclude"
    else:
        path = repository.root / ".gitignore"
    if rule is IgnoreLocation.GITIGNORE and (path.is_symlink() or path.is_dir()):
        path = repository.common_dir / "info" / "exclude"  # git follows no symlink there
    if path.is_symlink() or path.is_dir():
        raise IsolationError(
            f"{path} is no file, so the rule {RULE} cannot be added", "add it by hand, or --ignore off"
        )
    try:
        with repository_lock(repository.common_dir):
            while not is_ignored(git, _PROBE):
                path.parent.mkdir(exist_ok=True)
                before = files.state(path)
                content = files.read(path, sys.maxsize) if before else b""
                if files.replace(path, appended(content), unless_changed_since=before):
                    return path
            return None
    except LockedError as error:
        raise explained(error) from error
    except OSError as error:
        raise IsolationError(
            f"the rule {RULE} cannot be added to {path}: {error.strerror}",
            "add the line by hand, or --ignore off",
        ) from error


def tidy(repository: Repository) -> None:
    """Remove the temporary files of a process that was killed in :func:`ensure_ignored`.

    Raises:
        OSError: a file cannot be removed.

    """
    with repository_lock(repository.common_dir):
        for path in (repository.root / ".gitignore", repository.common_dir / "info" / "exclude"):
            for leftover in files.temporaries(path):
                leftover.unlink()


def appended(content: bytes) -> bytes:
    """Return a ``.gitignore`` with the rule added, in a line of its own; line ends stay.

    The file then ends with a newline. Without it, the next ``echo x >> .gitignore`` would change the rule.
    """
    newline = (
        b"\r\n" if content.endswith(b"\r\n") or b"\r\n" in content.partition(b"\n")[0] + b"\n" else b"\n"
    )
    before = newline if content and not content.endswith(b"\n") else b""
    return content + before + os.fsencode(RULE) + newline
