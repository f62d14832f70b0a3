"""Refs, commits and trees."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import UsageError
from ralph_wrap.git import object_reader
from ralph_wrap.git.command import (
    DURABLE,
    Git,
    decode,
    decode_lines,
    run_git,
)

VOLATILE = ("-c", "core.fsync=none")
"""For refs that are not needed after a crash; git before 2.36 ignores it."""


def resolve_commit(git: Git, revision: str) -> str | None:
    """Return the id of the commit that a revision names, ``None`` if it names none."""
    # "-" begins an option. "^" excludes a commit, and rev-parse accepts it.
    if revision.startswith(("-", "^")):
        return None
    # All text after ":/" is a pattern, so no suffix can follow; it finds only commits (gitrevisions(7)).
    commit = revision if revision.startswith(":/") else f"{revision}^{{commit}}"
    answer = run_git(git, "rev-parse", "--quiet", "--verify", commit, accept=(0, 1, 128))
    return decode_lines(answer.stdout)[0] if answer.status == 0 else None


def knows_committer(git: Git) -> bool:
    """Return whether git has a name and an e-mail address for the committer."""
    return run_git(git, "var", "GIT_COMMITTER_IDENT", accept=(0, 128)).status == 0


def is_branch_name(git: Git, name: str) -> bool:
    """Return whether git accepts this as the name of a branch."""
    return (
        not name.startswith("-")
        and name not in {"HEAD", "@"}  # such refs could exist, but git reads both names as HEAD
        and run_git(git, "check-ref-format", f"refs/heads/{name}", accept=(0, 1)).status == 0
    )


def require_short_name(git: Git, name: str) -> None:
    """Check that a new branch does not get the full name of a ref, as in ``refs/heads/refs/heads/q``.

    Raises:
        UsageError: the name begins with ``refs/``, and there is no such branch.

    """
    if not name.startswith("refs/") or f"refs/heads/{name}" in list_refs(git, f"refs/heads/{name}"):
        return
    short = name.removeprefix("refs/heads/")
    raise UsageError(
        f"{name!r} is the full name of a ref, and a branch is named without refs/heads/",
        "name another branch" if short.startswith("refs/") else f"name the branch {short}",
    )


def list_refs(git: Git, *patterns: str) -> dict[str, str]:
    """Return name and object id of every ref that matches (``git for-each-ref``)."""
    answer = run_git(git, "for-each-ref", "--format=%(objectname) %(refname)", *patterns)
    return {name: oid for oid, _, name in (line.partition(" ") for line in decode_lines(answer.stdout))}


def has_ref(git: Git, ref: str) -> bool:
    """Return whether a ref exists, also one whose commit is damaged.

    Arguments:
        ref: its full name.

    """
    return ref in list_refs(git, ref)


def count_commits(git: Git, base: str, ref: str) -> int | None:
    """Count the commits of a ref since a commit.

    Returns:
        The number; ``None`` if the commit or the ref does not exist, or a commit between them is damaged.

    Arguments:
        base: may come from a file that an agent can write. It is never an argument alone: git could read it
            as an option, and ``--output`` overwrites any file.
        ref: full name of a ref, or an object id.

    """
    answer = run_git(git, "rev-list", "--count", ref, f"^{base}", "--", accept=(0, 128))
    return int(answer.stdout) if answer.status == 0 else None


class CommitSummary(NamedTuple):
    """A commit in a list: object id and subject."""

    id: str
    subject: str


def current_branch(git: Git) -> str | None:
    """Return the full name of the branch that is checked out, ``None`` for a detached HEAD."""
    return decode(run_git(git, "symbolic-ref", "--quiet", "HEAD", accept=(0, 1)).stdout).strip() or None


class Head(NamedTuple):
    """HEAD of a worktree.

    Attributes:
        commit: its object id; ``None`` if the branch has no commit yet.
        tree: the object id of the commit's tree; ``None`` also if it was not looked up.
        branch: the ref that HEAD finally names, usually ``refs/heads/<name>``; ``None`` for a detached HEAD.

    """

    commit: str | None
    tree: str | None
    branch: str | None


def read_head(git: Git) -> Head:
    """Return HEAD of a worktree."""
    arguments = ("HEAD^{commit}", "HEAD^{tree}", "--symbolic-full-name", "HEAD", "--")
    answer = run_git(git, "rev-parse", *arguments, accept=(0, 128))
    if answer.status != 0:
        return Head(None, None, current_branch(git))
    commit, tree, name, *_ = decode_lines(answer.stdout)
    if name == "HEAD":
        return Head(commit, tree, None)
    # If there is a branch with the name HEAD, git finds the name ambiguous, and prints none.
    return Head(commit, tree, name if name.startswith("refs/") else current_branch(git))


def symbolic_ref_target(git: Git, ref: str) -> str | None:
    """Return the target of a symbolic ref; ``None`` if the ref is not symbolic or does not exist."""
    answer = run_git(git, "symbolic-ref", "--quiet", ref, accept=(0, 1, 128))
    return decode_lines(answer.stdout)[0] if answer.status == 0 else None


def commits_without(git: Git, tips: Collection[str], *without: str) -> list[CommitSummary]:
    """Return the commits that *tips* contain and *without* do not, newest first.

    Arguments:
        tips: object ids.
        without: object ids.

    Raises:
        GitError: a commit does not exist.

    """
    if not tips:
        return []
    revisions = "\n".join([*tips, *(f"^{oid}" for oid in without)]).encode()
    return _listed(run_git(git, "rev-list", "--stdin", "--format=%s", stdin=revisions).stdout)


def commits_only_on(git: Git, branch: str, tip: str) -> list[CommitSummary]:
    """Return the commits of a branch that no other branch, tag, remote branch or ref of ours contains.

    Arguments:
        branch: its name, without ``refs/heads/``.
        tip: commit of the branch.

    """
    # The next intake of a clone moves its ref.
    ours = ("--exclude=refs/ralph/clones/*", "--glob=refs/ralph/*")
    others = (f"--exclude={branch}", "--branches", "--tags", "--remotes", *ours)
    return _listed(run_git(git, "rev-list", "--format=%s", tip, "--not", *others).stdout)


def _listed(output: bytes) -> list[CommitSummary]:
    rows = decode_lines(output)  # "commit ID", then the subject
    return [
        CommitSummary(head.removeprefix("commit "), subject)
        for head, subject in zip(rows[::2], rows[1::2], strict=True)
    ]


def branches_containing(git: Git, commit: str) -> list[str]:
    """Return the branches that certainly contain a commit, remote branches too."""
    arguments = ("--format=%(objectname) %(refname:short)", "refs/heads", "refs/remotes")
    # If a commit cannot be read, old versions of git list nothing. Those from 2.47 on list every branch above
    # it, whatever it contains.
    answer = run_git(git, "for-each-ref", "--contains", commit, *arguments, accept=(0, 128))
    listed = [line.partition(" ") for line in decode_lines(answer.stdout)]
    sure = {tip: _is_certain_ancestor(git, commit, tip) for tip in dict.fromkeys(tip for tip, _, _ in listed)}
    return [name for tip, _, name in listed if sure[tip]]


def _is_certain_ancestor(git: Git, commit: str, other: str) -> bool:
    return run_git(git, "merge-base", "--is-ancestor", commit, other, accept=(0, 1, 128)).status == 0


def create_ref(git: Git, ref: str, oid: str, reason: str) -> None:
    """Create a ref that must not exist; the target of a symbolic ref is not touched.

    Raises:
        GitError: the ref exists, or the name of another ref conflicts with it.

    """
    run_git(git, "update-ref", "--no-deref", "-m", reason, ref, oid, "0" * len(oid), config=DURABLE)


def create_refs(git: Git, refs: Mapping[str, str], reason: str) -> None:
    """Create refs that must not exist, in one transaction.

    Raises:
        GitError: no ref was created.

    """
    rows = "".join(f"create {ref}\0{oid}\0" for ref, oid in refs.items()).encode()
    if rows:
        run_git(git, "update-ref", "--no-deref", "-m", reason, "-z", "--stdin", stdin=rows, config=DURABLE)


def move_ref(git: Git, ref: str, before: str, oid: str, reason: str, *, no_deref: bool = False) -> None:
    """Move a ref to *oid*, if it still points to *before*.

    Arguments:
        ref: its full name.
        before: object id.
        oid: object id.
        reason: for the reflog.
        no_deref: if the ref is symbolic, change the ref and not its target. An agent can make one of our refs
            point to a branch of the user.

    Raises:
        GitError: the ref points to another commit.

    """
    options = ("--no-deref",) if no_deref else ()
    run_git(git, "update-ref", *options, "-m", reason, ref, oid, before, config=DURABLE)


def set_refs(git: Git, refs: Mapping[str, str | None], *, sync: bool = True) -> None:
    """Set refs in one transaction, whatever they are now; ``None`` deletes a ref.

    Arguments:
        sync: git waits for the disk, as it is configured.

    Raises:
        GitError: no ref was changed.

    """
    rows = [f"update {ref}\0{oid}\0\0" if oid else f"delete {ref}\0\0" for ref, oid in refs.items()]
    if rows:
        stdin = "".join(rows).encode("utf-8", "surrogateescape")
        run_git(git, "update-ref", "-z", "--stdin", config=() if sync else VOLATILE, stdin=stdin)


def delete_ref(git: Git, ref: str, oid: str) -> None:
    """Delete a ref, if it still points to *oid*; the target of a symbolic ref is not touched.

    Raises:
        GitError: the ref points to another commit.

    """
    run_git(git, "update-ref", "-d", "--no-deref", ref, oid)


def object_kinds(git: Git, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """Return object types at paths of a commit: ``tree``, ``blob``, ``commit``; missing paths are left out.

    Raises:
        GitError: the commit does not exist.

    """
    return {path: kind for path, (_, kind, _) in _entries_at(git, commit, paths).items()}


def _entries_at(git: Git, commit: str, paths: Sequence[str]) -> dict[str, list[str]]:
    """Return mode, type and object id at each of some paths (git-ls-tree(1))."""
    if not paths:
        return {}
    # Without -t, git lists "a/b" and not "a", if both are wanted. With -t it also lists parents of the paths.
    listing = run_git(git, "ls-tree", "-z", "-t", "--full-tree", commit, "--", *paths).stdout
    entries = (decode(entry).partition("\t") for entry in listing.split(b"\0") if entry)
    wanted = {*paths}
    return {path: facts.split(" ") for facts, _, path in entries if path in wanted}


def store_blob(git: Git, content: bytes) -> str:
    """Store a blob and return its id."""
    return decode_lines(run_git(git, "hash-object", "-w", "--stdin", stdin=content).stdout)[0]


def make_tree(git: Git, files: Mapping[str, str]) -> str:
    """Store a tree of blobs and return its id.

    Arguments:
        files: object id of each blob, by name.

    """
    rows = "".join(f"100644 blob {oid}\t{name}\0" for name, oid in sorted(files.items()))
    return decode_lines(run_git(git, "mktree", "-z", config=DURABLE, stdin=rows.encode()).stdout)[0]


def commit_tree(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """Store a commit and return its id."""
    arguments = [argument for parent in parents for argument in ("-p", parent)]
    answer = run_git(git, "commit-tree", tree, *arguments, config=DURABLE, stdin=message.encode())
    return decode_lines(answer.stdout)[0]


def tree_of(git: Git, commit: str) -> str:
    """Return the id of a commit's tree.

    Raises:
        GitError: the commit does not exist.

    """
    return decode_lines(run_git(git, "rev-parse", "--verify", f"{commit}^{{tree}}").stdout)[0]


def commit_and_parents(git: Git, revision: str) -> list[str]:
    """Return the ids of a commit and of its parents, in order; an empty list if the commit does not exist."""
    answer = run_git(git, "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}", accept=(0, 1, 128))
    if answer.status != 0:
        return []
    return decode_lines(run_git(git, "rev-parse", revision, f"{revision}^@").stdout)


class Commit(NamedTuple):
    """A commit: the object ids of its tree and parents, and the first line of its message."""

    tree: str
    parents: tuple[str, ...]
    subject: str


def read_commit(git: Git, oid: str) -> Commit:
    """Return a commit (git-commit-tree(1): commit objects).

    Raises:
        GitError: the commit does not exist.

    """
    header, _, message = decode(run_git(git, "cat-file", "commit", oid).stdout).partition("\n\n")
    fields = [line.partition(" ") for line in header.split("\n")]
    parents = tuple(value for key, _, value in fields if key == "parent")
    return Commit(fields[0][2], parents, message.partition("\n")[0])


def existing_commits(git: Git, oids: Iterable[str]) -> list[str]:
    """Return the object ids that name a commit or tag that exists and is whole.

    ``cat-file -e`` and ``--batch-check`` know a damaged one, too.
    """
    wanted = [*dict.fromkeys(oids)]
    found = object_reader.read_objects(git, wanted)
    return [oid for oid in wanted if found[oid].kind in {"commit", "tag"}]


def small_contents(git: Git, oids: Collection[str], largest: int) -> dict[str, bytes]:
    """Return the content of blobs of at most *largest* bytes; others and missing ones are left out."""
    listed = "".join(f"{oid}\n" for oid in oids).encode()
    sizes = run_git(git, "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=listed).stdout
    rows = (row.rpartition(" ") for row in decode_lines(sizes))
    found = {oid: int(size) for oid, _, size in rows if size.isdigit() and int(size) <= largest}
    wanted = "".join(f"{oid}\n" for oid in found).encode()
    rest = run_git(git, "cat-file", "--batch=", stdin=wanted).stdout  # an empty line, the content, a newline
    contents = {}
    for oid, size in found.items():
        contents[oid] = rest[1 : size + 1]
        rest = rest[size + 2 :]
    return contents


def write_pack(git: Git, objects: Path, wanted: Collection[str], without: Collection[str]) -> None:
    """Write all objects of some commits into another repository, as one pack.

    Arguments:
        git: the repository that has the commits.
        objects: object directory of the other repository, on the same file system.
        wanted: ids of commits and tags.
        without: ids of commits; the other repository has all their objects already.

    Raises:
        GitError: git cannot write the pack.

    """
    revisions = "".join([*(f"{oid}\n" for oid in wanted), *(f"^{oid}\n" for oid in without)]).encode()
    base = objects / "pack" / "pack"  # git appends the id of the pack
    run_git(git, "pack-objects", "--revs", "-q", "--delta-base-offset", base, config=DURABLE, stdin=revisions)
