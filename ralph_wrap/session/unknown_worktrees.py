"""Worktrees of sessions that no record knows, for example after ``git clean -fdx`` in the project.

A sweep goes by records, so it leaves such a session alone: its process may run in another container, between
two iterations. With the user's word that it is dead (``sweep --adopt ID``) it gets a record again, from the
mark in its registration, and is finished as a killed one.

A worktree without this mark is not provably the session's. It is named with the commands that save its work.
The command that removes it is only printed if nothing is left that it would delete for ever: commits that no
branch has, nested repositories, and what is staged for a directory that is gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.git import Git, Head, list_refs, merge, pointer, read_head, resolve_commit
from ralph_wrap.git.compare import merge_base
from ralph_wrap.git.index import is_staged, list_index
from ralph_wrap.state import claim, ids
from ralph_wrap.state.project import Project, own_registry, registries, repository_of
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system import files, liveness
from ralph_wrap.system.liveness import SessionNames
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree.ownership import lock_of, names_registration, read_mark, session_lock
from ralph_wrap.worktree.save.commits import named_commits, named_objects, unreachable
from ralph_wrap.worktree.save.registration import is_replaced
from ralph_wrap.worktree.save.walk import walk

_HEADS = "refs/heads/"
_MESSAGE = "saved by hand"
_LOOK_AT = ("--no-assume-unchanged", "--no-skip-worktree")


class UnknownWorktree(NamedTuple):
    """A registered worktree whose lock names a session without a record.

    Attributes:
        session: id of the session.
        path: of the worktree.
        registration: its directory in the repository.
        agent_id: agent id of the session.
        branch: that its mark names; ``None`` without the mark, which alone shows that the worktree is ours.

    """

    session: str
    path: Path
    registration: Path
    agent_id: str
    branch: str | None

    @property
    def message(self) -> str:
        """What it is, in a sentence."""
        if self.path.is_dir():
            return f"{self.path} is the worktree of session {self.session}, which no record knows"
        return f"git still has an entry for {self.path}, the deleted worktree of session {self.session}"

    def is_named(self, names: Collection[str]) -> bool:
        """Return whether one of these names it, as they name a session."""
        return not {self.agent_id, self.session, self.branch}.isdisjoint(names)

    def hint(self, git: Git) -> str:
        """Return the command that finishes it, or those that save its work.

        Arguments:
            git: git in the repository.

        """
        if self.branch is not None:
            to_finish = command("ralph-wrap", "sweep", "--adopt", self.agent_id)
            return f"if no process of it runs anywhere, save its work and remove it: {to_finish}"
        try:
            return Commands.of(*_ways_out(self, git))
        except (GitError, OSError) as error:
            look = command("ls", "-la", self.registration)
            return f"it stays, because git cannot read it ({error}); to look at it: {look}"


def unknown_worktrees(project: Project) -> Iterator[UnknownWorktree]:
    """Yield the worktrees that a session has locked of which there is neither a record nor a process.

    A record that cannot be read may be that of the session. A session writes its record before it adds its
    worktree, and its process may be in a pid namespace that we do not see. So the records are read last.
    """
    if project.repository is None:
        return
    locked = [
        (registration, (lock_of(registration) or "").removeprefix(session_lock("")))
        for registration in sorted((project.repository.common_dir / "worktrees").glob("*"))
    ]
    records = [
        record
        for registry in registries(project)
        for record in (*registry.unfinished(), *registry.finished())
    ]
    sessions = {record.session for record in records if isinstance(record, SessionRecord)}
    unreadable = {record.id for record in records if not isinstance(record, SessionRecord)}
    named = SessionNames()
    for registration, session in locked:
        agent_id = ids.agent_id_of(session) if ids.is_session_id(session) else None
        if agent_id is None or session in sessions or agent_id in unreadable:
            continue
        if agent_id in named or _is_claimed(project, agent_id):
            continue
        try:
            path = pointer.real(pointer.git_file_of(registration).parent)
        except OSError:
            continue
        mark = read_mark(registration)
        is_marked = mark is not None and mark.session == session and ids.is_session_id(registration.name)
        branch = mark.branch if mark and is_marked else None
        yield UnknownWorktree(session, path, registration, agent_id, branch)


def _is_claimed(project: Project, agent_id: str) -> bool:
    """Return whether a process holds an id; it may be about to write its record anew."""
    try:
        return any(files.is_locked(home.lock_path(agent_id)) for home in registries(project))
    except OSError:
        return True


def register_anew(project: Project, found: UnknownWorktree) -> None:
    """Write a record for the session of such a worktree, as far as the repository knows it.

    The user says that it is dead. Its record has no owner, and says that files of it were deleted while its
    agent ran: then only the user's word, or a lock that is still held, shows whether that has ended.

    Raises:
        RefusedError: nothing proves that the worktree is the session's.
        ConflictError: another session has its id.
        RalphError: one of our directories is a symlink.
        OSError: the record cannot be written.

    """
    repository = repository_of(project)
    if found.branch is None or (base := _base_of(project.git, found)) is None:
        raise RefusedError(
            f"{found.message}, and its registration does not say what it worked on", found.hint(project.git)
        )
    record = SessionRecord(
        id=found.agent_id,
        session=found.session,
        pid=0,
        start_time=0.0,
        boot_id=liveness.boot_id(),
        pid_namespace="",
        host=liveness.host(),
        branch=found.branch,
        base=base,
        workspace=os.fspath(found.path),
        state="running",
        file_mode=repository.file_mode,
        symlinks=repository.symlinks,
        worktree=found.registration.name,
        agents_unseen=True,
    )
    claim.register_anew(own_registry(project), record, found.registration)


def _base_of(git: Git, found: UnknownWorktree) -> str | None:
    """Return the commit that its branch probably started from; ``None`` if there is no commit at all."""
    head = resolve_commit(git, "HEAD")
    tip = list_refs(git, ref := f"{_HEADS}{found.branch}").get(ref)
    if tip is None or head is None:
        return tip or head
    with contextlib.suppress(GitError):  # its history may be damaged
        return merge_base(git, tip, head) or tip
    return tip


def _ways_out(found: UnknownWorktree, git: Git) -> Iterator[str]:
    """Yield one line for each step.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    path, registration = found.path, found.registration
    if obstacle := _obstacle(found):
        yield obstacle
        return
    exists = path.is_dir()
    own = git._replace(cwd=registration, git_dir=registration, common_dir=registration.parent.parent)
    if exists:
        own = own._replace(cwd=path, work_tree=path)
    inside = ("git", "-C", path) if exists else ("git", "--git-dir", registration)
    problems = list[str]()
    commits = unreachable(own, named_commits(own, named_objects(registration, own, problems), problems))
    head, names = read_head(own), _free_names(git, found.agent_id)
    to_branch = [command(*inside, *words) for words in _to_branch(found, head, names)]
    commit = command(*inside, "commit", "-m", _MESSAGE)
    is_staged_only = not exists and (registration / "index").exists() and is_staged(own)
    if exists:
        yield f"to see what is not committed: {command(*inside, 'status', '--short')}"
        add = command(*inside, "add", "-A")
        yield f"to keep that on its branch: {' && '.join([*to_branch, add, commit])}"
    elif is_staged_only:
        yield f"to keep what is staged: {' && '.join([*to_branch, commit])}"
    elif head.commit in commits:
        yield f"to keep its last commit: {' && '.join(to_branch)}"
    for oid in commits:
        if oid != head.commit or not to_branch:
            yield f"to keep a commit that no branch has: {command(*inside, 'branch', next(names), oid)}"
    kept = [*problems, *_in_the_way(found, own)]
    yield from kept
    if kept or commits or is_staged_only:
        yield "it stays until all of this is safe; a sweep after that says how to remove it"
    elif exists:
        unlock = command("git", "worktree", "unlock", path)
        yield f"then, to remove it: {unlock} && {command('git', 'worktree', 'remove', path)}"
    else:
        yield f"to drop the entry: {command('git', 'worktree', 'remove', '-f', '-f', path)}"


def _obstacle(found: UnknownWorktree) -> str | None:
    """Return why no command of git in the worktree would do what we say, ``None`` if it would."""
    if found.path.is_dir() and not names_registration(found.path, found.registration):
        repair = command("git", "worktree", "repair", found.path)
        return f"it stays, because its .git names another repository; to mend that: {repair}"
    if is_replaced(found.registration):
        return f"it stays, because its HEAD or index is no file: {command('ls', '-la', found.registration)}"
    return None


def _to_branch(found: UnknownWorktree, head: Head, names: Iterator[str]) -> Iterator[tuple[str, ...]]:
    """Yield arguments of git after which HEAD is on a branch of the session: a new one, if it is elsewhere.

    ``git switch`` refuses that during a rebase, and with conflicts.
    """
    if head.branch == f"{_HEADS}ralph/{found.agent_id}":
        return
    name = next(names)
    if head.commit:
        yield ("branch", name, head.commit)
    yield ("symbolic-ref", "HEAD", f"{_HEADS}{name}")


def _in_the_way(found: UnknownWorktree, git: Git) -> Iterator[str]:
    """Yield a line for each thing that no commit of the worktree can hold, with a command that shows it."""
    path, registration = found.path, found.registration
    if operation := merge.operation(registration):
        yield f"{operation} is in progress: {command('ls', '-la', registration)}"
    if os.path.lexists(registration / "modules"):
        yield f"it has repositories of submodules: {command('ls', '-la', registration / 'modules')}"
    if not path.is_dir():
        return
    walked = walk(path, ())
    yield from walked.problems
    for name in (*walked.repositories, *walked.bare):
        yield f"no commit holds the nested repository {name}: {command('ls', '-la', path / name)}"
    for entry in list_index(git).hidden():
        if os.path.lexists(path / entry.path):
            shown = command("git", "-C", path, "update-index", *_LOOK_AT, "--", entry.path)
            yield f"git does not look at {entry.path}; to change that: {shown}"


def _free_names(git: Git, agent_id: str) -> Iterator[str]:
    """Yield names of branches that do not exist and that git can create beside those that do."""
    taken = list_refs(git, _HEADS)
    number = 0
    while True:
        number += 1
        name = f"ralph/{agent_id}-kept-{number}"
        ref = f"{_HEADS}{name}"
        if not any(other == ref or other.startswith(f"{ref}/") for other in taken):
            yield name
