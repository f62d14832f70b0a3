"""Find the clones in ignored directories that may go with their worktree: they hold no work of their own.

A tool that installs dependencies leaves clones in ``vendor/`` or ``node_modules/``. Such a clone goes like
any other ignored file if it can be cloned again: it is clean, and each commit that a file of its ``.git``
names is on a branch that a remote has. The remote is on another machine, or it is a repository outside the
worktree that has these commits, as its own branches and tags say.

In doubt it has work of its own. Then it keeps the worktree, and the reason names it. So do other repositories
in a worktree: a bare one, a linked worktree, a submodule, and one that git does not ignore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, decode, decode_lines, list_refs, pointer, run_git
from ralph_wrap.git.config_file import parse
from ralph_wrap.git.index import list_index
from ralph_wrap.git.object_reader import read_objects
from ralph_wrap.git.status import Status
from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.commits import named_commits, named_objects
from ralph_wrap.worktree.save.index import lift_flags, status_of
from ralph_wrap.worktree.save.trees import counted
from ralph_wrap.worktree.save.walk import DirectoryWalk

# What a clone has in its .git (gitrepository-layout(5)). Anything else may be work: an operation in progress,
# submodules, worktrees, files of git-lfs, refs in another format.
_KNOWN = re.compile(
    r"branches|COMMIT_EDITMSG|config|description|FETCH_HEAD|gc\.log|HEAD|hooks|index|info|logs|objects"
    r"|ORIG_HEAD|packed-refs|refs|shallow"
)
_FETCHED = ("FETCH_HEAD",)  # the remote has what this file names
_REMOTES = "refs/remotes/"
_ROW = "--format=%(objectname) %(objecttype) %(if)%(symref)%(then)%(else)plain%(end) %(refname)"
_FIRST_LINE = 4096  # bytes of a reflog: more than git writes before a message
_CLONED = "clone: from "  # the message of git clone in a reflog
_PLACES = ("{}/.git", "{}", "{}.git/.git", "{}.git")  # where git looks for the repository of a path


class NestedRepositories(NamedTuple):
    """The repositories in a worktree that git does not track.

    Attributes:
        clones: the paths of those that may go with it.
        others: the paths of the others, and what is known of the work in them.

    """

    clones: tuple[str, ...]
    others: dict[str, str | None]

    @property
    def problems(self) -> list[str]:
        """One line for each repository that cannot go."""
        return [
            f"nested repository {path} cannot be saved{f': {own}' if own else ''}"
            for path, own in self.others.items()
        ]


def sort_nested(
    worktree: LinkedWorktree, git: Git, index: Path, status: Status, walked: DirectoryWalk
) -> NestedRepositories:
    """Tell the clones that may go with a worktree from the other repositories in it.

    Arguments:
        worktree: the worktree, or a submodule.
        git: git at the repository.
        index: a path; copies of the clones' indexes are made next to it.
        status: what git says about the worktree.
        walked: its directories.

    """
    clones, others = list[str](), dict[str, str | None]()
    for path in sorted({*walked.repositories, *status.nested, *walked.bare_beside(status.ignored)}):
        own = None
        if path in walked.repositories and walked.is_below(path, status.ignored):
            own = own_work(worktree, git, index, path)
            if own is None:
                clones.append(path)
                continue
        others[path] = own
    return NestedRepositories(tuple(clones), others)


def still_clones(
    worktree: LinkedWorktree, git: Git, index: Path, directory: Path, clones: Collection[str]
) -> bool:
    """Return whether clones that may go with a worktree still hold no work of their own.

    Arguments:
        worktree: the worktree, or a submodule.
        git: git at the repository.
        index: a path; copies of the clones' indexes are made next to it.
        directory: the present directory of the worktree.
        clones: the result of :func:`sort_nested`.

    """
    return all(own_work(worktree, git, index, path, directory) is None for path in clones)


def own_work(
    worktree: LinkedWorktree, git: Git, index: Path, path: str, directory: Path | None = None
) -> str | None:
    """Return in words what a repository in a worktree has that no remote has; ``None``: nothing.

    Arguments:
        worktree: the worktree, or a submodule.
        git: git at the repository.
        index: a path; a copy of the repository's index is made next to it.
        path: of the repository, below the worktree.
        directory: the present directory of the worktree, if it was moved.

    """
    top = (directory or worktree.path) / path
    git_dir = top / ".git"
    tree = LinkedWorktree(
        path=top,
        registration=git_dir,
        common_dir=git_dir,
        branch="",
        base="",
        branch_created=False,
        config=worktree.config,
    )
    copy = index.with_name(f"{index.name}-{os.urandom(4).hex()}")
    try:
        if found := _unknown(git_dir) or _uncommitted(tree, tree.git(git), copy):
            return found
        return _unpushed(git_dir, tree.git(git), worktree.path, worktree.path / path)
    except (GitError, OSError, ValueError) as error:
        return f"git cannot read it: {error}"
    finally:
        copy.unlink(missing_ok=True)


def _unknown(git_dir: Path) -> str | None:
    """Return why a ``.git`` is not that of a plain clone."""
    if git_dir.is_symlink() or not git_dir.is_dir():
        return "its repository is elsewhere"
    for entry in sorted(git_dir.iterdir()):
        if not _KNOWN.fullmatch(entry.name):
            return f".git/{entry.name} is in its repository"
    for parent, directories, names in files.walk(git_dir):
        for name in (*directories, *names):
            if Path(parent, name).is_symlink():
                return "its repository has a symlink"
    return None


def _uncommitted(tree: LinkedWorktree, git: Git, copy: Path) -> str | None:
    scratch = git._replace(index_file=copy)
    if (tree.registration / "index").exists() and lift_flags(tree, scratch, list_index(git)):
        status = status_of(scratch)
    else:
        status = status_of(git)
    paths = len(status.changed) + len(status.untracked)
    return f"{_are(paths, 'path')} not committed" if paths else None


def _unpushed(git_dir: Path, git: Git, outside: Path, place: Path) -> str | None:
    """Return what only this repository has.

    Arguments:
        git_dir: its ``.git``.
        git: git in it.
        outside: where a remote must not be.
        place: the directory where the repository was cloned; a relative URL starts there.

    """
    problems: list[str] = []
    rows = [row.split(" ", 3) for row in decode_lines(run_git(git, "for-each-ref", _ROW).stdout)]
    tracked = {name: oid for oid, _, is_plain, name in rows if is_plain and name.startswith(_REMOTES)}
    pushed = _pushed(git, _remotes(git_dir, outside, place), tracked)
    if others := [name for _, kind, _, name in rows if kind not in {"commit", "tag"}]:
        return f"{others[0]} in it names no commit"
    named = named_commits(git, named_objects(git_dir, git, problems, without=_FETCHED), problems)
    if problems:
        return problems[0]
    if not named:
        return None
    stdin = "".join([*(f"{oid}\n" for oid in named), *(f"^{oid}\n" for oid in pushed)]).encode()
    commits = len(decode_lines(run_git(git, "rev-list", "--stdin", stdin=stdin).stdout))
    if commits:
        return f"{_are(commits, 'commit')} on no branch of a remote"
    return _own_tag(git_dir, git)


def _pushed(git: Git, remotes: Mapping[str, list[Path] | None], tracked: Mapping[str, str]) -> Iterator[str]:
    """Yield the commits of remote branches that the remotes have, as far as that can be asked here.

    Arguments:
        git: git in the clone.
        remotes: see :func:`_remotes`.
        tracked: refs of remote branches, and their commits.

    """
    branches: dict[str, set[str]] = {}
    for ref, oid in tracked.items():
        name = ref.removeprefix(_REMOTES)
        if owners := [remote for remote in remotes if name.startswith(f"{remote}/")]:
            branches.setdefault(max(owners, key=len), set()).add(oid)  # `origin/b` may be a remote, too
    for remote, oids in branches.items():
        repositories = remotes[remote]
        if repositories is not None:
            yield from oids.intersection(*(_held(git, repository, oids) for repository in repositories))


def _held(git: Git, repository: Path, oids: Collection[str]) -> set[str]:
    """Return the commits that are on a branch or a tag of another repository.

    Arguments:
        git: git in the clone.
        repository: the git directory of the other one.
        oids: commits.

    """
    other = git._replace(cwd=repository, git_dir=repository, common_dir=repository, work_tree=None, config=())
    present = [oid for oid, found in read_objects(other, sorted(oids)).items() if found.kind == "commit"]
    refs = list_refs(other, "refs/heads/", "refs/tags/").values()
    if not present or not refs:
        return set()
    stdin = "".join([*(f"{oid}\n" for oid in present), *(f"^{oid}\n" for oid in refs)]).encode()
    return {*present} - {*decode_lines(run_git(other, "rev-list", "--stdin", stdin=stdin).stdout)}


def _remotes(git_dir: Path, outside: Path, place: Path) -> dict[str, list[Path] | None]:
    """Return the remotes of a clone by name, each with its repositories that are on this machine.

    Returns:
        ``None`` for a remote with a URL that leads into the worktree, or to no repository.

    """
    places: dict[str, list[Path] | None] = {}
    for key, value in parse(files.read(git_dir / "config")):
        section, _, rest = key.partition(".")
        name, _, option = rest.rpartition(".")
        if section != "remote" or not name or option not in {"url", "pushurl"} or not value:
            continue
        found = places.setdefault(name, [])
        if found is None or _is_on_another_machine(value):
            continue
        repository = _repository(place / value.removeprefix("file://"), outside.resolve())
        places[name] = None if repository is None else [*found, repository]
    return places


def _is_on_another_machine(url: str) -> bool:
    """Return whether a URL has a protocol, or the host of scp's form (git-clone(1): GIT URLS)."""
    before, colon, _ = url.partition(":")
    return bool(colon) and "/" not in before and not url.startswith("file://")


def _repository(path: Path, outside: Path) -> Path | None:
    """Return the git directory that a local URL leads to.

    Returns:
        ``None`` if there is none, if it is shallow, or if objects of it are, or may be, in the worktree.

    """
    for form in _PLACES:
        place = Path(form.format(path))
        found = pointer.read(place.parent) if place.name == ".git" and place.is_file() else place.resolve()
        if (found / "commondir").exists():
            found = pointer.common_dir_of(found)
        if not (found / "HEAD").is_file() or not (found / "objects").is_dir():
            continue
        lacks = any((found / name).exists() for name in ("objects/info/alternates", "shallow"))
        parts = (found, *((found / name).resolve() for name in ("objects", "refs", "packed-refs")))
        return None if lacks or any(part.is_relative_to(outside) for part in parts) else found
    return None


def _own_tag(git_dir: Path, git: Git) -> str | None:
    """Return a tag with a message that is not older than the clone: nobody else may have it.

    If nothing says when it was cloned, that is each such tag: the first line of a reflog may have expired.
    """
    listed = run_git(git, "for-each-ref", "--format=%(taggerdate:unix) %(objecttype) %(refname)").stdout
    tags = [row.split(" ", 2) for row in decode_lines(listed)]
    tags = [row for row in tags if row[1] == "tag"]
    if not tags:
        return None
    try:
        first = decode(files.read_beginning(git_dir / "logs" / "HEAD", _FIRST_LINE)).partition("\n")[0]
        line, _, message = first.partition("\t")
        is_of_clone = not line.split(" ")[0].strip("0") and message.startswith(_CLONED)
        cloned = int(line.split(" ")[-2]) if is_of_clone else 0
    except (FileNotFoundError, IndexError, ValueError):
        cloned = 0
    for date, _, name in tags:
        if not date.isdecimal() or int(date) >= cloned:
            return f"{name} in it may be on no remote"
    return None


def _are(number: int, noun: str) -> str:
    return f"{counted(number, noun)} in it {'is' if number == 1 else 'are'}"
