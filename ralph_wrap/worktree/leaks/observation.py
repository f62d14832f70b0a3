"""An observation of the files and refs outside a session's workspace.

In the checkout at the project root it has the files that git does not ignore, the index, and HEAD. In the
repository it has branches, tags and other refs, the stash, ``config``, ``hooks`` and ``info``. For a file
that differs from HEAD it has size, times and inode, which show a further change. It writes nothing, and does
not refresh git's index.

It leaves out the changes that sessions and other commands of ours make:

- refs under ``ralph/``, and branches that are checked out in our worktrees;
- branches that ``ralph-wrap merge`` has moved (see ``landings``), with their checkout;
- ``.ralph/worktrees`` and ``.ralph/run``, and the line in an ignore file for the first;
- the lines that ``worktree create`` adds to ``config`` (see ``managed.git_config``).

It also leaves out frequent changes of other programs that do no harm:

- remote branches: editors fetch in the background, and a fetch only moves copies;
- the upstream of a session's branch in ``config``, which ``git push -u`` writes;
- the changes of ``git gc``: refs are compared by name and not by file, and ``info/refs`` only lists them.
  Git writes that list first into ``info/refs_`` and six letters (git-update-server-info(1)).

It does not see files that git ignores, or that are marked assume-unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from ralph_wrap.git import Git, decode, decode_lines, finish_git, pointer
from ralph_wrap.git.command import require_unblocked
from ralph_wrap.git.index import SubmoduleEntry, submodules_in
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.safe.submodules import changed_inside
from ralph_wrap.git.status import parse_entries, start_status
from ralph_wrap.system import files
from ralph_wrap.worktree.ignore import RULE
from ralph_wrap.worktree.leaks.refs import FREE, ObservedRefs
from ralph_wrap.worktree.managed.git_config import without_our_lines
from ralph_wrap.worktree.managed.metadata import read_mark

IGNORE = ".gitignore"
"""The file to which a session may add a line."""

BRANCHES = "refs/heads/"
"""The start of the full name of a branch."""

CONFIGURATIONS = ("config", "config.worktree")
"""Files that git reads as its configuration."""

_LOOKED_AT = 10_000  # the maximum number of changed and untracked files whose size and times are read
_LARGEST = 1 << 20  # bytes; of a larger hook only size and times are compared
_OUR_FILES = (".ralph/worktrees/", ".ralph/run/")
_TEMPORARY = ("..gitignore.", "..exclude.")  # temporary files beside an ignore file (files.replace)
_LIST_OF_REFS = re.compile(r"info/refs(_\w{6})?")
_STASH = "refs/stash"
_INSIDE = "changed inside"  # the state of a submodule with uncommitted work


class ObservedSubmodules:
    """Lists the submodules of a checkout; again only if its index has changed.

    Arguments:
        git: git in the checkout, with its git directory.

    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._state: object = None
        self._entries: list[SubmoduleEntry] = []

    def list(self) -> list[SubmoduleEntry]:
        """Return the submodules in the index.

        Raises:
            GitError: git cannot read it.

        """
        state = files.state(_git_dir(self._git) / "index")
        if state is not None and state != self._state:
            self._entries = submodules_in(self._git)
        self._state = state
        return [] if state is None else self._entries


class ObservedCheckout(NamedTuple):
    """The observed checkout and repository.

    Attributes:
        git: git in the checkout at the project root, even if an agent changes its ``.git`` later.
        workspace: the session's worktree.
        branch: full name of the session's branch.
        refs: lists the refs of the repository.
        submodules: lists those of the checkout.

    """

    git: Git
    workspace: Path
    branch: str
    refs: ObservedRefs
    submodules: ObservedSubmodules

    @classmethod
    def at(cls, git: Git, root: Path, common_dir: Path, workspace: Path, branch: str) -> ObservedCheckout:
        """Return the checkout around a session's worktree.

        Arguments:
            workspace: the session's worktree, which may not exist yet.
            branch: short name of its branch.

        Raises:
            OSError: the root is not a checkout.

        """
        git_dir = root / ".git"
        git_dir = git_dir.resolve() if git_dir.is_dir() else pointer.read(root)
        # With git_dir and work_tree given, core.bare and core.worktree of an agent cannot hide changes.
        fixed = git._replace(cwd=root, git_dir=git_dir, common_dir=common_dir, work_tree=root, config=())
        return cls(fixed, workspace, f"{BRANCHES}{branch}", ObservedRefs(fixed), ObservedSubmodules(fixed))


class FileState(NamedTuple):
    """A file that differs between HEAD, index and disk.

    Attributes:
        state: its state as ``git status`` prints it.
        disk: values that change with the file; empty if it does not exist.

    """

    state: str
    disk: tuple[int, ...]


class Observation(NamedTuple):
    """The result of one observation.

    Attributes:
        entries: files that differ from HEAD, by path.
        ignore: the lines of ``.gitignore``, without ours.
        head: the full name of the checkout's branch, or the commit of a detached HEAD.
        commit: the commit of HEAD; empty before the first one.
        refs: names and object ids of refs.
        stash: object id of the newest entry of the stash; empty without one.
        stash_log: a value that changes with the other entries.
        stashed: the titles of all entries by object id; ``None`` if their log cannot be read, as with
            reftable.
        kept: files of the repository by name, each with a value that changes with the file.
        held: branches that are checked out in our worktrees.

    """

    entries: Mapping[str, FileState]
    ignore: tuple[bytes, ...]
    head: str
    commit: str
    refs: Mapping[str, str]
    stash: str
    stash_log: bytes
    stashed: Mapping[str, str] | None
    kept: Mapping[str, bytes]
    held: frozenset[str]


class RunningObservation:
    """An observation in progress; git works in the background until the end of the context.

    Raises:
        OSError: git cannot start.

    """

    def __init__(self, checkout: ObservedCheckout) -> None:
        self._checkout = checkout
        self._ours = _our_worktrees(checkout)
        with contextlib.ExitStack() as stack:
            self._status = stack.enter_context(start_status(checkout.git, ignored=False))
            self._state = checkout.refs.state()
            self._known = checkout.refs.known(self._state)
            self._refs = stack.enter_context(checkout.refs.start()) if self._known is None else None
            self._running = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def is_done(self, timeout: float) -> bool:
        """Wait *timeout* seconds at most, and return whether git is done."""
        return self._status.ended(timeout) and (self._refs is None or self._refs.ended(timeout))

    def require_unblocked(self) -> None:
        """End git if it waits for a FIFO or a device.

        Raises:
            BlockingFileError: it does.

        """
        require_unblocked(self._status, "status")

    def result(self) -> Observation:
        """Wait for git, and return the result.

        Raises:
            GitError: git cannot read the repository.

        """
        entries = parse_entries(finish_git(self._status, "status").stdout)
        git, listed = self._checkout.git, self._known
        for path in changed_inside(git, git.cwd, entries=self._checkout.submodules.list()):
            entries[path] = f"{entries.get(path, '.M')} {_INSIDE}"
        if self._refs is not None:
            output = finish_git(self._refs, "for-each-ref").stdout
            listed = self._checkout.refs.keep(self._state, output)
        # A worktree may have been added or removed meanwhile.
        ours = {**self._ours, **_our_worktrees(self._checkout)}
        head = decode(_content(_git_dir(git) / "HEAD").partition(b" ")[2]).strip()
        refs, current = _parse_refs(listed or b"")
        head = current or head.removeprefix("ref: ")
        stash, stash_log = refs.pop(_STASH, ""), _content(_common_dir(git) / "logs" / _STASH)
        return Observation(
            entries=dict(_with_disk(git.cwd, entries, ours)),
            ignore=_without_rule(_content(git.cwd / IGNORE)),
            head=head,
            commit=refs.get(head, "" if head.startswith("refs/") else head),
            refs={name: oid for name, oid in refs.items() if not name.startswith(FREE)},
            stash=stash,
            stash_log=stash_log,
            stashed=_stashed(stash, stash_log),
            kept=dict(_kept(git)),
            held=frozenset((*ours.values(), self._checkout.branch)),
        )


def _git_dir(git: Git) -> Path:
    assert git.git_dir is not None  # see Place.at
    return git.git_dir


def _common_dir(git: Git) -> Path:
    assert git.common_dir is not None
    return git.common_dir


def _our_worktrees(checkout: ObservedCheckout) -> dict[Path, str]:
    """Return directories and HEADs of the worktrees that ralph-wrap made, without the session's own.

    The agent chooses the branch of the session's worktree, which may be a branch of the user.
    """
    found = {}
    for registration in _listed(_common_dir(checkout.git) / "worktrees"):
        try:
            named = pointer.git_file_of(registration)
            head = decode(files.read(registration / "HEAD")).strip()
        except OSError:
            continue
        ours = any(f"/{part}" in os.fspath(named) for part in _OUR_FILES) or read_mark(registration)
        if ours and named.parent.name != checkout.workspace.name:
            found[named.parent] = head.removeprefix("ref: ")
    return found


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _parse_refs(output: bytes) -> tuple[dict[str, str], str]:
    """Return name and object id of each ref, and the name of the checked out branch."""
    refs, current = {}, ""
    for line in decode_lines(output):
        oid, _, name = line.partition("refs/")
        refs[f"refs/{name}"] = oid[:-1]
        if oid.endswith("*"):
            current = f"refs/{name}"
    return refs, current


def _stashed(newest: str, log: bytes) -> dict[str, str] | None:
    """Return the entries of the stash: its log has a line for each (git-stash(1)).

    An agent can write the log, and what it names becomes a word of a command: only object ids count.
    """
    if not newest:
        return {}
    _, _, lines = log.partition(b" ")
    found = {}
    for line in decode_lines(lines):
        oids, _, title = line.partition("\t")
        words = oids.split(" ", 2)
        if len(words) > 1 and is_oid(words[1]):
            found[words[1]] = title
    return found if newest in found else None


def _with_disk(
    top: Path, entries: Mapping[str, str], ours: Mapping[Path, str]
) -> Iterator[tuple[str, FileState]]:
    for number, (path, state) in enumerate(entries.items()):
        if path.startswith((*_OUR_FILES, *_TEMPORARY)):
            continue
        if path.endswith("/") and top / path in ours:
            continue
        yield path, FileState(state, _disk(f"{top}/{path}") if number < _LOOKED_AT else ())


def _disk(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    if stat.S_ISDIR(found.st_mode):  # a nested repository, whose files are not observed
        return (stat.S_IFDIR,)
    return (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _kept(git: Git) -> Iterator[tuple[str, bytes]]:
    common, own = _common_dir(git), _git_dir(git)
    for name in CONFIGURATIONS:
        yield name, without_our_lines(_content(common / name))
    yield "commondir", _content(common / "commondir")
    if own != common:
        yield ".git", _content(git.cwd / ".git")
        yield f"worktrees/{own.name}/config.worktree", _content(own / "config.worktree")
    for directory in ("hooks", "info"):
        yield directory, _content(common / directory)
        for path in _listed(common / directory):
            name = f"{directory}/{path.name}"
            if name == "info/exclude":
                yield name, b"\n".join(_without_rule(_content(path)))
            elif path.suffix == ".sample" or _LIST_OF_REFS.fullmatch(name) is not None:
                continue
            elif not path.name.startswith(_TEMPORARY):
                yield name, _content(path)


def _content(path: Path) -> bytes:
    """Return a value that changes with a file: its mode, a blank, its content; nothing if it is missing."""
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST:
            return b"%o " % found.st_mode + files.read(path)
        if stat.S_ISLNK(found.st_mode):
            return b"%o " % found.st_mode + os.fsencode(path.readlink())
    except FileNotFoundError:
        return b""
    except OSError as error:
        return f"error {error.errno}".encode()
    if stat.S_ISDIR(found.st_mode):
        return b"%o " % found.st_mode
    return b"%o %d %d %d" % (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _without_rule(content: bytes) -> tuple[bytes, ...]:
    _, _, text = content.partition(b" ")
    return tuple(line for line in text.splitlines() if line != RULE.encode())
