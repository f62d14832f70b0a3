"""The state of files: ``git status`` and ``git add``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import WRITTEN_OUT, Git, decode, run_git, start_git
from ralph_wrap.git.index import GITLINK, encode_paths, submodules_in
from ralph_wrap.system import process

# With another configuration git could take a changed file for an unchanged one, or stop `add` half way.
STRICT = (
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
"""The configuration with which git sees each change of a file."""


# With "none", git would start another git in each submodule, which obeys the configuration there.
_NOT_INSIDE = "--ignore-submodules=dirty"


class Status(NamedTuple):
    """The result of ``git status``: paths relative to the top level, a trailing slash marks a directory.

    Attributes:
        head: the commit at HEAD; ``None`` before the first one.
        branch: short name of the branch that is checked out; ``None`` at a detached HEAD. Of a ref outside of
            ``refs/heads/`` it is the full name.
        changed: tracked paths that differ between HEAD, index and disk.
        unstaged: those of *changed* in which the disk differs from the index.
        unmerged: those of *changed* with conflicts.
        removed: those of *changed* that HEAD has and the index lacks.
        submodules: those of *changed* that are submodules in HEAD, index or disk.
        untracked: paths that are not in the index and not ignored.
        ignored: ignored paths; an ignored directory is one path.

    """

    head: str | None = None
    branch: str | None = None
    changed: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    unmerged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def nested(self) -> tuple[str, ...]:
        """Untracked repositories; git does not list the files in them."""
        return tuple(path.rstrip("/") for path in self.untracked if path.endswith("/"))

    @property
    def new(self) -> tuple[str, ...]:
        """Untracked files."""
        return tuple(path for path in self.untracked if not path.endswith("/"))

    @property
    def clean(self) -> bool:
        """Nothing changed, staged or untracked."""
        return not self.changed and not self.untracked


def start_status(git: Git, *, ignored: bool = True) -> process.RunningCommand:
    """Start ``git status`` for all paths: each untracked file, and each ignored directory as one path.

    A submodule has changed if it is at another commit. :mod:`ralph_wrap.git.safe.submodules` looks into it.

    Arguments:
        ignored: list ignored paths, too.

    """
    return start_git(
        git,
        "status",
        "--porcelain=v2",
        "-z",
        "--branch",
        "--no-ahead-behind",
        "--untracked-files=all",
        *(("--ignored=matching",) if ignored else ()),
        _NOT_INSIDE,
        config=STRICT,
    )


def parse_status(output: bytes) -> Status:
    """Parse ``git status --porcelain=v2 --branch -z`` (git-status(1), *Porcelain Format Version 2*)."""
    headers: dict[str, str] = {}
    changed: dict[str, tuple[str, ...]] = {}  # letters, submodule, modes
    untracked, ignored = list[str](), list[str]()
    for entry in decode(output).split("\0")[:-1]:
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            name, _, value = rest.partition(" ")
            headers[name] = value
        elif kind == "1":
            letters, inner, *modes, _, _, path = rest.split(" ", 7)
            changed[path] = (kind, letters, inner, *modes)
        elif kind == "u":
            letters, inner, *modes, _, _, _, path = rest.split(" ", 9)
            changed[path] = (kind, letters, inner, *modes)
        elif kind == "?":
            untracked.append(rest)
        elif kind == "!":
            ignored.append(rest)
    head, branch = headers.get("branch.oid"), headers.get("branch.head")
    return Status(
        head=None if head == "(initial)" else head,
        branch=None if branch == "(detached)" else branch,
        changed=tuple(changed),
        unstaged=tuple(path for path, found in changed.items() if found[1][1] != "."),
        unmerged=tuple(path for path, found in changed.items() if found[0] == "u"),
        removed=tuple(path for path, found in changed.items() if found[1][0] == "D"),
        submodules=tuple(path for path, found in changed.items() if GITLINK in found),
        untracked=tuple(untracked),
        ignored=tuple(ignored),
    )


def parse_entries(output: bytes) -> dict[str, str]:
    """Parse the changed and the untracked files of the same output, for a comparison with a later one.

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

    Git stops at the first one that it cannot add, and then adds none.

    Returns:
        The error, if there is such a file.

    """
    options = ("--add", "--remove", "--replace", "-z", "--stdin")
    return _tried(git, "update-index", *options, stdin=encode_paths(paths))


def _tried(git: Git, *arguments: str, stdin: bytes | None = None) -> GitError | None:
    try:
        run_git(git, *arguments, config=(*STRICT, *WRITTEN_OUT), stdin=stdin)
    except GitError as error:
        return error
    return None
