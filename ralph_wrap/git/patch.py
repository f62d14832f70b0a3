"""The differences between two trees, file by file and line by line, and the commits between them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ralph_wrap.git.command import Git, decode, decode_lines, run_git

_DIFF = ("diff-tree", "-r", "-M", "-z", "--no-abbrev", "--no-color", "--no-ext-diff", "--no-textconv")
_PLAIN = ("--literal-pathspecs", "-c", "diff.suppressBlankEmpty=false")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)", re.DOTALL)


class FileChange(NamedTuple):
    """A file that differs between two trees.

    Attributes:
        status: ``A``, ``D``, ``M``, ``R`` or ``T`` (git-diff-tree(1), *Raw output format*).
        path: name of the file; after a rename, the new name.
        before: the name before a rename, else ``None``.
        modes: file modes before and after, in octal; ``000000`` where there is no file.
        objects: object ids before and after; all zeros where there is no file.
        added: number of added lines, ``None`` for a binary file.
        deleted: number of deleted lines, ``None`` for a binary file.

    """

    status: str
    path: str
    before: str | None
    modes: tuple[str, str]
    objects: tuple[str, str]
    added: int | None = None
    deleted: int | None = None

    @property
    def lines(self) -> int:
        """Number of lines that are added or deleted."""
        return (self.added or 0) + (self.deleted or 0)


class Hunk(NamedTuple):
    """Lines that differ, with lines of context around them.

    Attributes:
        old: number of the first line before.
        new: number of the first line after.
        section: the line that git prints as the heading of the hunk.
        lines: each begins with a space, ``+``, ``-``, or a backslash for a remark of git.

    """

    old: int
    new: int
    section: str
    lines: tuple[str, ...]


class LogEntry(NamedTuple):
    """A commit in the list of a page: object id, seconds since 1970, author's name, subject, parents."""

    id: str
    time: int
    author: str
    subject: str
    parents: tuple[str, ...]


def history(git: Git, tip: str, without: Sequence[str], limit: int, skip: int = 0) -> list[LogEntry]:
    """Return commits that *tip* contains and *without* do not, newest first.

    Arguments:
        tip: object id.
        without: object ids.
        limit: the maximum number of commits.
        skip: number of newer commits to leave out.

    Raises:
        GitError: a commit does not exist.

    """
    revisions = "\n".join([tip, *(f"^{oid}" for oid in without)]).encode()
    options = "--encoding=UTF-8", "--format=%ct%x00%an%x00%P%x00%s"
    answer = run_git(
        git, "rev-list", "--stdin", *options, f"--max-count={limit}", f"--skip={skip}", stdin=revisions
    )
    found = []
    rows = decode_lines(answer.stdout)  # two lines a commit: "commit ID", then the format
    for head, fields in zip(rows[::2], rows[1::2], strict=True):
        time, author, parents, subject = fields.split("\0", 3)
        found.append(
            LogEntry(head.removeprefix("commit "), int(time), author, subject, tuple(parents.split()))
        )
    return found


def message(git: Git, commit: str) -> str:
    """Return the whole message of a commit.

    Raises:
        GitError: the commit does not exist.

    """
    answer = run_git(git, "rev-list", "--max-count=1", "--encoding=UTF-8", "--format=%B", commit, "--")
    return decode(answer.stdout).partition("\n")[2].rstrip("\n")


def sizes(git: Git, objects: Collection[str]) -> dict[str, int]:
    """Return the sizes of objects in bytes; missing objects are left out."""
    stdin = "".join(f"{oid}\n" for oid in objects).encode()
    answer = run_git(git, "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=stdin)
    rows = (line.split(" ") for line in decode_lines(answer.stdout))
    return {oid: int(size) for oid, size in rows if size.isdigit()}


def changes(git: Git, old: str, new: str, paths: Sequence[str] = ()) -> list[FileChange]:
    """Return the files that differ between two trees or commits.

    Arguments:
        old: object id.
        new: object id.
        paths: only these paths, and all paths below them.

    Raises:
        GitError: a tree or commit does not exist.

    """
    output = run_git(git, *_DIFF, "--raw", "--numstat", old, new, "--", *paths, config=_PLAIN).stdout
    return list(_counted(iter(decode(output).split("\0"))))


def patches(
    git: Git, old: str, new: str, paths: Sequence[str], context: int = 3
) -> dict[str, tuple[Hunk, ...]]:
    """Return the hunks of some files, by their new names; a file without changed lines has no hunk.

    Arguments:
        old: object id of a tree or commit.
        new: object id of a tree or commit.
        paths: names of the files; of a renamed file, the old name too.
        context: number of lines around each change.

    Raises:
        GitError: a tree or commit does not exist.

    """
    if not paths:
        return {}
    output = run_git(
        git, *_DIFF, "--raw", "-p", "--submodule=short", f"-U{context}", old, new, "--", *paths, config=_PLAIN
    ).stdout
    head, _, patch = output.partition(b"\0\0")
    entries = list(_entries(iter(decode(head).split("\0"))))
    files = re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)[1:]
    found: dict[str, tuple[Hunk, ...]] = {}
    for entry in entries:
        count = 2 if entry.status == "T" else 1  # git deletes and adds a file whose type changes
        found[entry.path] = tuple(hunk for file in files[:count] for hunk in _hunks(file))
        del files[:count]
    return found


def _entry(field: str, fields: Iterator[str]) -> FileChange:
    """Return one file of ``--raw -z``; its names are the next fields."""
    old_mode, new_mode, old, new, status = field[1:].split(" ")
    path, before = next(fields), None
    if status[0] in "RC":
        path, before = next(fields), path
    return FileChange(status[0], path, before, (old_mode, new_mode), (old, new))


def _entries(fields: Iterator[str]) -> Iterator[FileChange]:
    """Yield the files of ``--raw -z``."""
    for field in fields:
        if field:
            yield _entry(field, fields)


def _counted(fields: Iterator[str]) -> Iterator[FileChange]:
    """Yield the files of ``--raw --numstat -z``: first come all the files, then all the numbers."""
    found: deque[FileChange] = deque()
    for field in fields:
        if field.startswith(":"):
            found.append(_entry(field, fields))
        elif field:
            added, deleted, path = field.split("\t", 2)
            if not path:  # a renamed file: both names follow
                next(fields)
                next(fields)
            yield found.popleft()._replace(
                added=None if added == "-" else int(added), deleted=None if deleted == "-" else int(deleted)
            )


def _hunks(file: bytes) -> Iterator[Hunk]:
    """Yield the hunks of one file's patch."""
    head: re.Match[str] | None = None
    body: list[str] = []
    for line in decode(file).removesuffix("\n").split("\n"):
        if match := _HUNK.match(line):
            if head:
                yield Hunk(int(head[1]), int(head[2]), head[3], tuple(body))
            head, body = match, []
        elif head:
            body.append(line)
    if head:
        yield Hunk(int(head[1]), int(head[2]), head[3], tuple(body))
