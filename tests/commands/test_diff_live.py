"""``ralph-wrap diff --saved`` of a session that runs: what is not committed now."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")


@contextlib.contextmanager
def _running(repo: Repo, script: str) -> Iterator[tuple[str, Path]]:
    """Yield id and worktree of a session whose agent has run a script, and sleeps."""
    agent = f"{script}\n: > ../done\nexec sleep 600"
    with Session(repo.path, "-n", "1", "--", "sh", "-c", agent) as session:
        worktrees = repo.path / ".ralph" / "worktrees"
        eventually((worktrees / "done").exists, "the agent's work")
        yield session.directory.name[-4:], worktrees / session.directory.name
        session.send(signal.SIGTERM)
        session.finish()


def _objects(repo: Repo) -> set[str]:
    return {str(path) for path in (repo.path / ".git" / "objects").rglob("*")}


def test_it_shows_commits_and_what_is_not_committed(repo: Repo) -> None:
    """A changed file, a staged one and a new one; without --saved the commits alone."""
    script = """
        echo committed > committed; git add committed; git commit -qm one
        echo changed >> file.txt
        echo staged > staged; git add staged
        echo new > new"""
    with _running(repo, script) as (name, _):
        shown = command("diff", "--saved", name, "--stat", cwd=repo.path).stdout.decode()
        names = [line.split()[0] for line in shown.splitlines()[:-1]]
        assert names == ["committed", "file.txt", "new", "staged"]
        shown = command("diff", name, "--stat", cwd=repo.path).stdout.decode()
        assert [line.split()[0] for line in shown.splitlines()[:-1]] == ["committed"]


def test_a_look_changes_nothing(repo: Repo) -> None:
    """Neither the objects and refs of the repository, nor the index of the worktree."""
    with _running(repo, "echo new > new; echo staged > staged; git add staged") as (name, path):
        index = repo.path / ".git" / "worktrees" / path.name / "index"
        before = (_objects(repo), repo.git("for-each-ref"), index.read_bytes())
        assert b"+new" in command("diff", "--saved", name, cwd=repo.path).stdout
        assert (_objects(repo), repo.git("for-each-ref"), index.read_bytes()) == before


def test_without_commits_the_command_is_named(repo: Repo) -> None:
    """Who asks for the changes of a running session learns how to see them."""
    with _running(repo, "echo new > new") as (name, _):
        done = command("diff", name, cwd=repo.path)
        assert f"{name} has no changes" in done.stderr
        assert f"ralph-wrap diff --saved {name}" in done.stderr


def test_a_resumed_session_shows_what_it_has_now(repo: Repo) -> None:
    """Its saved work is back in the worktree, and may have changed since."""
    with _running(repo, "echo old > new") as (name, _):
        pass
    (repo.path / ".ralph" / "worktrees" / "done").unlink()
    agent = "echo now > new; : > ../done; exec sleep 600"
    with Session(repo.path, "-n", "1", "--branch", f"ralph/{name}", "--", "sh", "-c", agent) as session:
        eventually((repo.path / ".ralph" / "worktrees" / "done").exists, "the agent's work")
        shown = command("diff", "--saved", session.directory.name, cwd=repo.path).stdout
        assert b"+now" in shown
        assert b"old" not in shown
        session.send(signal.SIGTERM)
        session.finish()
