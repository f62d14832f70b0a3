"""Sessions that are asked to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import Session, command

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result


def stop_sessions(repo: Repo, *arguments: str) -> Result:
    """Run ``ralph-wrap stop``."""
    return command("stop", *arguments, cwd=repo.path)


def lines_of(result: Result) -> list[list[str]]:
    """Return the lines of stdout."""
    return [line.split() for line in result.stdout.decode().splitlines()]


def id_of(session: Session) -> str:
    """Return the agent id of a session."""
    return session.directory.name.rpartition("-")[2]


def wait_until_ready(session: Session) -> None:
    """Wait until the agent is ready."""
    assert session.process.stdout is not None
    assert session.process.stdout.readline() == b"ready\n"
