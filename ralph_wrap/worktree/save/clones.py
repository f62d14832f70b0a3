"""Find the clones in ignored directories that may go with their worktree: they hold no work of their own.

A tool that installs dependencies leaves clones in ``vendor/`` or ``node_modules/``. Such a clone goes like
any other ignored file if it can be cloned again: it and its submodules are clean, and a remote has each
commit that a file of its ``.git`` names.

- A remote outside the worktree, on this machine, has the commits that its own branches and tags say.
- One on another machine cannot be asked. It has the commits of the remote branches, and the one that was
  cloned from there: a tag has no remote branch.

A bare repository has no remote branches, so only a remote on this machine shows that it has nothing of its
own, unless it has no commit at all.

In doubt a repository has work of its own. Then it keeps the worktree, and the reason names it. So do a linked
worktree, a repository elsewhere, and one that git does not ignore.
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
from ralph_wrap.git.index import is_staged, list_index
from ralph_wrap.git.object_reader import read_objects
from ralph_wrap.git.status import Status
from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save import submodule_repositories
from ralph_wrap.worktree.save.commits import named_commits, named_objects
from ralph_wrap.worktree.save.index import holds_unseen_files, lift_flags, reading_anew, status_of
from ralph_wrap.worktree.save.trees import counted
from ralph_wrap.worktree.save.walk import DirectoryWalk

NESTED = "nested repository "
"""The beginning of a reason why a worktree stays."""

# What a clone has in its .git (gitrepository-layout(5)). Anything else may be work: an operation in progress,
# worktrees, refs in another format.
_KNOWN = re.compile(
    r"branches|COMMIT_EDITMSG|config|description|FETCH_HEAD|gc\.log|HEAD|hooks|index|info|lfs|logs|modules"
    r"|objects|ORIG_HEAD|packed-refs|refs|shallow"
)
_FETCHED = ("FETCH_HEAD",)  # the remote has what this file names
_REMOTES = "refs/remotes/"
_ROW = (
    "--format=%(objectname) %(objecttype) %(*objectname) %(if)%(symref)%(then)%(else)plain%(end) %(refname)"
)
_FIRST_LINE = 4096  # bytes of a reflog: more than git writes before a message
_CLONED = "clone: from "  # the message of git clone in a reflog
_LARGEST_LOG = 8 << 20  # bytes read of a reflog, to see whether anybody has committed
_NO_COMMIT = ("clone: ", "checkout: ", "pull: Fast-forward", "reset: ")  # messages in a reflog
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
            f"{NESTED}{path} cannot be saved{f': {own}' if own else ''}" for path, own in self.others.items()
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
    judged = set[str]()  # submodules, together with the clone above them
    for path in sorted({*walked.repositories, *status.nested, *walked.bare_beside(status.ignored)}):
        if path in judged:
            continue
        own = None
        if walked.is_below(path, status.ignored):
            own = own_work(worktree, git, index, path)
            judged |= _submodule_paths(worktree, git, path)
            if own is None:
                clones.append(path)
                continue
        others[path] = own
    return NestedRepositories(tuple(clones), others)


def _submodule_paths(worktree: LinkedWorktree, git: Git, path: str) -> set[str]:
    """Return the directories of the submodules of a clone, below the worktree."""
    try:
        found = submodule_repositories.find(
            _tree(worktree, path, worktree.path), git, worktree.path / path, []
        )
    except (GitError, OSError):
        return set()
    return {f"{path}/{submodule.path}" for submodule in found if submodule.path}


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
    tree = _tree(worktree, path, directory or worktree.path)
    problems = list[str]()
    try:
        if found := _own_work(tree, git, index, worktree.path, worktree.path / path):
            return found
        for submodule in submodule_repositories.find(tree, git, tree.path, problems):
            place = worktree.path / path / submodule.path
            if found := _own_work(submodule.tree, git, index, worktree.path, place):
                return f"submodule {submodule.path or submodule.name}: {found}"
    except (GitError, OSError, ValueError) as error:
        return f"git cannot read it: {error}"
    return next(iter(problems), None)


def _tree(worktree: LinkedWorktree, path: str, directory: Path) -> LinkedWorktree:
    """Return a repository in a worktree as a worktree; a bare one is its own repository.

    Arguments:
        path: of the repository, below the worktree.
        directory: the present directory of the worktree.

    """
    top = directory / path
    git_dir = top / ".git" if os.path.lexists(top / ".git") else top
    return LinkedWorktree(
        path=top,
        registration=git_dir,
        common_dir=git_dir,
        branch="",
        base="",
        branch_created=False,
        config=worktree.config,
    )


def _own_work(tree: LinkedWorktree, git: Git, index: Path, outside: Path, place: Path) -> str | None:
    """Return in words what one repository has that no remote has, without its submodules.

    Arguments:
        tree: the repository as a worktree.
        git: git at the project's repository.
        index: a path; a copy of the repository's index is made next to it.
        outside: where a remote must not be.
        place: the directory where the repository was cloned; a relative URL starts there.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.
        ValueError: its configuration cannot be read.

    """
    git_dir, own = tree.registration, tree.git(git)
    if found := _unknown(git_dir):
        return found
    if tree.path != git_dir:
        copy = index.with_name(f"{index.name}-{os.urandom(4).hex()}")
        try:
            if found := _uncommitted(tree, own, copy):
                return found
        finally:
            copy.unlink(missing_ok=True)
    elif (git_dir / "index").exists() and is_staged(own):  # for files elsewhere, or that are gone
        return "what is staged in it is not committed"
    made = _commits_in(own) if tree.path == git_dir else ()
    return _unpushed(git_dir, own, outside, place, made) or _own_large_files(git_dir)


def _commits_in(git: Git) -> list[str]:
    """Return every commit of a repository without files: it has no reflog that names a deleted branch's."""
    row = "--batch-check=%(objecttype) %(objectname)"
    listed = decode_lines(run_git(git, "cat-file", "--batch-all-objects", row).stdout)
    return [oid for kind, _, oid in (line.partition(" ") for line in listed) if kind == "commit"]


def _unknown(git_dir: Path) -> str | None:
    """Return why a repository is not that of a plain clone."""
    if git_dir.is_symlink() or not git_dir.is_dir():
        return "its repository is elsewhere"
    for entry in sorted(git_dir.iterdir()):
        if not _KNOWN.fullmatch(entry.name):
            where = ".git/" if git_dir.name == ".git" else ""
            return f"{where}{entry.name} is in its repository"
    for parent, directories, names in files.walk(git_dir):
        for name in (*directories, *names):
            if Path(parent, name).is_symlink():
                return "its repository has a symlink"
    return None


def _uncommitted(tree: LinkedWorktree, git: Git, copy: Path) -> str | None:
    scratch, is_lifted = git._replace(index_file=copy), False
    if (tree.registration / "index").exists():
        listing = list_index(git)
        for entry in listing.submodules():
            if holds_unseen_files(tree.path / entry.path):
                return f"git does not look at the files below the submodule's path {entry.path}"
        with reading_anew(scratch):
            is_lifted = lift_flags(tree, scratch, listing)
    status = status_of(scratch if is_lifted else git)
    paths = len(status.changed) + len(status.untracked)
    return f"{_are(paths, 'path')} not committed" if paths else None


def _unpushed(git_dir: Path, git: Git, outside: Path, place: Path, made: Collection[str]) -> str | None:
    """Return what only this repository has.

    Arguments:
        git_dir: its ``.git``.
        git: git in it.
        outside: where a remote must not be.
        place: the directory where the repository was cloned; a relative URL starts there.
        made: commits in it that perhaps nothing names.

    """
    problems: list[str] = []
    rows = [row.split(" ", 4) for row in decode_lines(run_git(git, "for-each-ref", _ROW).stdout)]
    tracked = {name: oid for oid, _, _, is_plain, name in rows if is_plain and name.startswith(_REMOTES)}
    if others := [name for _, kind, _, _, name in rows if kind not in {"commit", "tag"}]:
        return f"{others[0]} in it names no commit"
    named = named_commits(git, named_objects(git_dir, git, problems, without=_FETCHED), problems)
    if problems:
        return problems[0]
    if not (named := [*dict.fromkeys((*named, *made))]):
        return None
    remotes = _remotes(git_dir, outside, place)
    pushed = {*_pushed(git, remotes, tracked)}
    others_have = {*named, *(peeled for _, _, peeled, _, _ in rows if peeled)}
    for repositories in remotes.values():
        if repositories:
            pushed |= others_have.intersection(*(_held(git, each, others_have) for each in repositories))
        elif repositories is not None:
            pushed |= others_have & _cloned(git_dir)
    stdin = "".join([*(f"{oid}\n" for oid in named), *(f"^{oid}\n" for oid in pushed)]).encode()
    commits = len(decode_lines(run_git(git, "rev-list", "--stdin", stdin=stdin).stdout))
    if commits:
        return f"{_are(commits, 'commit')} on no branch of a remote"
    return _own_tag(git_dir, git, _tags_of(git, remotes))


def _cloned(git_dir: Path) -> set[str]:
    """Return the commit that was cloned from another machine; nothing if the reflog does not say that."""
    line, message = _first_line(git_dir)
    is_from_there = message.startswith(_CLONED) and _is_on_another_machine(message.removeprefix(_CLONED))
    return {*line[1:2]} if is_from_there and not line[0].strip("0") else set()


def _first_line(git_dir: Path) -> tuple[list[str], str]:
    """Return the first line of the reflog of HEAD: its words, and the message; empty ones without one."""
    try:
        first = decode(files.read_beginning(git_dir / "logs" / "HEAD", _FIRST_LINE)).partition("\n")[0]
    except FileNotFoundError:
        first = ""
    line, _, message = first.partition("\t")
    return line.split(" "), message


def _own_large_files(git_dir: Path) -> str | None:
    """Return whether objects of git-lfs may be on no server: a push without its hook does not send them.

    Those of a clone in which nobody has committed came from a server.
    """
    if not any(names for _, _, names in files.walk(git_dir / "lfs" / "objects")):
        return None
    try:
        lines = decode(files.read(git_dir / "logs" / "HEAD", _LARGEST_LOG)).splitlines()
    except FileNotFoundError:
        lines = [""]
    if all(line.partition("\t")[2].startswith(_NO_COMMIT) for line in lines):
        return None
    return "objects of git-lfs in it may be on no server"


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
    other = _at(git, repository)
    present = [oid for oid, found in read_objects(other, sorted(oids)).items() if found.kind == "commit"]
    refs = list_refs(other, "refs/heads/", "refs/tags/").values()
    if not present or not refs:
        return set()
    stdin = "".join([*(f"{oid}\n" for oid in present), *(f"^{oid}\n" for oid in refs)]).encode()
    return {*present} - {*decode_lines(run_git(other, "rev-list", "--stdin", stdin=stdin).stdout)}


def _at(git: Git, repository: Path) -> Git:
    return git._replace(cwd=repository, git_dir=repository, common_dir=repository, work_tree=None, config=())


def _tags_of(git: Git, remotes: Mapping[str, list[Path] | None]) -> frozenset[str]:
    """Return what the tags of the remotes on this machine name."""
    here = [repositories for repositories in remotes.values() if repositories]
    return frozenset(
        oid
        for repositories in here
        for oid in set[str].intersection(
            *({*list_refs(_at(git, each), "refs/tags/").values()} for each in repositories)
        )
    )


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


def _own_tag(git_dir: Path, git: Git, known: Collection[str]) -> str | None:
    """Return a tag with a message that is not older than the clone: nobody else may have it.

    If nothing says when it was cloned, that is each such tag: the first line of a reflog may have expired.

    Arguments:
        known: tags that a remote has.

    """
    row = "--format=%(taggerdate:unix) %(objecttype) %(objectname) %(refname)"
    tags = [line.split(" ", 3) for line in decode_lines(run_git(git, "for-each-ref", row).stdout)]
    tags = [tag for tag in tags if tag[1] == "tag" and tag[2] not in known]
    if not tags:
        return None
    line, message = _first_line(git_dir)
    is_of_clone = not line[0].strip("0") and message.startswith(_CLONED)
    cloned = int(line[-2]) if is_of_clone and line[-2:-1] and line[-2].isdecimal() else 0
    for date, _, _, name in tags:
        if not date.isdecimal() or int(date) >= cloned:
            return f"{name} in it may be on no remote"
    return None


def _are(number: int, noun: str) -> str:
    return f"{counted(number, noun)} in it {'is' if number == 1 else 'are'}"
