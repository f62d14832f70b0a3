"""Worktrees of sessions that no record knows, for example after ``git clean -fdx`` in the project.

Nothing finishes such a session: a sweep goes by records. So they are named, with the commands that help.
"""

from __future__ import annotations

from ralph_wrap.git import pointer
from ralph_wrap.state import ids
from ralph_wrap.state.project import registries
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.liveness import SessionNames
from ralph_wrap.system.log import Commands
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.text import command
from ralph_wrap.worktree.ownership import lock_of, session_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.state.project import Project


class UnknownWorktree(NamedTuple):
    """A registered worktree whose lock names a session without a record.

    Attributes:
        session: id of the session.
        path: of the worktree.

    """

    session: str
    path: Path

    @property
    def message(self) -> str:
        """What it is, in a sentence."""
        if self.path.is_dir():
            return f"{self.path} is the worktree of session {self.session}, which no record knows"
        return f"git still has an entry for {self.path}, the deleted worktree of session {self.session}"

    @property
    def hint(self) -> str:
        """The commands that end it."""
        if not self.path.is_dir():
            return f"to drop the entry: {command('git', 'worktree', 'remove', '-f', '-f', self.path)}"
        inside = ("git", "-C", self.path)
        save = f"{command(*inside, 'add', '-A')} && {command(*inside, 'commit', '-m', 'saved by hand')}"
        remove = (
            f"{command('git', 'worktree', 'unlock', self.path)}"
            f" && {command('git', 'worktree', 'remove', self.path)}"
        )
        return Commands.of(
            f"to see what is not committed: {command(*inside, 'status', '--short')}",
            f"to keep that on its branch: {save}",
            f"then, to remove it: {remove}",
        )


def unknown_worktrees(project: Project) -> Iterator[UnknownWorktree]:
    """Yield the worktrees that a session has locked of which there is neither a record nor a process.

    A record that cannot be read may be that of the session.
    """
    if project.repository is None:
        return
    records = [
        record
        for registry in registries(project)
        for record in (*registry.unfinished(), *registry.finished())
    ]
    sessions = {record.session for record in records if isinstance(record, SessionRecord)}
    unreadable = {record.id for record in records if not isinstance(record, SessionRecord)}
    named = SessionNames()
    for registration in sorted((project.repository.common_dir / "worktrees").glob("*")):
        session = (lock_of(registration) or "").removeprefix(session_lock(""))
        agent_id = ids.agent_id_of(session) if ids.is_session_id(session) else None
        if agent_id is None or session in sessions or agent_id in unreadable or agent_id in named:
            continue
        try:
            path = pointer.real(pointer.git_file_of(registration).parent)
        except OSError:
            continue
        yield UnknownWorktree(session, path)
