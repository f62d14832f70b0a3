"""Keep the work in the submodules of a worktree as one commit in the repository of the project.

A remote has the refs of one repository, and the work in a submodule is in another one. So a session on a
remote copies this work, with its history, into the repository of the project. One commit there has all of it:
the *submodule snapshot*. Its parents are commits of the submodules. Its message is a JSON object with
repository, path and commits of each submodule. It has of each submodule

- its uncommitted work, as a commit like that of saved work;
- otherwise its HEAD, if that is not the commit in the index above it;
- each commit that its HEAD, branches, stashes or reflogs name, and that no remote branch of it contains.

The commit from which the session began gets a ref, too, when its history is copied. A remote shows this ref,
so other sessions with that commit push only what is newer.

Commits that only a tag names do not count: a clone has the tags of its origin. The commit from which the
session began does not count either. A submodule that is not there any more stays as the last snapshot had it.
The snapshot of an earlier session gets another ref before it is replaced: no other ref may have its commits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.git import (
    commit_tree,
    create_ref,
    delete_ref,
    existing_commits,
    list_refs,
    move_ref,
    read_commit,
    read_head,
    run_git,
)
from ralph_wrap.git.command import decode, decode_lines
from ralph_wrap.git.index import GITLINK
from ralph_wrap.git.safe.batch import read_objects
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.worktree.save.clones import sort_nested
from ralph_wrap.worktree.save.commits import make_snapshots, named_objects
from ralph_wrap.worktree.save.copy_commits import RepositoryTips, held, outermost, transferred
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.save.inspect import look
from ralph_wrap.worktree.save.submodule_repositories import find
from ralph_wrap.worktree.save.trees import WORK_TITLE, write_trees

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.submodule_repositories import SubmoduleRepository

_TITLE = "ralph: submodules of session "
_LARGEST = 256 << 20  # bytes of a history that the remote may lack; a push has to end within a few beats
_FORMAT = DocumentFormat(version=1)
_ROWS = "submodules"
_MOST = 1000  # submodules in a snapshot: another program can write one
_REASON = "ralph-wrap: submodules"
_REFS = ("refs", "packed-refs")  # names of a repository's files
_OF_OTHERS = ("refs/remotes/", "refs/tags/")


class SubmoduleWork(NamedTuple):
    """The work in one submodule.

    Attributes:
        name: path of its repository in the registration, as ``modules/a/modules/b``.
        path: path of its files, below the top of the worktree; empty if it has no files.
        at: the commit to check out in it, or its uncommitted work; empty if the commit above names it.
        others: its other commits.

    """

    name: str
    path: str
    at: str
    others: tuple[str, ...]

    @property
    def commits(self) -> list[str]:
        """All its commits."""
        return [*filter(None, [self.at]), *self.others]


def ref_of(agent_id: str) -> str:
    """Return the ref of the submodule snapshot of a session, here and on a remote."""
    return f"refs/ralph/snapshots/{agent_id}/submodules"


def snapshot_submodules(
    worktree: LinkedWorktree, git: Git, store: Git, *, agent_id: str, session: str, largest: int = _LARGEST
) -> tuple[str, ...]:
    """Make the submodule snapshot of a session, or move it on; without any work, delete it.

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository that has its registration.
        store: git at the repository of the project.
        agent_id: names the ref.
        session: named in the messages.
        largest: size of the repository of a submodule, in bytes, whose history is copied as a whole.

    Returns:
        One line for each part of the work that could not be kept.

    Raises:
        GitError: git failed.
        OSError: a directory cannot be read.

    """
    problems: list[str] = []
    ref = ref_of(agent_id)
    before = list_refs(store, ref).get(ref)
    earlier = {work.name: work for work in read_snapshot(store, before)} if before else {}
    works = dict(earlier)
    origins = _Origins(worktree, git)
    with contextlib.ExitStack() as until_named, scratch_in(worktree.registration) as directory:
        for number, submodule in enumerate(find(worktree, git, worktree.path, problems)):
            own: list[str] = []
            copier = _SubmoduleCopier(
                submodule, git, store, session, earlier.get(submodule.name), until_named
            )
            try:
                origin = origins.of(submodule)
                work = copier.look(directory / str(number), origin, own)
                if copier.copy(work, largest):
                    make_snapshots(store, agent_id, existing_commits(store, filter(None, [origin])))
                works.pop(submodule.name, None)
                if work.commits:
                    works[submodule.name] = work
            except (RalphError, OSError) as error:
                own.append(str(error))
            problems += [f"submodule {submodule.path or submodule.name}: {problem}" for problem in own]
        present = [works[name] for name in sorted(works)]
        if before and present != [earlier[name] for name in sorted(earlier)]:
            _keep_of_another_session(store, agent_id, session, before)
        _write(store, ref, before, present, session)
    return tuple(problems)


def read_snapshot(git: Git, oid: str) -> list[SubmoduleWork]:
    """Return what a submodule snapshot has; empty if the commit is none.

    Each user of a remote can write one, so its names and paths can be anything. Its commits exist.

    Arguments:
        git: git at the repository.
        oid: its commit.

    """
    kind, content = read_objects(git, [oid]).get(oid, (b"", b""))
    header, _, message = content.partition(b"\n\n")
    title, _, body = message.partition(b"\n\n")
    if kind != b"commit" or not title.startswith(_TITLE.encode()):
        return []
    parents = {line.removeprefix("parent ") for line in decode(header).splitlines() if line[:7] == "parent "}
    try:
        works = _FORMAT.decode(body, lambda fields: [_checked(*row) for row in fields[_ROWS][:_MOST]])
    except ValueError:
        return []
    return [work for work in works if parents.issuperset(work.commits)]


def _checked(name: Any, path: Any, at: Any, others: Any) -> SubmoduleWork:
    if not all(isinstance(text, str) and "\0" not in text for text in (name, path, at, *others)):
        raise TypeError("a part that is no text")
    return SubmoduleWork(name, path, at, tuple(others))


def _keep_of_another_session(store: Git, agent_id: str, session: str, snapshot: str) -> None:
    """Keep the snapshot of an earlier session: only some of its work is in the worktree of the next one."""
    if read_commit(store, snapshot).subject != f"{_TITLE}{session}":
        kept = list_refs(store, f"refs/ralph/snapshots/{agent_id}/commit-*").values()
        make_snapshots(store, agent_id, [] if snapshot in kept else [snapshot])


def _write(store: Git, ref: str, before: str | None, works: Sequence[SubmoduleWork], session: str) -> None:
    if not works:
        if before:
            delete_ref(store, ref, before)
        return
    if before and read_snapshot(store, before) == works:
        return
    tree = decode_lines(run_git(store, "mktree", stdin=b"").stdout)[0]
    parents = [*dict.fromkeys(commit for work in works for commit in work.commits)]
    body = decode(_FORMAT.encode({_ROWS: works}))
    commit = commit_tree(store, tree, parents, f"{_TITLE}{session}\n\n{body}")
    if before:
        move_ref(store, ref, before, commit, _REASON, no_deref=True)
    else:
        create_ref(store, ref, commit, _REASON)


class _Origins:
    """The commits of the submodules from which a session began.

    Arguments:
        worktree: the worktree of the session.
        git: git at its repository.

    """

    def __init__(self, worktree: LinkedWorktree, git: Git) -> None:
        self._git = git
        self._found: dict[str, tuple[Git, str]] = {"": (worktree.git(git), worktree.base)}

    def of(self, submodule: SubmoduleRepository) -> str:
        """Return the commit of a submodule; empty if it had none. A submodule above it comes first."""
        above = max(
            (path for path in self._found if f"{submodule.path}/".startswith(f"{path}/" if path else "")),
            key=len,
        )
        git, commit = self._found[above]
        path = submodule.path.removeprefix(f"{above}/") if above else submodule.path
        if not path or not commit:
            return ""
        listed = decode(
            run_git(git, "ls-tree", "-z", "--full-tree", commit, "--", path, accept=(0, 128)).stdout
        )
        kind, _, rest = listed.partition(" commit ")
        found = rest.partition("\t")[0] if kind == GITLINK else ""
        self._found[submodule.path] = (submodule.tree.git(self._git), found)
        return found


class _SubmoduleCopier:
    """Looks into one submodule, and copies its work.

    Arguments:
        submodule: its repository, and its files.
        git: git at the repository of the worktree.
        store: git at the repository of the project.
        session: named in the message of a commit.
        earlier: what the last snapshot had of the submodule; ``None`` if it had nothing.
        until_named: closed when the copied commits have a ref.

    """

    def __init__(
        self,
        submodule: SubmoduleRepository,
        git: Git,
        store: Git,
        session: str,
        earlier: SubmoduleWork | None,
        until_named: contextlib.ExitStack,
    ) -> None:
        self._submodule = submodule
        self._git = submodule.tree.git(git)
        self._store = store
        self._session = session
        self._earlier = earlier
        self._until_named = until_named

    def look(self, index: Path, origin: str, problems: list[str]) -> SubmoduleWork:
        """Return the work in the submodule.

        Arguments:
            index: a free path for a copy of its index.
            origin: the commit from which the session began; empty if it had none.
            problems: gets a line for each part that cannot be kept.

        """
        name, path = self._submodule.name, self._submodule.path
        at = self._checked_out(index, problems) if path else ""
        known = {*list_refs(self._git, "refs/remotes/").values()}
        if origin and self._earlier is None:  # else an earlier session has made that commit
            known.add(origin)
        known = {*existing_commits(self._git, known)}
        named = {*named_objects(self._submodule.tree.registration, self._git, problems, without=_REFS)}
        named |= {oid for ref, oid in list_refs(self._git).items() if not ref.startswith(_OF_OTHERS)}
        commits = outermost(self._git, existing_commits(self._git, named), known | {*filter(None, [at])})
        work = SubmoduleWork(name, path, at, tuple(sorted(commits)))
        problems += [f"the tag {tag}" for tag in self._tags(work.commits, known)]
        if work.commits and self._has_large_files():
            problems.append("large files of git-lfs, of which a commit has only the names")
        return work

    def _has_large_files(self) -> bool:
        """Return whether git-lfs has stored a file that the main checkout's own repository lacks."""
        assert self._store.git_dir is not None
        repository, own = self._submodule.tree.registration, self._store.git_dir / self._submodule.name
        large = files.files_below(repository / "lfs" / "objects")
        return any(not (own / path.relative_to(repository)).is_file() for path in large)

    def _checked_out(self, index: Path, problems: list[str]) -> str:
        """Return its HEAD, or a commit of its uncommitted work; empty if the index above has its HEAD."""
        tree, git = self._submodule.tree, self._git
        scratch = git._replace(index_file=index)
        head = read_head(git)
        status, walked = look(tree, git, scratch, problems, self._submodule.nested)
        problems += [
            f"nested repository {path}" for path in sort_nested(tree, git, index, status, walked).others
        ]
        if not status.clean:
            picture = write_trees(tree, scratch, head, (status, walked.stamps), problems)
            if not picture.shows_head:
                if self._earlier and self._earlier.at and picture.is_in(scratch, self._earlier.at):
                    return self._earlier.at
                message = f"{WORK_TITLE}{self._session}\n\nWhat was not committed.\n"
                return picture.commit(scratch, message, self._session)
        return head.commit if head.commit and head.commit != self._submodule.commit else ""

    def _tags(self, commits: Sequence[str], known: set[str]) -> list[str]:
        """Return the tags with a message on new commits: a commit cannot have them as parents."""
        if not commits:
            return []
        form = "--format=%(objecttype) %(*objectname) %(refname:lstrip=2)"
        rows = [
            row.split(" ", 2)
            for row in decode_lines(run_git(self._git, "for-each-ref", form, "refs/tags/").stdout)
        ]
        tagged = {oid: name for kind, oid, name in rows if kind == "tag"}
        if not tagged:
            return []
        stdin = "".join([*(f"{oid}\n" for oid in commits), *(f"^{oid}\n" for oid in known)]).encode()
        new = {*decode_lines(run_git(self._git, "rev-list", "--stdin", stdin=stdin).stdout)}
        return sorted(name for oid, name in tagged.items() if oid in new)

    def copy(self, work: SubmoduleWork, largest: int) -> bool:
        """Copy commits with their history into the repository of the project.

        Returns:
            Whether all of the history was copied.

        Raises:
            GitError: git failed.
            OSError: the history is not complete, or larger than *largest* bytes.

        """
        earlier = self._earlier.commits if self._earlier else []
        candidates = {*list_refs(self._git).values(), *earlier, *work.commits}
        common = held(self._store, existing_commits(self._git, candidates))
        wanted = {*work.commits} - common
        if not wanted:
            return False
        objects = files.files_below(self._submodule.tree.registration / "objects")
        if not common and (size := sum(path.lstat().st_size for path in objects)) > largest:
            raise OSError(f"its history has {size >> 20} MiB, more than {largest >> 20} MiB do not travel")
        found = RepositoryTips(frozenset(), tuple(sorted(wanted)), tuple(sorted(common)))
        self._until_named.enter_context(transferred(self._git, self._store, found, self._session))
        return not common
