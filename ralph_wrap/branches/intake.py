"""Take in the work of clones: the bundles that their sessions have written.

An agent can write to the directory of the bundles, so a bundle is data of an unknown sender:

- It is opened without following a symlink, and has a limit for its size.
- git checks every object in a directory apart from the repository. Nothing enters the repository before that.
- It may hold only the refs of one agent id: its branch, its saved work and its snapshots. One other ref, and
  nothing of the bundle is taken in.
- It may hold a branch that the user named only if no agent of a container can have written its record.
- A branch moves only if it came from the clone, and only the clone has moved it since. Otherwise the work
  becomes a snapshot beside it. No commit loses its last ref.

``refs/ralph/clones/<id>`` names the commit that was last taken in, or from which the clone started. It also
keeps the objects that the clone borrows from ``git gc``.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import ConflictError, GitError, RalphError, RefusedError, explained
from ralph_wrap.git import Git, create_refs, existing_commits, list_refs, worktree_holding
from ralph_wrap.git.bundle import BundleHeader, migrated, read_header, unpack
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.scratch import scratch_directory
from ralph_wrap.git.shadow import shadow_repository
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state.ids import agent_id_of, is_session_id
from ralph_wrap.state.project import RUN, Project, registries, repository_of
from ralph_wrap.state.record import SessionRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.text import command, rename_command

BASES = "refs/ralph/clones/"
"""Refs, by agent id, to the commits that were last taken in from clones, or from which they started."""

_OF_SESSIONS = ("refs/heads/ralph/", "refs/ralph/dropped/", "refs/ralph/snapshots/", BASES)
"""The beginnings of the refs of sessions; the agent id follows."""

SUFFIX = ".bundle"
"""The suffix of a bundle; the rest of its name is the session id."""

_QUARANTINE = "ralph-wrap-incoming-"
_TIMEOUT = 60.0  # seconds to wait for the lock of the repository
_SNAPSHOT = re.compile(r"(?:commit-|submodule-)?[1-9][0-9]{0,9}")


class BundleImport(NamedTuple):
    """The result for one bundle with something new.

    Attributes:
        session: session id.
        refs: the refs that were changed.
        problem: why nothing, or not everything, was taken in; ``None`` if all was.

    """

    session: str
    refs: tuple[str, ...] = ()
    problem: RalphError | None = None


def import_bundles(project: Project) -> list[BundleImport]:
    """Take in every bundle of a project that has something new.

    A bundle with a problem stays as it is. The others go, once their session has ended.
    """
    taken = []
    for home in registries(project):
        for path in bundles_in(home):
            ended = not home.has(str(agent_id_of(path.stem)))  # first: a live one may replace its bundle
            try:
                if found := import_bundle(project, path, to_delete=ended):
                    taken.append(found)
                elif ended:
                    path.unlink()
            except RalphError as error:
                taken.append(BundleImport(path.stem, problem=error))
            except OSError as error:
                taken.append(BundleImport(path.stem, problem=explained(error)))
    with contextlib.suppress(GitError, OSError):  # the next command tries again
        keep_bases(project)
    return taken


def keep_bases(project: Project) -> None:
    """Keep what live clones borrow from ``git gc``, if their sessions could not write to the repository."""
    bases = {
        record.id: record.base
        for home in registries(project)
        if home.replicas.is_dir()
        for record in home.unfinished()
        if isinstance(record, SessionRecord) and record.base and is_oid(record.base)
    }
    if not bases:
        return
    # A ref of the id may belong to another session: an agent can write such a record.
    used = {
        ref.removeprefix(prefix).partition("/")[0].removesuffix("-wip")
        for prefix in _OF_SESSIONS
        for ref in list_refs(project.git, prefix)
    }
    unused = {agent_id: base for agent_id, base in bases.items() if agent_id not in used}
    existing = {*existing_commits(project.git, unused.values())} if unused else set()
    create_refs(
        project.git,
        {BASES + agent_id: base for agent_id, base in unused.items() if base in existing},
        "ralph-wrap: a clone borrows it",
    )


def bundles_in(home: Registry) -> list[Path]:
    """Return the bundles in a registry; their names have the form of a session id."""
    if home.bundles.is_symlink():
        return []
    try:
        names = sorted(path.name for path in home.bundles.iterdir())
    except OSError:
        return []
    return [
        home.bundles / name for name in names if is_session_id(name.removesuffix(SUFFIX)) and SUFFIX in name
    ]


def may_name_branches(project: Project, home: Registry) -> bool:
    """Return whether a record may name a branch of the user: no agent in a container can have written it."""
    return home.directory == project.root / RUN


def _branch_of(project: Project, path: Path, agent_id: str) -> str:
    """Return the full name of the branch that a bundle may hold."""
    home = Registry(project.root / RUN)
    paths = (home.record_path(agent_id), home.sessions / path.stem / "record.json")
    for record_path in paths if path.parent == home.bundles else ():
        record = read_record(record_path)
        if isinstance(record, SessionRecord) and record.session == path.stem and record.branch:
            return f"refs/heads/{record.branch}"
    return f"refs/heads/ralph/{agent_id}"


def import_bundle(project: Project, path: Path, *, to_delete: bool = False) -> BundleImport | None:
    """Take in one bundle; return ``None`` if it has nothing new.

    Arguments:
        to_delete: the caller deletes it then. So what was taken in before is read back, and taken in again if
            an object of it is damaged or missing.

    Raises:
        RefusedError: the bundle is not one of ours, or a branch of its id is in its way.
        GitError: git refuses an object, or a ref cannot be moved.
        OSError: a file cannot be read or written.

    """
    agent_id = str(agent_id_of(path.stem))
    git, repository = project.git, repository_of(project)
    own = _SessionRefs(agent_id, _branch_of(project, path, agent_id))
    try:
        header = read_header(path)
        own.check_names(header)
        is_known = _is_known(header, own.read(git), own)
        if is_known and not (to_delete and find_damage(git, [*header.refs.values()], [header.base])):
            return None
        objects = repository.common_dir / "objects"
        with scratch_directory(objects, _QUARANTINE) as quarantine:
            with shadow_repository(git, repository) as shadow:
                header = unpack(shadow, objects, path, quarantine)
                own.check_names(header)
            with (
                files.locked_directory(repository.common_dir, _TIMEOUT) as lock,
                migrated(quarantine, objects),
            ):
                return _RefMoves(git._replace(lock=lock), header, own, path).run()
    except ValueError as error:
        raise RefusedError(f"{path} is not taken in: {error}", _to_look(path)) from None
    except GitError as error:
        raise RefusedError(f"{path} is not taken in: {error.message}", _to_look(path)) from error


def _to_look(path: Path) -> str:
    return (
        f"an agent may have changed it; to see what it holds: git bundle list-heads {shlex.quote(str(path))}"
    )


class _SessionRefs(NamedTuple):
    """The refs of one session: no other ref comes in.

    Attributes:
        branch: full name of its branch.

    """

    agent_id: str
    branch: str

    @property
    def wip(self) -> str:
        """The branch of its saved work."""
        return f"refs/heads/ralph/{self.agent_id}-wip"

    @property
    def snapshots(self) -> str:
        """What the names of its snapshots begin with."""
        return f"refs/ralph/snapshots/{self.agent_id}/"

    @property
    def base(self) -> str:
        """The ref to what was last taken in."""
        return BASES + self.agent_id

    def read(self, git: Git) -> dict[str, str]:
        """Return those that exist, and the branches that the user has dropped."""
        dropped = f"refs/ralph/dropped/{self.agent_id}"
        return list_refs(git, self.branch, self.wip, dropped, f"{dropped}-wip", self.snapshots, self.base)

    def check_names(self, header: BundleHeader) -> None:
        """Raise ``ValueError`` if a bundle holds another ref."""
        for ref in header.refs:
            number = ref.removeprefix(self.snapshots)
            if ref not in {self.branch, self.wip} and not (ref != number and _SNAPSHOT.fullmatch(number)):
                raise ValueError(f"it holds {ref!r}, which is no ref of agent {self.agent_id}")


def _is_known(header: BundleHeader, current: Mapping[str, str], own: _SessionRefs) -> bool:
    tip = header.refs.get(own.branch, header.base)
    taken = {oid for ref, oid in current.items() if ref != own.base}  # it may be where an empty branch is
    return current.get(own.base) == tip and {*header.refs.values()} <= taken


class _RefMoves:
    """The changes of refs that take a bundle in; the objects are in the repository already.

    Arguments:
        git: git in the repository, with its lock.
        header: of the bundle.
        own: the refs that it may hold.
        path: of the bundle.

    """

    def __init__(self, git: Git, header: BundleHeader, own: _SessionRefs, path: Path) -> None:
        self._git = git
        self._header = header
        self._path = path
        self._current = own.read(git)
        self._branch, self._wip, self._snapshots, self._base = own.branch, own.wip, own.snapshots, own.base
        self._last = self._current.get(self._base)
        self._changes: dict[str, RefChange] = {}
        self._problem: RalphError | None = None

    def run(self) -> BundleImport:
        """Move the refs in one transaction.

        Raises:
            ConflictError: a branch of the agent id is in the way; no ref was changed.
            GitError: the same.

        """
        current, header = self._current, self._header
        if self._last is None:
            self._refuse_other_session()
        for ref, oid in sorted(header.refs.items()):
            if current.get(ref) == oid:
                continue
            if ref.startswith(self._snapshots):
                self._take_snapshot(ref, oid)
            elif ref in current:
                self._move(ref, current[ref], oid)
            elif not self._was_removed(ref, oid):
                self._change(ref, oid)
        wip = self._wip
        if wip in current and wip not in header.refs and current[wip] in header.refs.values():
            self._change(wip, None)  # its work went on in the clone, which keeps it as a snapshot
        self._change(self._base, header.refs.get(self._branch, header.base))
        changes = [change for change in self._changes.values() if change.before != change.after]
        if changes:
            change_refs(self._git, changes, f"ralph-wrap: taken in from {self._path.stem}", int(time.time()))
        return BundleImport(self._path.stem, tuple(change.ref for change in changes), self._problem)

    def _refuse_other_session(self) -> None:
        """Raise an error if a session that is no clone has refs of this agent id."""
        if self._branch in self._current:
            name = self._branch.removeprefix("refs/heads/")
            raise ConflictError(
                f"{self._path} is not taken in: there is another branch {name}",
                f"to free the name: {rename_command(name)}",
            )

    def _change(self, ref: str, after: str | None) -> None:
        self._changes[ref] = RefChange(ref, self._current.get(ref), after)

    def _was_removed(self, ref: str, oid: str) -> bool:
        """Return whether the branch was taken in before, and the user has dropped or renamed it since."""
        return ref == self._branch and oid == self._last and self._last != self._header.base

    def _take_snapshot(self, ref: str, oid: str) -> None:
        kind = ref.removeprefix(self._snapshots).partition("-")[0]
        if kind in {"commit", "submodule"}:
            self._keep(oid, kind=kind)
        else:
            if (before := self._current.get(ref)) is not None:
                self._keep(before, without=ref)  # the bundle may be of another session, or forged
            self._change(ref, oid)

    def _keep(self, oid: str, *, without: str = "", kind: str = "commit") -> None:
        """Give a commit a snapshot, unless it has one.

        Arguments:
            without: a ref that is about to move, so it does not count.
            kind: of the snapshot, as for :func:`ralph_wrap.worktree.save.commits.make_snapshots`.

        """
        after = {change.ref: change.after for change in self._changes.values()}
        refs = {
            ref: tip for ref, tip in {**self._current, **after}.items() if ref.startswith(self._snapshots)
        }
        if any(tip == oid for ref, tip in refs.items() if ref != without):
            return
        numbers = [ref.removeprefix(f"{self._snapshots}{kind}-") for ref in refs]
        number = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
        self._change(f"{self._snapshots}{kind}-{number}", oid)

    def _move(self, ref: str, before: str, oid: str) -> None:
        name = ref.removeprefix("refs/heads/")
        if holder := worktree_holding(self._git, ref):
            raise ConflictError(
                f"{self._path} is not taken in: {name} is checked out in {holder}",
                f"to free the branch: git -C {shlex.quote(str(holder))} switch --detach",
            )
        if is_ancestor(self._git, before, oid):
            self._change(ref, oid)
        elif ref != self._branch or before == self._last:
            self._keep(before)
            self._change(ref, oid)
        else:
            self._keep(oid)
            self._problem = ConflictError(
                f"{name} was moved here since, so the work of its clone is in a snapshot beside it",
                command("git", "log", f"{name}..{oid[:12]}"),
            )


def forget(project: Project, agent_id: str) -> None:
    """Delete the ref that keeps what a clone borrows, if the clone has left no branch."""
    refs = list_refs(project.git, BASES + agent_id)
    with contextlib.suppress(GitError):
        change_refs(
            project.git,
            [RefChange(ref, oid, None) for ref, oid in refs.items()],
            "ralph-wrap: the clone left nothing",
            int(time.time()),
        )
