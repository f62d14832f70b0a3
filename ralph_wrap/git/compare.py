"""Compare many commits at once: each function starts one or two git processes for any number of commits."""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import Git, decode, decode_lines, finish_git, run_git, start_git
from ralph_wrap.git.objects import count_commits
from ralph_wrap.git.oid import OID

MERGES = (2, 39)
"""The oldest version that merges many pairs of commits without a worktree (``merge-tree --stdin``)."""

MOST_COUNTS = 500
"""Maximum number of git processes with which one command counts the commits of sessions."""

_OID_LINE = re.compile(f"{OID}\n".encode())
_HEXADECIMAL = b"0123456789abcdef"
_QUICK = ("-c", "core.looseCompression=0")
_DIRECTORY, _NONE = "040000", "000000"
_EXACT = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")


class CommitInfo(NamedTuple):
    """Fields of a commit: the time of commit in seconds since 1970, the tree, the parents, the subject."""

    time: int
    tree: str
    parents: tuple[str, ...]
    subject: str


class CommitGraph(NamedTuple):
    """The commits that some tips contain and others do not.

    Attributes:
        parents: maps each such commit to its parents; a commit comes after its own parents.
        edge: maps the boundary commits to their time of commit. A boundary commit is a parent of such a
            commit that the other tips contain too.

    """

    parents: dict[str, tuple[str, ...]]
    edge: dict[str, int]


class DiffStat(NamedTuple):
    """The size of the difference between two commits.

    Attributes:
        files: number of files that differ; a renamed file counts once.
        insertions: number of added lines; binary files do not count.
        deletions: number of deleted lines; binary files do not count.

    """

    files: int
    insertions: int
    deletions: int


class MergeResult(NamedTuple):
    """The result of a trial merge: whether it has no conflict, and the merged tree."""

    clean: bool
    tree: str


def facts_of(git: Git, commits: Iterable[str]) -> dict[str, CommitInfo]:
    """Return the fields of commits; other objects and missing ones are left out.

    Arguments:
        commits: object ids.

    """
    wanted = _listed({*commits})
    if not wanted:
        return {}
    types = run_git(git, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=wanted).stdout
    found = [row[: -len(" commit")] for row in decode_lines(types) if row.endswith(" commit")]
    if not found:
        return {}
    options = (
        "log",
        "--no-walk=unsorted",
        "--stdin",
        "--no-show-signature",
        "-z",
        "--format=%H %ct %T %P%n%s",
    )
    answer = decode(run_git(git, *options, stdin=_listed(found)).stdout)
    rows = (row.partition("\n") for row in answer.split("\0") if row)
    return {
        oid: CommitInfo(int(time), tree, tuple(filter(None, parents)), subject)
        for (oid, time, tree, *parents), subject in ((row.split(" "), subject) for row, _, subject in rows)
    }


def history(git: Git, tips: Collection[str], without: Collection[str]) -> CommitGraph:
    """Return the commits that *tips* contain and *without* do not.

    Arguments:
        tips: object ids of commits.
        without: object ids of commits.

    """
    revisions = _listed([*tips, *(f"^{oid}" for oid in without)])
    options = ("--parents", "--timestamp", "--boundary", "--topo-order", "--reverse", "--stdin")
    parents: dict[str, tuple[str, ...]] = {}
    edge: dict[str, int] = {}
    for row in decode_lines(run_git(git, "rev-list", *options, stdin=revisions).stdout):
        time, oid, *commit_parents = row.split(" ")
        if oid.startswith("-"):
            edge[oid[1:]] = int(time)
        else:
            parents[oid] = tuple(commit_parents)
    return CommitGraph(parents, edge)


class CommitCounts:
    """Counts commits of branches for any number of records, which an agent can forge, in few git processes.

    Arguments:
        tips: object ids of all branches, by full name.

    """

    def __init__(self, git: Git, tips: Mapping[str, str]) -> None:
        self._git = git
        self._tips = tips
        self._counts: dict[tuple[str, str], int | None] = {}

    def since(self, base: str, ref: str) -> int | None:
        """Return the result of :func:`count_commits`; also ``None`` after :data:`MOST_COUNTS` processes."""
        tip = self._tips.get(ref)
        if tip is None or tip == base:
            return None if tip is None else 0
        if (base, tip) not in self._counts and len(self._counts) < MOST_COUNTS:
            self._counts[base, tip] = count_commits(self._git, base, ref)
        return self._counts.get((base, tip))


def common_ancestors(git: Git, commits: Collection[str]) -> list[str]:
    """Return the best common ancestors of all these commits (git-merge-base(1), ``--octopus``)."""
    answer = run_git(git, "merge-base", "--all", "--octopus", *commits, accept=(0, 1))
    return decode_lines(answer.stdout)


def merge_base(git: Git, commit: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, ``None`` if they have none (git-merge-base(1)).

    Raises:
        GitError: a commit of their history cannot be read.

    """
    found = _merge_bases(git, commit, other)
    return found[0] if found else None


def _merge_bases(git: Git, commit: str, other: str, *options: str) -> list[str]:
    found = decode_lines(run_git(git, "merge-base", *options, commit, other, accept=(0, 1)).stdout)
    if not found:
        # Up to 2.39 git finds none, too, where a commit between them is missing; this walk then fails.
        run_git(git, "rev-list", "--count", commit, other, "--")
    return found


def landing_base(objects: Git, target: str, tip: str) -> str | None:
    """Return the commit whose difference to a tip has all that a merge into the target changes.

    This is the merge base. Of several merge bases, one may have the same file as the tip, and yet the merge
    changes this file in the target. Then it is the target itself.

    Returns:
        An object id, ``None`` without a common history.

    Raises:
        GitError: a commit of their history cannot be read.

    """
    found = _merge_bases(objects, target, tip, "--all")
    return found[0] if len(found) == 1 else target if found else None


def empty_tree(git: Git) -> str:
    """Return the id of the empty tree."""
    return decode_lines(run_git(git, "hash-object", "-t", "tree", "--stdin", stdin=b"").stdout)[0]


def changes(git: Git, pairs: Sequence[tuple[str, str]]) -> list[DiffStat]:
    """Return the size of the difference of each pair of commits.

    Arguments:
        pairs: the later and the earlier commit.

    Raises:
        GitError: a commit cannot be read.

    """
    if not pairs:
        return []
    options = ("--stdin", "--always", "-r", "-z", "--numstat", "-M", "--no-ext-diff", "--no-textconv")
    answer = run_git(git, "diff-tree", *options, stdin=_listed(f"{new} {old}" for new, old in pairs))
    found = list(parse_numstat(decode(answer.stdout)))
    _require_one_each(found, pairs)
    return found


def _require_one_each(answers: Sequence[object], questions: Sequence[object]) -> None:
    """Check that ``git diff-tree --stdin`` has answered each question.

    Git says nothing of a commit that it cannot read. At an empty file git 2.47 and newer ends with 0.

    Raises:
        GitError: an answer is missing; nobody knows which one.

    """
    if len(answers) != len(questions):
        raise GitError("diff-tree", 0, "error: a commit cannot be read")


def parse_numstat(output: str) -> Iterator[DiffStat]:
    """Parse ``git diff-tree --stdin --always --numstat -z`` (git-diff-tree(1)): an id begins each change."""
    fields = iter(output.split("\0")[:-1])
    found: list[int] | None = None
    for field in fields:
        counts = field.split("\t", 2)
        if len(counts) == 1:
            if found is not None:
                yield DiffStat(*found)
            found = [0, 0, 0]
            continue
        assert found is not None
        added, removed = (0 if count == "-" else int(count) for count in counts[:2])
        if not counts[2]:  # a renamed file: the old and the new path follow
            next(fields)
            next(fields)
        found = [found[0] + 1, found[1] + added, found[2] + removed]
    if found is not None:
        yield DiffStat(*found)


def entries(
    git: Git,
    compared: Sequence[tuple[str, ...]],
    note: Callable[[int, str], None] | None = None,
    most: int | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the files that differ between commits: for each path, modes, object ids and a status letter.

    Arguments:
        compared: a commit, and the commits to compare it with. These are its parents, or any other commit.
            For a merge, only the files count that differ from all parents. A root commit stands alone. Always
            name the parents: the git process remembers the parents that an earlier line gave for a commit.
        note: gets the place in *compared* and the object id of each directory that differs, but not of the
            top one, nor in a merge.
        most: maximum number of bytes that git prints. The changes that come after them are left out.

    """
    if not compared:
        return
    options = ("--stdin", "--always", "-r", "-z", "-c", "--raw", "--root", *_EXACT)
    with start_git(git, "diff-tree", *options, stdin=_listed(map(" ".join, compared)), most=most) as running:
        answer = finish_git(running, "diff-tree", (0, -signal.SIGPIPE) if most else (0,))
    found: dict[str, str] | None = None
    number = -1
    fields = iter(decode(answer.stdout).split("\0")[:-1])
    for field in fields:
        if field.startswith(":"):
            assert found is not None
            path = next(fields, "")
            if note and _is_of_directory(field):
                for oid in _directories(field):
                    note(number, oid)
            else:
                found[path] = field
        else:
            if found is not None:
                yield found
            found = {}
            number += 1
            if field != compared[number][0]:  # git says nothing if it cannot read a commit
                raise GitError("diff-tree", 0, f"error: commit {compared[number][0]} cannot be read")
    if found is not None and answer.status == 0 and (most is None or len(answer.stdout) <= most):
        yield found


def _is_of_directory(entry: str) -> bool:
    return entry.startswith((f":{_DIRECTORY} ", f":{_NONE} {_DIRECTORY} "))


def _directories(entry: str) -> Iterator[str]:
    """Yield the ids of the directories in an entry that is none of a merge."""
    old_mode, new_mode, old, new, _ = entry.lstrip(":").split(" ")
    if old_mode == _DIRECTORY:
        yield old
    if new_mode == _DIRECTORY:
        yield new


def digests(git: Git, compared: Sequence[tuple[str, ...]]) -> list[bytes]:
    """Return a digest of each patch. Equal changes of equal lines have equal digests, at any line number.

    Unlike ``git patch-id`` it includes white space: a change may consist of white space alone. Binary files
    are equal only if they were equal before and are equal after.

    Arguments:
        compared: as in :func:`entries`; a merge never stands alone.

    Raises:
        GitError: a commit cannot be read.

    """
    if not compared:
        return []
    options = ("--stdin", "--always", "-r", "-p", "-U3", "--full-index", "--root", *_EXACT)
    answer = run_git(git, "diff-tree", *options, stdin=_listed(map(" ".join, compared)))
    found = list(parse_patches(answer.stdout))
    _require_one_each(found, compared)
    return found


def parse_patches(output: bytes) -> Iterator[bytes]:
    """Yield the digests of ``git diff-tree --stdin --always -p``, in which an object id begins each patch."""
    digest = None
    index = b""
    for line in io.BytesIO(output):
        if line[:1] in _HEXADECIMAL and _OID_LINE.fullmatch(line):
            if digest is not None:
                yield digest.digest()
            digest = hashlib.sha256()
        elif digest is not None and line.startswith(b"index "):
            index = line
        elif digest is not None:
            digest.update(b"@@\n" if line.startswith(b"@@ ") else line)
            if line.startswith(b"Binary files "):
                digest.update(index)
    if digest is not None:
        yield digest.digest()


def merges(objects: Git, pairs: Sequence[tuple[str, str]], scratch: Path) -> list[MergeResult]:
    """Merge each pair of commits, without a worktree, and without writing to the repository.

    Arguments:
        objects: git in a shadow git directory: a merge runs the drivers that the configuration names.
        pairs: the commits; object ids only, no names.
        scratch: an empty directory for the objects that the merges create.

    Raises:
        GitError: git is older than :data:`MERGES`, or a commit does not exist.

    """
    if not pairs:
        return []
    assert objects.objects is not None
    isolated = with_object_directory(objects, scratch, objects.objects)
    options = ("--write-tree", "--stdin", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
    answer = run_git(isolated, "merge-tree", *options, config=_QUICK, stdin=_listed(map(" ".join, pairs)))
    return list(parse_merges(decode(answer.stdout)))


def with_object_directory(git: Git, objects: Path, borrowed: Path) -> Git:
    """Return git that writes objects to a directory of its own, and reads those of a repository too."""
    env = {**git.env, "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(borrowed)}
    return git._replace(env=env, objects=objects)


def parse_merges(output: str) -> Iterator[MergeResult]:
    """Parse ``git merge-tree --stdin -z --name-only --no-messages`` (git-merge-tree(1), *OUTPUT*)."""
    fields = iter(output.split("\0")[:-1])
    for clean in fields:
        yield MergeResult(clean == "1", next(fields))
        for path in fields:
            if not path:
                break


def _quoted(path: Path) -> str:
    """Quote a path for GIT_ALTERNATE_OBJECT_DIRECTORIES (git(1)); the path may hold any characters."""
    escaped = os.fspath(path).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _listed(rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()
