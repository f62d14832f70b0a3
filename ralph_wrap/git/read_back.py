"""Read back what was written: every new object of some commits and tags, content and hash.

A removal follows such a check. So it does not believe an exit status of git: versions of git differ in what
they say of a missing commit or an empty object file (``rev-list --objects`` and ``--verify-objects`` end with
0 for some). The walk from commits to trees and files is done here, over objects that
:mod:`ralph_wrap.git.object_reader` has hashed. A damaged object can so make no list shorter.

Only new objects are read. What is new, follows from commits that count as present:

- A commit is present if a chain of hashed commits leads to it from one of these.
- In the tree of a new commit, an entry is present if a parent of the commit has the same entry at the same
  path. The parent is present, or it is new and is checked itself.

If something on the side of the present commits cannot be read, it makes nothing present: more is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import DamageError
from ralph_wrap.git.command import Git, decode
from ralph_wrap.git.object_reader import Answer, ObjectReader, git_without_configuration, store_of
from ralph_wrap.git.objects import list_refs
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.promised import Promises
from ralph_wrap.git.raw_objects import RawCommit, TreeEntry, parse_commit, parse_tag, tree_entries
from ralph_wrap.system import files, text

_SHA1 = 40  # hexadecimal digits
_SHALLOW = 64 << 20  # bytes of the list of commits at which a shallow clone ends
_TOGETHER = 64  # files that are read together
_UNREADABLE = -1  # the time of a commit that cannot be read


def find_damage(git: Git, tips: Sequence[str], present: Sequence[str] = ()) -> str | None:
    """Read all new objects of some commits and tags, and return what is damaged or missing.

    In a partial clone, a missing object that its remote has promised is no damage.

    Arguments:
        git: git in the repository; its directory must exist.
        tips: object ids, or full names of refs.
        present: ids of commits and tags. They and all that they reach count as present; one that cannot be
            read does not.

    Returns:
        The first damage in words: the object, where it is used, and what git says; ``None`` if all is whole.

    Raises:
        GitError: git does not work here.
        InterruptedError: a signal came, and git has a token that counts them.
        OSError: there is no room for a temporary directory.

    """
    if not tips:
        return None
    try:
        uses = _resolved(git, tips)
        store = store_of(git)
        is_sha1 = len(uses[0].oid) == _SHA1
        with (
            git_without_configuration(git, store.objects, is_sha1=is_sha1) as apart,
            ObjectReader(apart) as reader,
        ):
            _Check(reader, Promises(apart), _commits_at_the_cut(store.shallow)).run(uses, present)
    except _DamageError as damage:
        return damage.words
    return None


def require_whole(git: Git, tips: Sequence[str], present: Sequence[str] = ()) -> None:
    """Read all new objects of some commits and tags; the arguments are those of :func:`find_damage`.

    Raises:
        DamageError: one is damaged or missing.
        GitError: git does not work here.

    """
    if damage := find_damage(git, tips, present):
        raise DamageError(damage)


def other_tips(git: Git, *refs: str) -> list[str]:
    """Return what all branches, tags and remote branches but *refs* hold: it counts as present."""
    listed = list_refs(git, "refs/heads/", "refs/tags/", "refs/remotes/")
    return sorted({oid for ref, oid in listed.items() if ref not in refs})


class _Use(NamedTuple):
    """An object and where it is used.

    Attributes:
        oid: its id.
        where: the place in words.
        user: the id of the object that names it; empty for a tip.

    """

    oid: str
    where: str
    user: str = ""


class _DamageError(Exception):
    """What is damaged, in words."""

    @property
    def words(self) -> str:
        return str(self.args[0])


def _resolved(git: Git, tips: Sequence[str]) -> list[_Use]:
    names = [tip for tip in tips if not is_oid(tip)]
    refs = list_refs(git, *names) if names else {}
    if lost := [name for name in names if name not in refs]:
        raise _DamageError(f"the ref {lost[0]} does not exist")
    return [_Use(refs[tip], f"the tip of {tip}") if tip in refs else _Use(tip, "") for tip in tips]


def _commits_at_the_cut(shallow: Path) -> set[str]:
    """Return the commits at which a shallow clone ends (gitrepository-layout(5): ``shallow``)."""
    try:
        return {*files.read(shallow, _SHALLOW).decode("ascii", "replace").split()}
    except FileNotFoundError:
        return set()


class _Check:
    """One check; its methods raise a :class:`_DamageError` for the first damage.

    Arguments:
        cut: commits whose parents the repository lacks.

    """

    def __init__(self, reader: ObjectReader, promises: Promises, cut: Collection[str]) -> None:
        self._reader = reader
        self._promises = promises
        self._cut = cut
        self._commits: dict[str, RawCommit] = {}  # all that were read
        self._trees: set[str] = set()  # the new ones that were read
        self._files: dict[str, _Use] = {}  # new ones that are still to be read
        self._seen: set[str] = set()  # ids of new files

    def run(self, tips: Sequence[_Use], present: Sequence[str]) -> None:
        commits = [use for tip in tips if (use := self._follow_tags(tip))]
        for oid in self._new_commits(commits, present):
            commit = self._commits[oid]
            bases = [self._commits[parent].tree for parent in commit.parents if parent in self._commits]
            top = _Use(commit.tree, f"the top directory of commit {oid}", oid)
            self._check_tree(top, f"commit {oid}", bases)
        self._check_files()

    def _accept(self, use: _Use, answer: Answer, *kinds: str) -> Answer | None:
        """Return an object that is whole; ``None`` if it is missing and promised."""
        if answer.is_missing and self._promises.include(use.oid, use.user):
            return None
        if answer.problem:
            raise _damage(use, kinds, answer.problem)
        if answer.kind not in kinds:
            raise _damage(use, kinds, f"is a {answer.kind}")
        return answer

    def _follow_tags(self, use: _Use) -> _Use | None:
        """Check annotated tags and a tree or file that they name; return a commit that is to be checked."""
        kinds: tuple[str, ...] = ("commit", "tag")
        while answer := self._accept(use, self._reader.read(use.oid), *kinds):
            if answer.kind == "commit":
                return use
            if answer.kind == "tree":
                self._check_tree(use, f"tag {use.user}", [])
            if answer.kind != "tag":
                return None
            try:
                named, kind = parse_tag(answer.content)
            except ValueError as error:
                raise _damage(use, ("tag",), f"is {error}") from None
            use, kinds = _Use(named, f"which tag {use.oid} names", use.oid), (kind,)
        return None

    def _new_commits(self, tips: Sequence[_Use], present: Sequence[str]) -> list[str]:
        """Return the commits that the present ones do not reach, and read them and their parents.

        As in git, the latest commit comes first, whether it is new or present. If clocks were wrong, a
        present commit may count as new, and is checked, too.
        """
        uses = {tip.oid: tip for tip in tips}
        known = {oid for name in present if (oid := self._present_commit(name))}
        found: dict[str, None] = {}
        waiting = {oid for oid in uses if oid not in known}  # new ones whose parents were not looked at
        order = [(-self._time_of(oid), oid) for oid in {*uses, *known}]
        heapq.heapify(order)
        while waiting:
            _, oid = heapq.heappop(order)
            waiting.discard(oid)
            if oid not in known:
                if not self._has_read(uses[oid]):
                    continue
                found[oid] = None
            commit = self._commits.get(oid)
            for parent in commit.parents if commit else ():
                is_first = parent not in uses and parent not in known
                if oid in known:
                    self._mark_known(parent, known, waiting, found)
                elif is_first:
                    uses[parent] = _Use(parent, f"a parent of commit {oid}", oid)
                    waiting.add(parent)
                if is_first:
                    heapq.heappush(order, (-self._time_of(parent), parent))
        return [*found]

    def _mark_known(self, oid: str, known: set[str], waiting: set[str], found: dict[str, None]) -> None:
        """Mark a commit as present, and all that it reaches and that were taken for new."""
        left = [oid]
        while left:
            if (oid := left.pop()) in known:
                continue
            known.add(oid)
            if oid in found:
                left += self._commits[oid].parents
            waiting.discard(oid)
            found.pop(oid, None)

    def _present_commit(self, oid: str) -> str | None:
        """Return a present commit, or the one that a present tag names; ``None`` if it cannot be read."""
        while (answer := self._reader.read(oid)).kind == "tag":
            try:
                oid = parse_tag(answer.content)[0]
            except ValueError:
                return None
        return oid if answer.kind == "commit" else None

    def _time_of(self, oid: str) -> int:
        """Return the time of a commit; one that cannot be read counts as the oldest, and so comes last.

        Until then a present commit may turn out to reach it.
        """
        if oid not in self._commits:
            answer = self._reader.read(oid)
            if answer.kind != "commit":
                return _UNREADABLE
            try:
                commit = parse_commit(answer.content)
            except ValueError:
                return _UNREADABLE
            self._commits[oid] = commit._replace(parents=()) if oid in self._cut else commit
        return self._commits[oid].time

    def _has_read(self, use: _Use) -> bool:
        """Return whether a new commit was read; if not, the remote has promised it."""
        if use.oid in self._commits:
            return True
        if self._accept(use, self._reader.read(use.oid), "commit") is None:
            return False
        if self._time_of(use.oid) == _UNREADABLE:
            raise _damage(use, ("commit",), "is malformed")
        return True

    def _check_tree(self, top: _Use, origin: str, bases: Sequence[str]) -> None:
        """Check a directory; what one of *bases* has at the same path is checked elsewhere or present."""
        left = [(top, b"", bases)]
        while left:
            use, path, bases = left.pop()
            if use.oid in self._trees or use.oid in bases:
                continue
            self._trees.add(use.oid)
            answer = self._accept(use, self._reader.read(use.oid), "tree")
            if answer is None:
                continue
            try:
                entries = tree_entries(answer.content, len(use.oid))
            except ValueError as error:
                raise _damage(use, ("tree",), f"is {error}") from None
            before = {entry for base in bases for entry in self._entries_before(base)}
            trees_before: dict[bytes, list[str]] = {}
            for entry in (TreeEntry(*fields) for fields in before - entries):
                if entry.kind == "tree":
                    trees_before.setdefault(entry.name, []).append(entry.oid)
            for entry in (TreeEntry(*fields) for fields in entries - before):
                below = path + entry.name
                found = _Use(entry.oid, f"{decode(below)} in {origin}", use.oid)
                if entry.kind == "tree":
                    left.append((found, below + b"/", trees_before.get(entry.name, ())))
                elif entry.kind == "blob":
                    self._add_file(found)

    def _entries_before(self, oid: str) -> set[tuple[bytes, bytes, bytes]]:
        """Return the entries of a tree of a parent; none if it cannot be read."""
        answer = self._reader.read(oid)
        try:
            return tree_entries(answer.content, len(oid)) if answer.kind == "tree" else set()
        except ValueError:
            return set()

    def _add_file(self, use: _Use) -> None:
        if use.oid not in self._seen:
            self._seen.add(use.oid)
            self._files[use.oid] = use
        if len(self._files) >= _TOGETHER:
            self._check_files()

    def _check_files(self) -> None:
        for oid, answer in self._reader.read_all([*self._files]):
            self._accept(self._files[oid], answer, "blob")
        self._files = {}


def _damage(use: _Use, kinds: Sequence[str], problem: str) -> _DamageError:
    name = kinds[0] if len(kinds) == 1 else "object"
    where = f" ({text.plain(use.where)})" if use.where else ""
    return _DamageError(f"{name} {use.oid}{where} {text.plain(problem)}")
