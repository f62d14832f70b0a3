"""The state of files: ``git status`` and ``git add``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import DURABLE, Git, decode, run_git, start_git
from ralph_wrap.git.index import encode_paths, submodules_in
from ralph_wrap.system import process

# With this configuration git could take a changed file for an unchanged one, or stop `add` half way.
_SUSPICIOUS = (
    *("-c", "core.trustctime=true"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.ignoreStat=false"),
    *("-c", "core.ignoreCase=false"),
    *("-c", "core.safecrlf=false"),
    *("-c", "status.renames=false"),
    *("-c", "diff.renames=false"),
    *("-c", "advice.addEmbeddedRepo=false"),
    *("-c", "add.ignoreErrors=true"),
)


# With "none", git would start another git in each submodule, which obeys the configuration there.
_NOT_INSIDE = "--ignore-submodules=dirty"


class Status(NamedTuple):
    """The result of ``git status``: paths relative to the top level, a trailing slash marks a directory.

    Attributes:
        changed: tracked paths that differ between HEAD, index and disk.
        unstaged: those of *changed* in which the disk differs from the index.
        unmerged: those of *changed* with conflicts.
        untracked: paths that are not in the index and not ignored.
        ignored: ignored paths; an ignored directory is one path.

    """

    changed: tuple[str, ...]
    unstaged: tuple[str, ...]
    unmerged: tuple[str, ...]
    untracked: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def nested(self) -> tuple[str, ...]:
        """Untracked repositories; git does not list the files in them."""
        return tuple(path.rstrip("/") for path in self.untracked if path.endswith("/"))

    @property
    def clean(self) -> bool:
        """Nothing changed, staged or untracked."""
        return not self.changed and not self.untracked


def start_status(git: Git) -> process.RunningCommand:
    """Start ``git status`` for all paths: each untracked file, and each ignored directory as one path.

    A submodule has changed if it is at another commit. :mod:`ralph_wrap.git.safe.submodules` looks into it.
    """
    return start_git(
        git,
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--ignored=matching",
        _NOT_INSIDE,
        config=_SUSPICIOUS,
    )


def parse_status(output: bytes) -> Status:
    """Parse ``git status --porcelain=v1 -z``, no renames (git-status(1), *Porcelain Format Version 1*)."""
    entries = [(entry[:2], entry[3:]) for entry in decode(output).split("\0")[:-1]]
    changed = [(kind, path) for kind, path in entries if kind not in {"??", "!!"}]
    return Status(
        changed=tuple(path for _, path in changed),
        unstaged=tuple(path for kind, path in changed if kind[1] != " "),
        unmerged=tuple(path for kind, path in changed if "U" in kind or kind in {"AA", "DD"}),
        untracked=tuple(path for kind, path in entries if kind == "??"),
        ignored=tuple(path for kind, path in entries if kind == "!!"),
    )


def start_entries(git: Git) -> process.RunningCommand:
    """Start ``git status`` for all files but ignored ones (see :func:`parse_entries`)."""
    return start_git(
        git,
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=all",
        _NOT_INSIDE,
        config=_SUSPICIOUS,
    )


def parse_entries(output: bytes) -> dict[str, str]:
    """Parse ``git status --porcelain=v2 -z``, no renames (git-status(1), *Porcelain Format Version 2*).

    Returns:
        For each path the letters, modes and object ids of index and disk, but not those of HEAD. An untracked
        path has ``?``. A path that was removed from the index, and is still on the disk, has both.

    """
    found: dict[str, str] = {}
    for entry in decode(output).split("\0")[:-1]:
        if entry.startswith("? "):
            path, state = entry[2:], "?"
        elif entry.startswith("1 "):
            _, letters, inner, _, *modes, _, index, path = entry.split(" ", 8)
            state = " ".join((letters, inner, *modes, index))
        elif entry.startswith("u "):
            _, *states, path = entry.split(" ", 10)
            state = " ".join(states)
        else:
            continue
        found[path] = f"{found[path]} {state}" if path in found else state
    return found


def stage_all(git: Git, exclude: Iterable[str]) -> GitError | None:
    """Add every file that is not ignored to the index.

    Returns:
        The error, if some files could not be added.

    """
    # For a submodule, `add` would start another git in it; `update-index` only reads its HEAD.
    submodules = submodules_in(git)
    without = dict.fromkeys((*exclude, *(entry.path for entry in submodules)))
    # By stdin: some thousand paths are more than the arguments of a process may be (execve(2), E2BIG).
    pathspecs = encode_paths([":/", *(f":(top,exclude,literal){path}" for path in without)])
    from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    failure = _tried(git, "add", "--all", *from_stdin, stdin=pathspecs)
    named = [entry.path for entry in submodules if entry.is_checked_out]
    failed = stage_paths(git, named) if named else None
    return failure or failed


def stage_paths(git: Git, paths: Iterable[str]) -> GitError | None:
    """Put the state of some files into the index; a deleted file leaves the index.

    Returns:
        The error, if some files could not be added; perhaps none was added.

    """
    return _tried(git, "update-index", "--add", "--remove", "-z", "--stdin", stdin=encode_paths(paths))


def _tried(git: Git, *arguments: str, stdin: bytes | None = None) -> GitError | None:
    try:
        run_git(git, *arguments, config=(*_SUSPICIOUS, *DURABLE), stdin=stdin)
    except GitError as error:
        return error
    return None
