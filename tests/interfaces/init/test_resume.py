"""``ralph-wrap init --resume``: the restart of a container is a pause for its sessions."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.pid1 import Container
from tests.support.sessions import PROGRAM
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

HALVES = """
if [ -e "$RALPH_PROJECT/go" ]; then printf 'second half' >> part; else printf 'first half, ' > part
touch "$RALPH_PROJECT/waiting"; sleep 600; fi
"""
"""An agent that is interrupted in the middle of a file, and writes the rest once it may."""

IDLE = 'touch "$RALPH_PROJECT/waiting"; sleep 600'


@pytest.fixture
def project(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repo:
    """Return a project that hides what the agents of a test write beside their worktrees."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repo.write(".gitignore", ".ralph/\nwaiting\ngo\n")
    repo.commit("a project")
    return repo


def _reports(repo: Repo) -> list[dict[str, Any]]:
    """Return the reports of the sessions that have ended, the earliest end first."""
    paths = sorted(repo.path.glob(".ralph/run/sessions/*/report.json"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_text()) for path in paths]


def _begin(container: Container, repo: Repo, script: str) -> None:
    """Start a session, and wait until its agent works."""
    container.execute(PROGRAM, "run", "-n", "1", "--", "sh", "-c", script)
    _await_agent(repo)


def _await_agent(repo: Repo) -> None:
    eventually((repo.path / "waiting").exists, "the agent to work")
    (repo.path / "waiting").unlink()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("how", ["--resume", "variable"])
def test_an_interrupted_session_goes_on(project: Repo, end: signal.Signals, how: str) -> None:
    """Its half-written file is completed, on the same branch, whether it was stopped or killed."""
    with Container(project.path) as first:
        first.rest()
        _begin(first, project, HALVES)
        if end == signal.SIGTERM:
            first.send(end)
            first.wait()
    (project.path / "go").touch()
    arguments = ["--resume"] if how == "--resume" else []
    env = {} if arguments else {"RALPH_WRAP_INIT_RESUME": "1"}
    with Container(project.path, *arguments, env=env):
        eventually(lambda: len(_reports(project)) == 2, "the session to go on and end")
    before, after = _reports(project)
    assert (before["ended_by"], after["ended_by"]) == (
        "signal" if end == signal.SIGTERM else "killed",
        "max-iterations",
    )
    assert (after["branch"], after["id"]) == (before["branch"], before["id"])
    assert project.git("show", f"{after['saved']}:part") == "first half, second half"


def test_without_the_option_nothing_goes_on(project: Repo) -> None:
    """The next start only sweeps."""
    with Container(project.path) as first:
        first.rest()
        _begin(first, project, HALVES)
    with Container(project.path) as second:
        eventually(lambda: _reports(project), "the sweep")
        second.rest()
    assert [report["ended_by"] for report in _reports(project)] == ["killed"]
    assert not (project.path / "waiting").exists()


def test_what_the_user_ended_stays_ended(project: Repo) -> None:
    """Ctrl-C and stop are the user's; the container's end is not."""
    with Container(project.path) as first:
        first.rest()
        _begin(first, project, HALVES)
        first.execute(PROGRAM, "stop", "--all").wait()
        eventually(lambda: _reports(project), "the session to end")
        _begin(first, project, HALVES)
        first.send(signal.SIGTERM)
        first.wait()
    (project.path / "go").touch()
    with Container(project.path, "--resume"):
        eventually(lambda: len(_reports(project)) == 3, "the other session to go on and end")
    stopped, interrupted, resumed = _reports(project)
    assert (stopped["ended_by"], interrupted["id"]) == ("stop", resumed["id"])


def test_it_goes_on_three_times_in_a_row_without_progress(project: Repo) -> None:
    """A session that ends its container each time must not do so for ever."""
    with Container(project.path) as first:
        first.rest()
        _begin(first, project, IDLE)
    for _ in range(3):
        with Container(project.path, "--resume"):
            _await_agent(project)
    with Container(project.path, "--resume") as last:
        eventually(lambda: "no progress" in last.messages, "the message")
    assert len(_reports(project)) == 4
    assert not (project.path / "waiting").exists()
