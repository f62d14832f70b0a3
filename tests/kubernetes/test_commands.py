"""``ralph-wrap fleet`` as a user types it: its own Job on the API server, and pods on both nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.evidence import require_everything, require_index
from tests.kubernetes.run import LIMIT
from tests.kubernetes.user import User
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.gate import Gate
    from tests.kubernetes.remote import Remote
    from tests.kubernetes.run import Run
    from tests.support.repo import Repo

FIRST_LINES = 2
KEEP_PROMPT = 'cat > prompt; git add -A; git commit -qm prompt; echo "<promise>COMPLETE</promise>"'


@pytest.fixture
def user(cluster: Cluster, remote: Remote, repo: Repo) -> User:
    """Return a user whose sessions wait at their second line, and write six."""
    return User(cluster, remote, repo, lines=6, pause=0, hold=FIRST_LINES)


@pytest.fixture
def started(cluster: Cluster) -> Iterator[Callable[[Run], Run]]:
    """Return a function that notes a run; its Job is deleted after the test."""
    runs: list[Run] = []

    def note(run: Run) -> Run:
        runs.append(run)
        return run

    yield note
    for run in runs:
        cluster.control.kubectl("delete", "job", run.job, "--ignore-not-found")


def _wait_for_lines(run: Run) -> None:
    for index in range(run.size):
        run.wait_for_line(index, FIRST_LINES)


def test_a_run_from_its_start_to_its_end(user: User, started: Callable[[Run], Run]) -> None:
    """Two sessions on two nodes are listed, suspended, let go on, and done; then the run is deleted.

    They are suspended while their agents wait at a line. It is in the worktree when they go on.
    """
    run = started(user.run("--count", "2", "--max-iterations", "5", "--", "numbered-lines", size=2))
    _wait_for_lines(run)
    rows = user.rows(run)
    assert [row["state"] for row in rows] == ["running", "running"]
    assert all(re.fullmatch("[0-9a-f]{8}", row["id"]) for row in rows)
    assert len({row["id"] for row in rows}) == 2
    assert {pod["spec"]["nodeName"] for pod in run.pods()} == {"node1", "node2"}
    assert f"{run.name}  2 claimed" in user.fleet("ps", "--all")
    following = user.follow(run, 1)
    eventually(lambda: rows[1]["id"] in following.log.read_text(), "the output of the pod", LIMIT)
    user.fleet("stop", run.name)
    following.wait()
    eventually(lambda: not run.every_pod(), "the pods of a suspended Job to be gone", LIMIT)
    assert [row["state"] for row in user.rows(run)] == ["interrupted", "interrupted"]
    assert rows[0]["id"] in user.fleet("logs", run.name, "0")
    user.fleet("resume", run.name)
    run.wait_until_done()
    assert [(row["state"], row["ended_by"]) for row in user.rows(run)] == [("done", "promise")] * 2
    require_everything(run, graceful=True)
    user.fleet("rm", run.name)
    assert not run.every_pod()
    left = run.remote.refs()
    assert not [ref for ref in left if run.name in ref]
    assert {f"refs/heads/ralph/{row['id']}" for row in rows} <= left.keys()


def test_each_task_is_a_session(user: User, started: Callable[[Run], Run]) -> None:
    """Each pod gets the prompt of its task, and the table has the titles."""
    user.project.write("tasks.md", "- [ ] paint it\n  blue\n- [x] old\n- [ ] sell it\n")
    run = started(
        user.run("--tasks", "tasks.md", "-p", "Please: {task}", "--", "sh", "-c", KEEP_PROMPT, size=2)
    )
    run.wait_until_done()
    rows = user.rows(run)
    assert [row["title"] for row in rows] == ["paint it", "sell it"]
    prompts = [run.remote.git("show", f"ralph/{row['id']}:prompt") for row in rows]
    assert prompts[0].startswith("Please: paint it\n\nblue")
    assert prompts[1].startswith("Please: sell it")


def test_one_session_is_stopped_and_goes_on(
    cluster: Cluster, remote: Remote, repo: Repo, gate: Gate, started: Callable[[Run], Run]
) -> None:
    """The other one works on to its end; the Job, which is over then, is created again."""
    user = User(cluster, remote, repo, lines=4, pause=0, hold=FIRST_LINES)
    run = started(user.run("--count", "2", "--max-iterations", "5", "--", "numbered-lines", size=2))
    _wait_for_lines(run)
    stopped, other = user.rows(run)
    user.fleet("stop", stopped["id"])
    eventually(lambda: run.state(0)["state"] == "stopped", "the session to stop", LIMIT)
    gate.open()
    run.wait_until_done()
    assert [row["state"] for row in user.rows(run)] == ["stopped", "done"]
    user.fleet("resume", run.name)
    eventually(lambda: run.state(0)["state"] == "done", "the session to be done", LIMIT)
    run.wait_until_done()
    require_index(run, 0, graceful=True, states=("claimed", "stopped", "claimed", "done"))
    require_index(run, 1, graceful=True)
    assert json.dumps(other["id"]) in json.dumps(user.rows(run))
