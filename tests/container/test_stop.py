"""`ralph-wrap stop` and `logs` from other containers on the same project, and from the host."""

import json

import pytest

from tests.container.box import Box, StartBox
from tests.support.repo import Repo
from tests.support.sessions import command

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

# Says that it works, and leaves a file when it is asked to end.
WORKING = "trap 'echo TERM >signal; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
RUN = ["ralph-wrap", "run", "--", "/bin/sh", "-c", WORKING]


def ready(box: Box, repo: Repo) -> str:
    """Wait until the one session of the project works, and return its id."""

    def said() -> bool:
        return any(
            log.read_bytes() == b"ready\n" for log in repo.path.glob(".ralph/run/sessions/*/output.log")
        )

    box.eventually(said, "the agent")
    agent_id: str = box.record()["id"]
    return agent_id


def assert_stopped(box: Box, repo: Repo) -> None:
    """Check that the session ended as asked, with what its agent did then saved."""
    (report,) = box.reports()
    assert (report["ended_by"], report["exit_status"]) == ("stop", 0)
    assert repo.git("show", f"{report['saved']}:signal") == "TERM"
    assert repo.worktrees() == []


def test_by_another_exec(start_box: StartBox, repo: Repo) -> None:
    """A second `docker exec` in the container ends the session of the first."""
    box = start_box(repo.path)
    running = box.start(*RUN)
    ready(box, repo)
    ended = box.run("ralph-wrap", "stop", "--all", "--json")
    assert (ended.status, json.loads(ended.stdout)["data"][0]["outcome"]) == (0, "stopped"), ended.stderr
    assert running.wait() == 0
    assert_stopped(box, repo)


def test_by_another_container(start_box: StartBox, repo: Repo) -> None:
    """One that has the project mounted, where the session's pid means nothing, ends it and reads its log."""
    box, other = start_box(repo.path), start_box(repo.path)
    running = box.start(*RUN)
    agent_id = ready(box, repo)
    assert other.run("ralph-wrap", "logs", agent_id).stdout == "ready\n"
    ended = other.run("ralph-wrap", "stop", agent_id)
    assert (ended.status, ended.stdout.split()[1:]) == (0, ["stopped"]), ended.stderr
    assert running.wait() == 0
    assert_stopped(box, repo)


def test_by_the_host(start_box: StartBox, repo: Repo) -> None:
    """Where the project has another path."""
    box = start_box(repo.path)
    running = box.start(*RUN)
    agent_id = ready(box, repo)
    assert command("logs", agent_id, cwd=repo.path).stdout == b"ready\n"
    ended = command("stop", agent_id, cwd=repo.path)
    assert (ended.status, ended.stdout.split()[1:]) == (0, [b"stopped"]), ended.stderr
    assert running.wait() == 0
    assert_stopped(box, repo)


def test_of_the_host(start_box: StartBox, repo: Repo) -> None:
    """A container whose session was killed with it is an orphan to the host, and not waited for."""
    box = start_box(repo.path)
    box.start(*RUN)
    agent_id = ready(box, repo)
    box.container.kill()
    ended = command("stop", agent_id, cwd=repo.path)
    assert (ended.status, ended.stdout.split()[1:]) == (0, [b"crashed"]), ended.stderr
