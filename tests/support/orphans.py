"""Sessions whose wrapper was killed."""

from __future__ import annotations

import contextlib
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.repo import Repo
from tests.support.sessions import Session, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.sessions import Result


@dataclass(frozen=True)
class Orphan:
    """What a session has left that was killed between two iterations.

    Attributes:
        repo: its project.
        session: its id.

    """

    repo: Repo
    session: str

    @property
    def id(self) -> str:
        """The agent id."""
        return self.session[-4:]

    @property
    def branch(self) -> str:
        """What it worked on."""
        return f"ralph/{self.id}"

    @property
    def wip(self) -> str:
        """Where its work is saved."""
        return f"ralph/{self.id}-wip"

    @property
    def worktree(self) -> Path:
        """Where it worked."""
        return self.repo.path / ".ralph" / "worktrees" / self.session

    @property
    def registration(self) -> Path:
        """The same in the repository."""
        return self.repo.path / ".git" / "worktrees" / self.session

    @property
    def record(self) -> Path:
        """Its record."""
        return self.repo.path / ".ralph" / "run" / "agents" / f"{self.id}.json"

    @property
    def lock(self) -> Path:
        """Its lock."""
        return self.record.with_suffix(".lock")

    @property
    def directory(self) -> Path:
        """Its own directory."""
        return self.repo.path / ".ralph" / "run" / "sessions" / self.session

    @property
    def report(self) -> dict[str, Any]:
        """Its report."""
        loaded: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return loaded

    def change(self, **fields: Any) -> None:
        """Write other fields into its record."""
        self.record.write_text(json.dumps(json.loads(self.record.read_text()) | fields))

    def move_owner_away(self) -> None:
        """Have its record say that its owner ran on another machine."""
        self.change(boot_id="another boot", host="another host")

    def is_there(self) -> bool:
        """Return whether anything that a sweep would take is still there."""
        return self.record.exists() and self.registration.exists() and self.worktree.exists()


def sweep(repo: Repo, *arguments: str) -> Result:
    """Run ``ralph-wrap sweep``."""
    return command("sweep", *arguments, cwd=repo.path)


def orphan(repo: Repo, *options: str, work: str = "echo new > new") -> Orphan:
    """Kill a session after its agent has done its work.

    Arguments:
        repo: the project.
        options: of ``ralph-wrap run``.
        work: what the agent does, for a shell.

    """
    (left,) = orphans(repo, work, options=options)
    return left


def orphans(repo: Repo, *works: str, options: Sequence[str] = ()) -> list[Orphan]:
    """Kill several sessions at once: each start of one would finish those that died before."""
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(Session(repo.path, "--delay", "1h", *options, "--", "sh", "-c", work))
            for work in works
        ]
        for session in sessions:
            session.wait_until_kept()
        for session in sessions:
            session.send(signal.SIGKILL)
            session.process.wait()
        return [Orphan(repo, session.directory.name) for session in sessions]
