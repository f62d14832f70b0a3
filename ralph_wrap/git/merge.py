"""Merge, squash and replay commits in a temporary worktree, and move files from one commit to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import DURABLE, Git, decode, decode_lines, run_git
from ralph_wrap.git.index import encode_paths

ABSENT = "000000"
"""The file mode where there is no file."""

# A trial merge must not record a resolution (rerere), update other refs, or change our commit message.
_TRYING = (
    *("-c", "rerere.enabled=false"),
    *("-c", "merge.autoStash=false"),
    *("-c", "merge.stat=false"),
    *("-c", "commit.cleanup=whitespace"),
    *("-c", "submodule.recurse=false"),
    *DURABLE,
)
# As in status.py: with this configuration git could take a changed file for an unchanged one.
_SUSPICIOUS = (
    *("-c", "core.trustctime=true"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.ignoreStat=false"),
    *("-c", "submodule.recurse=false"),
)
_OPERATIONS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}


class PathChange(NamedTuple):
    """A path that differs between two commits; a rename is one deleted path and one added path.

    Attributes:
        path: relative to the top level.
        old_mode: file mode before, in octal; :data:`ABSENT` if there was no file.
        old: object id before.
        new_mode: file mode afterwards, in octal; :data:`ABSENT` if there is no file.
        new: object id afterwards.

    """

    path: str
    old_mode: str
    old: str
    new_mode: str
    new: str

    @property
    def before(self) -> tuple[str, str] | None:
        """Mode and object id before, ``None`` if there was no file."""
        return None if self.old_mode == ABSENT else (self.old_mode, self.old)

    @property
    def after(self) -> tuple[str, str] | None:
        """Mode and object id afterwards, ``None`` if there is no file."""
        return None if self.new_mode == ABSENT else (self.new_mode, self.new)


def moved(git: Git, old: str, new: str) -> list[PathChange]:
    """Return the paths that differ between two commits or trees.

    Raises:
        GitError: a commit or tree does not exist.

    """
    answer = run_git(git, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", old, new)
    fields = decode(answer.stdout).split("\0")
    found = []
    for entry, path in zip(fields[:-1:2], fields[1::2], strict=False):
        old_mode, new_mode, before, after, _ = entry.removeprefix(":").split(" ")
        found.append(PathChange(path, old_mode, before, new_mode, after))
    return found


def is_ancestor(git: Git, commit: str, other: str) -> bool:
    """Return whether *commit* is an ancestor of *other*, or the same commit.

    Raises:
        GitError: a commit does not exist, or one between them cannot be read.

    """
    if run_git(git, "merge-base", "--is-ancestor", commit, other, accept=(0, 1)).status == 0:
        return True
    # Up to 2.39 git says so, too, where a commit between them is missing; this walk then fails.
    run_git(git, "rev-list", "--count", other, f"^{commit}", "--")
    return False


def has_merges(git: Git, tip: str, without: str) -> bool:
    """Return whether *tip* contains a merge commit that *without* does not contain."""
    return bool(run_git(git, "rev-list", "--merges", "--max-count=1", tip, f"^{without}", "--").stdout)


def to_replay(git: Git, tip: str, onto: str) -> list[str]:
    """Return the commits of *tip* whose change *onto* does not contain, oldest first."""
    options = ("--reverse", "--topo-order", "--right-only", "--cherry-pick", "--no-merges")
    return decode_lines(run_git(git, "rev-list", *options, f"{onto}...{tip}", "--").stdout)


def unmerged(git: Git) -> tuple[str, ...]:
    """Return the paths with conflicts."""
    listed = decode(run_git(git, "ls-files", "--unmerged", "-z").stdout).split("\0")[:-1]
    return tuple(dict.fromkeys(entry.partition("\t")[2] for entry in listed))


def merge(git: Git, commit: str, message: str) -> tuple[str, ...]:
    """Merge a commit into HEAD by a merge commit.

    Arguments:
        git: in a clean checkout.
        commit: object id.
        message: of the merge commit.

    Returns:
        The paths with conflicts. With conflicts, git commits nothing.

    Raises:
        GitError: the merge failed for another reason than a conflict.

    """
    arguments = ("merge", "--quiet", "--no-edit", "--no-ff", "-m", message, commit)
    return _conflicts(git, *arguments)


def has_conflicts(git: Git, commit: str) -> bool:
    """Merge a commit into HEAD without committing, and tell whether there are conflicts.

    Raises:
        GitError: the merge failed for another reason than a conflict.

    """
    return bool(_conflicts(git, "merge", "--quiet", "--no-commit", "--no-ff", commit))


def squash(git: Git, commit: str, message: str) -> tuple[str, ...]:
    """Commit the result of a merge as one ordinary commit on HEAD; without a change there is no commit.

    Returns:
        The paths with conflicts. With conflicts, git commits nothing.

    Raises:
        GitError: the merge failed for another reason than a conflict.

    """
    if conflicts := _conflicts(git, "merge", "--quiet", "--ff", "--squash", commit):
        return conflicts
    if not is_staged(git):
        return ()
    stdin = message.encode("utf-8", "surrogateescape")
    run_git(git, "commit", "--quiet", "--file=-", config=_TRYING, stdin=stdin)
    return ()


def replay(git: Git, commits: Sequence[str]) -> tuple[str, ...]:
    """Cherry-pick commits onto HEAD, one after the other; each keeps its author.

    Arguments:
        git: in a clean checkout.
        commits: object ids, oldest first; no merge commits.

    Returns:
        The paths with conflicts.

    Raises:
        GitError: a commit failed for another reason than a conflict.

    """
    if not commits:
        return ()
    stdin = "".join(f"{commit}\n" for commit in commits).encode()
    # Keep a commit that was empty from the start. Skip a commit whose change HEAD already contains.
    answer = run_git(
        git, "cherry-pick", "--allow-empty", "--stdin", config=_TRYING, stdin=stdin, accept=(0, 1, 128)
    )
    while answer.status != 0:
        if conflicts := unmerged(git):
            return conflicts
        if (
            is_staged(git)
            or not run_git(git, "rev-parse", "-q", "--verify", "CHERRY_PICK_HEAD", accept=(0, 1)).stdout
        ):
            raise GitError("cherry-pick", answer.status, decode(answer.stderr))
        answer = run_git(git, "cherry-pick", "--skip", config=_TRYING, accept=(0, 1, 128))
    return ()


def cannot_sign(git: Git) -> bool:
    """Return whether git must sign each commit (``commit.gpgSign``), and fails where it does."""
    asked = run_git(git, "config", "--type=bool", "--get", "commit.gpgSign", accept=range(256))
    if decode_lines(asked.stdout) != ["true"]:
        return False
    making = ("commit-tree", "-m", "test")
    plain = run_git(git, *making, "HEAD^{tree}", accept=range(256))
    return plain.status == 0 and run_git(git, *making, "-S", "HEAD^{tree}", accept=range(256)).status != 0


def bring(git: Git, commit: str) -> tuple[str, ...]:
    """Apply the change of a commit to index and files, without committing it.

    Returns:
        The paths with conflicts.

    Raises:
        GitError: git failed for another reason than a conflict.

    """
    return _conflicts(git, "cherry-pick", "--no-commit", "--allow-empty", commit)


def _conflicts(git: Git, *arguments: str) -> tuple[str, ...]:
    answer = run_git(git, *arguments, config=_TRYING, accept=(0, 1, 2, 128))
    if answer.status == 0:
        return ()
    if conflicts := unmerged(git):
        return conflicts
    raise GitError(arguments[0], answer.status, decode(answer.stderr or answer.stdout))


def is_staged(git: Git, commit: str = "HEAD") -> bool:
    """Return whether the index differs from a commit."""
    return run_git(git, "diff-index", "--cached", "--quiet", commit, "--", accept=(0, 1)).status == 1


def reset_to(git: Git, commit: str) -> None:
    """Reset a temporary worktree to a commit, with a detached HEAD and no other files.

    Raises:
        GitError: git cannot reset the worktree.

    """
    run_git(git, "cherry-pick", "--quit", accept=(0, 1, 128, 129))
    # Detach HEAD first: a check may have checked out a branch here, and reset would move that branch.
    run_git(git, "update-ref", "--no-deref", "HEAD", commit)
    run_git(git, "reset", "--hard", "--quiet", config=_SUSPICIOUS + _TRYING)
    run_git(git, "clean", "-ffdxq")


def move_files(git: Git, old: str, new: str) -> None:
    """Move files and index from commit *old* to commit *new* (git-read-tree(1), two-tree merge).

    Arguments:
        git: in the checkout; if it names another index file, that index moves too.
        old: the commit that is checked out.
        new: the commit to check out.

    Raises:
        GitError: a path that differs between the two commits has a local change, or a file is in the way;
            nothing has changed then. Or git wrote some files and failed to write others.

    """
    # A new timestamp is no change (touch, a copied repository): with --refresh git compares the content.
    run_git(git, "update-index", "-q", "--refresh", config=_SUSPICIOUS, accept=(0, 1))
    run_git(git, "read-tree", "-m", "-u", old, new, config=_SUSPICIOUS)


def move_index(git: Git, old: str, new: str) -> None:
    """Move the index alone from commit *old* to commit *new*.

    Raises:
        GitError: the index has another change at a path where the two commits differ; nothing has changed.

    """
    run_git(git, "read-tree", "-i", "-m", old, new, config=_SUSPICIOUS)
    run_git(git, "update-index", "-q", "--refresh", config=_SUSPICIOUS, accept=(0, 1))


def read_into(git: Git, commit: str) -> None:
    """Read a commit into a separate index file; the files of the checkout do not matter."""
    run_git(git, "read-tree", commit, config=("-c", "core.sparseCheckout=false"))


def store(git: Git, paths: Iterable[str]) -> None:
    """Put the files at some paths into a separate index file; they replace entries in their way.

    Raises:
        GitError: git cannot read a file.

    """
    arguments = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
    run_git(git, *arguments, config=(*_SUSPICIOUS, "-c", "core.safecrlf=false"), stdin=encode_paths(paths))


def write_out(git: Git, paths: Iterable[str]) -> None:
    """Write files from the index to the disk; existing files are overwritten.

    Raises:
        GitError: git cannot write a file.

    """
    run_git(git, "checkout-index", "--force", "--quiet", "-z", "--stdin", stdin=encode_paths(paths))


def staged(git: Git) -> dict[str, tuple[str, str]]:
    """Return mode and object id of each path in the index that has no conflict."""
    found = {}
    for entry in decode(run_git(git, "ls-files", "--stage", "-z").stdout).split("\0")[:-1]:
        fields, _, path = entry.partition("\t")
        mode, oid, stage = fields.split(" ")
        if stage == "0":
            found[path] = mode, oid
    return found


def left_out(git: Git) -> set[str]:
    """Return the paths that the sparse checkout excludes."""
    listed = decode(run_git(git, "ls-files", "-t", "-z").stdout).split("\0")[:-1]
    return {entry[2:] for entry in listed if entry.startswith("S ")}


def content(git: Git, oid: str) -> bytes:
    """Return the content of a blob.

    Raises:
        GitError: the blob does not exist.

    """
    return run_git(git, "cat-file", "blob", oid).stdout


def operation(git_dir: Path) -> str | None:
    """Return the git operation that is in progress in a checkout, ``None`` if there is none.

    Arguments:
        git_dir: the git directory of the checkout.

    """
    return next((name for file, name in _OPERATIONS.items() if (git_dir / file).exists()), None)
