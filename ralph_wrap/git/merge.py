"""Commits brought together in a worktree that nobody works in, and files taken from one commit to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import DURABLE, Git, lines, run, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

GITLINK = "160000"
"""The mode of a submodule's commit."""

ABSENT = "000000"
"""The mode of what is not there."""

# What is only tried teaches git nothing (rerere), moves nothing else, and says what it was told to say.
_TRYING = (
    *("-c", "rerere.enabled=false"),
    *("-c", "merge.autoStash=false"),
    *("-c", "merge.stat=false"),
    *("-c", "commit.cleanup=whitespace"),
    *("-c", "submodule.recurse=false"),
    *DURABLE,
)
# As in status: configuration by which a changed file could pass for an unchanged one.
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


class Moved(NamedTuple):
    """A path that differs between two commits; renames are a path that goes and one that comes.

    Attributes:
        path: relative to the top level.
        old_mode: before, in octal; :data:`ABSENT` for what was not there.
        old: object id before.
        new_mode: afterwards.
        new: object id afterwards.

    """

    path: str
    old_mode: str
    old: str
    new_mode: str
    new: str

    @property
    def before(self) -> tuple[str, str] | None:
        """Mode and object id before, ``None`` for nothing."""
        return None if self.old_mode == ABSENT else (self.old_mode, self.old)

    @property
    def after(self) -> tuple[str, str] | None:
        """The same afterwards."""
        return None if self.new_mode == ABSENT else (self.new_mode, self.new)


def moved(git: Git, old: str, new: str) -> list[Moved]:
    """Return the paths that differ between two commits or trees.

    Raises:
        GitError: one of them is not there.

    """
    answer = run(git, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", old, new)
    fields = text(answer.stdout).split("\0")
    found = []
    for told, path in zip(fields[:-1:2], fields[1::2], strict=False):
        old_mode, new_mode, before, after, _ = told.removeprefix(":").split(" ")
        found.append(Moved(path, old_mode, before, new_mode, after))
    return found


def is_ancestor(git: Git, one: str, other: str) -> bool:
    """Tell whether a commit holds another one in its history, or is it.

    Raises:
        GitError: one of them is not there.

    """
    return run(git, "merge-base", "--is-ancestor", one, other, accept=(0, 1)).status == 0


def has_merges(git: Git, tip: str, without: str) -> bool:
    """Tell whether a commit that *tip* has and *without* lacks is a merge."""
    return bool(run(git, "rev-list", "--merges", "--max-count=1", tip, f"^{without}", "--").stdout)


def to_replay(git: Git, tip: str, onto: str) -> list[str]:
    """Return the commits that *tip* has and *onto* has no equal of, oldest first."""
    asked = ("--reverse", "--topo-order", "--right-only", "--cherry-pick", "--no-merges")
    return lines(run(git, "rev-list", *asked, f"{onto}...{tip}", "--").stdout)


def unmerged(git: Git) -> tuple[str, ...]:
    """Return the paths with conflicts."""
    listed = text(run(git, "ls-files", "--unmerged", "-z").stdout).split("\0")[:-1]
    return tuple(dict.fromkeys(entry.partition("\t")[2] for entry in listed))


def merge(git: Git, commit: str, message: str) -> tuple[str, ...]:
    """Merge a commit into HEAD by a merge commit.

    Arguments:
        git: in a clean checkout.
        commit: object id.
        message: of the merge commit.

    Returns:
        The paths with conflicts; nothing is committed then.

    Raises:
        GitError: it cannot be merged for another reason.

    """
    asked = ("merge", "--quiet", "--no-edit", "--no-ff", "-m", message, commit)
    return _conflicts(git, *asked)


def clashes(git: Git, commit: str) -> bool:
    """Tell whether a merge of a commit into HEAD, which is left uncommitted, has conflicts.

    Raises:
        GitError: it cannot be merged for another reason.

    """
    return bool(_conflicts(git, "merge", "--quiet", "--no-commit", "--no-ff", commit))


def squash(git: Git, commit: str, message: str) -> tuple[str, ...]:
    """Commit on HEAD, as one commit, what a merge with another commit would bring, if that is anything.

    Returns:
        The paths with conflicts; nothing is committed then.

    Raises:
        GitError: it cannot be merged for another reason.

    """
    if conflicts := _conflicts(git, "merge", "--quiet", "--ff", "--squash", commit):
        return conflicts
    if not is_staged(git):
        return ()
    said = message.encode("utf-8", "surrogateescape")
    run(git, "commit", "--quiet", "--file=-", config=_TRYING, stdin=said)
    return ()


def replay(git: Git, commits: Sequence[str]) -> tuple[str, ...]:
    """Commit on HEAD what some commits have changed, one after the other, each with its author.

    Arguments:
        git: in a clean checkout.
        commits: object ids, oldest first; none of them a merge.

    Returns:
        The paths with conflicts.

    Raises:
        GitError: one cannot be committed for another reason.

    """
    if not commits:
        return ()
    said = "".join(f"{commit}\n" for commit in commits).encode()
    # What is empty there stays empty; what becomes empty here is there already, and is left out.
    answer = run(
        git, "cherry-pick", "--allow-empty", "--stdin", config=_TRYING, stdin=said, accept=(0, 1, 128)
    )
    while answer.status != 0:
        if conflicts := unmerged(git):
            return conflicts
        if (
            is_staged(git)
            or not run(git, "rev-parse", "-q", "--verify", "CHERRY_PICK_HEAD", accept=(0, 1)).stdout
        ):
            raise GitError("cherry-pick", answer.status, text(answer.stderr))
        answer = run(git, "cherry-pick", "--skip", config=_TRYING, accept=(0, 1, 128))
    return ()


def bring(git: Git, commit: str) -> tuple[str, ...]:
    """Have index and files hold what a commit has changed, without committing it.

    Returns:
        The paths with conflicts.

    Raises:
        GitError: it cannot be done for another reason.

    """
    return _conflicts(git, "cherry-pick", "--no-commit", "--allow-empty", commit)


def _conflicts(git: Git, *asked: str) -> tuple[str, ...]:
    answer = run(git, *asked, config=_TRYING, accept=(0, 1, 2, 128))
    if answer.status == 0:
        return ()
    if conflicts := unmerged(git):
        return conflicts
    raise GitError(asked[0], answer.status, text(answer.stderr or answer.stdout))


def is_staged(git: Git, commit: str = "HEAD") -> bool:
    """Tell whether the index holds anything else than a commit."""
    return run(git, "diff-index", "--cached", "--quiet", commit, "--", accept=(0, 1)).status == 1


def start_over(git: Git, commit: str) -> None:
    """Have a worktree that nobody works in hold a commit, detached, and nothing else.

    Raises:
        GitError: that cannot be done.

    """
    run(git, "cherry-pick", "--quit", accept=(0, 1, 128, 129))
    # First of all on no branch: what ran here may have been on one, which reset would move.
    run(git, "update-ref", "--no-deref", "HEAD", commit)
    run(git, "reset", "--hard", "--quiet", config=_SUSPICIOUS + _TRYING)
    run(git, "clean", "-ffdxq")


def move_files(git: Git, old: str, new: str) -> None:
    """Take files and index from one commit to another; what differs from *old* where *new* does stops it.

    Arguments:
        git: in the checkout; with an index of its own, that one is taken along.
        old: what is checked out.
        new: what is to be.

    Raises:
        GitError: a file was changed or is in the way, and nothing has changed; or some files cannot be
            written, and others are.

    """
    # A file that was touched, or copied with its repository, is not changed: git looks into it.
    run(git, "update-index", "-q", "--refresh", config=_SUSPICIOUS, accept=(0, 1))
    run(git, "read-tree", "-m", "-u", old, new, config=_SUSPICIOUS)


def move_index(git: Git, old: str, new: str) -> None:
    """Do the same to the index alone.

    Raises:
        GitError: something else is staged where the two differ; nothing has changed.

    """
    run(git, "read-tree", "-i", "-m", old, new, config=_SUSPICIOUS)
    run(git, "update-index", "-q", "--refresh", config=_SUSPICIOUS, accept=(0, 1))


def read_into(git: Git, commit: str) -> None:
    """Have an index of its own hold a commit, whatever of it is checked out."""
    run(git, "read-tree", commit, config=("-c", "core.sparseCheckout=false"))


def store(git: Git, paths: Iterable[str]) -> None:
    """Have an index of its own hold what stands at some paths, in place of what is in the way there.

    Raises:
        GitError: one of them cannot be read.

    """
    names = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    asked = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
    run(git, *asked, config=(*_SUSPICIOUS, "-c", "core.safecrlf=false"), stdin=names)


def write_out(git: Git, paths: Iterable[str]) -> None:
    """Write files as the index has them, over whatever is there.

    Raises:
        GitError: one cannot be written.

    """
    names = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    run(git, "checkout-index", "--force", "--quiet", "-z", "--stdin", stdin=names)


def staged(git: Git) -> dict[str, tuple[str, str]]:
    """Return mode and object id of everything in the index that has no conflict."""
    found = {}
    for entry in text(run(git, "ls-files", "--stage", "-z").stdout).split("\0")[:-1]:
        told, _, path = entry.partition("\t")
        mode, oid, stage = told.split(" ")
        if stage == "0":
            found[path] = mode, oid
    return found


def left_out(git: Git) -> set[str]:
    """Return the paths that a sparse checkout leaves out."""
    listed = text(run(git, "ls-files", "-t", "-z").stdout).split("\0")[:-1]
    return {entry[2:] for entry in listed if entry.startswith("S ")}


def content(git: Git, oid: str) -> bytes:
    """Return what a blob holds.

    Raises:
        GitError: there is no such blob.

    """
    return run(git, "cat-file", "blob", oid).stdout


def operation(git_dir: Path) -> str | None:
    """Return what git is in the middle of in a checkout.

    Arguments:
        git_dir: of the checkout.

    """
    return next((name for file, name in _OPERATIONS.items() if (git_dir / file).exists()), None)
