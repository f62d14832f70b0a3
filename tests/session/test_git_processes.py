"""How many git processes a session starts: beside busy agents, each one costs time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


@pytest.mark.parametrize(
    ("script", "most"),
    [("true", 10), ("echo new > new", 16), ("git commit -q --allow-empty -m work", 14)],
    ids=["no change", "a new file", "a commit"],
)
def test_git_processes_of_a_session(repo: Repo, tmp_path: Path, script: str, most: int) -> None:
    """The processes that git starts itself count, and those of the agent do not."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project that has run sessions before")
    trace = tmp_path / "trace"
    # A file younger than a tick of the clock costs one more look.
    agent = f"unset GIT_TRACE2_EVENT; {script}; sleep 0.05"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent, env={"GIT_TRACE2_EVENT": str(trace)})
    assert ended.status == 0
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    commands = [event["argv"] for event in events if event["event"] == "start"]
    # The dates in the environment of the tests are checked by one more.
    commands = [command for command in commands if command[-2:] != ["var", "GIT_COMMITTER_IDENT"]]
    assert 0 < len(commands) <= most, commands
