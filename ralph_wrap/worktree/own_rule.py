"""Our own line in a ``.gitignore`` of the user, which a session has added and nobody has committed.

A ``.gitignore`` that differs only by it is clean: no landing and no ``apply`` stops at it, and each keeps it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ralph_wrap.errors import ConflictError, LockedError
from ralph_wrap.git import Repository, object_kinds, run_git
from ralph_wrap.git.merge import PathChange
from ralph_wrap.system import files
from ralph_wrap.worktree.ignore import RULE, appended
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.user_checkout import UserCheckout

IGNORE = ".gitignore"
"""The file to which a session adds its line."""


def is_rule(checkout: UserCheckout) -> bool:
    """Return whether ``.gitignore`` differs only by our own line, and nothing of it is staged."""
    return _without_line(checkout, ())[0]


def _without_line(checkout: UserCheckout, also: Sequence[bytes]) -> tuple[bool, bytes | None]:
    """Return whether ``.gitignore`` differs only by our line, and its content without that.

    Arguments:
        also: contents that it may have beside that of HEAD.

    Returns:
        The content is ``None`` if HEAD has no such file, and ours holds nothing but the line.

    """
    staged = run_git(checkout.git, "diff-index", "--cached", "--quiet", "HEAD", "--", IGNORE, accept=(0, 1))
    if staged.status != 0:
        return False, None
    try:
        found = files.read(checkout.path / IGNORE, sys.maxsize)
    except OSError:
        return False, None
    committed = _committed_rules(checkout)
    if found == appended(committed or b""):
        return True, committed
    return next(((True, content) for content in also if found == appended(content)), (False, None))


def _committed_rules(checkout: UserCheckout) -> bytes | None:
    """Return the ``.gitignore`` of HEAD, ``None`` if it has none."""
    if IGNORE not in object_kinds(checkout.git, "HEAD", [IGNORE]):
        return None
    return run_git(checkout.git, "cat-file", "blob", f"HEAD:{IGNORE}").stdout


@contextlib.contextmanager
def without_rule(
    repository: Repository,
    checkouts: Sequence[UserCheckout],
    changes: Sequence[PathChange],
    also: Sequence[bytes] = (),
) -> Iterator[None]:
    """Take our own line out of each ``.gitignore`` that is going to change, and add it again at the end.

    The file may be untracked, and hold nothing else. A kill in between loses only the line, which the next
    session adds.

    Arguments:
        also: contents that the file may have beside the line, and beside that of HEAD.

    Raises:
        ConflictError: the file was changed at this moment.
        OSError: the file cannot be written.

    """
    is_coming = any(change.path == IGNORE for change in changes)
    with contextlib.ExitStack() as stack:
        for checkout in checkouts if is_coming else ():
            if _take_rule_out(repository, checkout, also):
                stack.callback(_add_rule, repository, checkout.path / IGNORE)
        yield


def _take_rule_out(repository: Repository, checkout: UserCheckout, also: Sequence[bytes]) -> bool:
    """Take our line out of a ``.gitignore`` that differs only by it; return whether it did.

    Raises:
        ConflictError: it was changed at this moment; the change stays.
        OSError: the file cannot be written.

    """
    path = checkout.path / IGNORE
    with repository_lock(repository.common_dir):
        before = files.state(path)
        is_ours, content = _without_line(checkout, also)
        if not is_ours:
            return False
        if content is not None:
            is_done = files.replace(path, content, unless_changed_since=before)
        elif is_done := files.state(path) == before:
            path.unlink()
    if not is_done:
        raise ConflictError(f"{path} was changed at this moment", "commit the change, and try again")
    return True


def _add_rule(repository: Repository, path: Path) -> None:
    """Add our line to a file that lacks it; a failure does no harm, because the next session does it."""
    with contextlib.suppress(OSError, LockedError), repository_lock(repository.common_dir):
        is_done = False
        while not is_done:
            before = files.state(path)
            content = files.read(path, sys.maxsize) if before else b""
            is_done = os.fsencode(RULE) in content.split() or files.replace(
                path, appended(content), unless_changed_since=before
            )
