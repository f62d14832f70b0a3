"""``ralph-wrap wait``: the end of sessions, and their status."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.wait import CAP, never

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")


def _failing(status: int, *options: str) -> tuple[str, ...]:
    return (*options, "-n", "1", "--max-failures", "0", "--", "sh", "-c", f"exit {status}")


def test_it_waits_for_the_end_and_has_its_status(repo: Repo, tmp_path: Path) -> None:
    """Of a running session; it prints which has ended, and how, in words."""
    agent = f"until [ -e {tmp_path / 'go'} ]; do sleep 0.02; done; exit 3"
    with Session(repo.path, "-n", "1", "--max-failures", "0", "--", "sh", "-c", agent) as session:
        session.wait_for("agent.started")
        with subprocess.Popen(
            (PROGRAM, "wait", session.directory.name[-4:]), cwd=repo.path, stdout=subprocess.PIPE
        ) as waiting:
            never(lambda: waiting.poll() is not None, "not waited for")
            (tmp_path / "go").touch()
            stdout, _ = waiting.communicate(timeout=CAP)
        result = session.finish()
    assert (waiting.returncode, result.status) == (3, 3)
    assert stdout.decode() == f"{session.directory.name}  limit reached\n"


def test_of_several_the_first_status_that_is_not_0(repo: Repo) -> None:
    """In the order in which they end; those that have ended already end at once."""
    done, failed = run(repo.path, *_failing(0)), run(repo.path, *_failing(7))
    answered = command("wait", "--json", done.report["id"], failed.report["id"], cwd=repo.path)
    assert answered.status == 7
    rows = json.loads(answered.stdout)["data"]
    assert {row["session"]: row["exit_status"] for row in rows} == {
        done.report["session"]: 0,
        failed.report["session"]: 7,
    }
    assert {row["ended_by"] for row in rows} == {"max-iterations"}


@pytest.mark.parametrize("verb", [("wait",), ("logs", "-f"), ("logs", "-f", "--events")], ids=" ".join)
def test_a_session_that_has_ended_has_its_status(repo: Repo, verb: tuple[str, ...]) -> None:
    """The one of its report, whichever command asks."""
    failed = run(repo.path, *_failing(7))
    assert command(*verb, failed.report["id"], cwd=repo.path).status == 7


@pytest.mark.parametrize("verb", [("wait",), ("logs", "-f")], ids=" ".join)
def test_a_killed_session_has_the_status_of_its_signal(repo: Repo, verb: tuple[str, ...]) -> None:
    """It has no report yet; the status is the one that the report of a sweep will have."""
    with Session(repo.path, "--", "sleep", "1000") as session:
        session.wait_for("agent.started")
        with subprocess.Popen(
            (PROGRAM, *verb, session.directory.name), cwd=repo.path, stdout=subprocess.DEVNULL
        ) as waiting:
            session.send(signal.SIGKILL)
            assert waiting.wait(CAP) == 137
    assert command("sweep", cwd=repo.path).status == 0
    assert command(*verb, session.directory.name, cwd=repo.path).status == 137


def test_a_session_whose_end_is_not_known_is_an_error(repo: Repo) -> None:
    """With the reason; the others are waited for all the same."""
    failed, done = run(repo.path, *_failing(7)), run(repo.path, *_failing(0))
    assert failed.directory is not None
    name = failed.directory.name
    (failed.directory / "report.json").write_text("torn")
    answered = command("wait", name, done.report["id"], cwd=repo.path)
    assert answered.status == 125
    assert f"how session {name} ended is not known: its report " in answered.stderr
    assert answered.stdout.decode() == f"{done.report['session']}  limit reached\n"


def test_a_session_that_does_not_exist(repo: Repo) -> None:
    """Nothing is waited for."""
    answered = command("wait", "beef", cwd=repo.path)
    assert (answered.status, answered.stdout) == (4, b"")
