"""``teardown`` and ``docker stop``: the save always has its time, and the next start does the rest."""

import json
import time

import pytest

from tests.container.box import PROJECT, Box, StartBox
from tests.support.repo import Repo
from tests.support.sessions import command

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(180, func_only=True),  # the first test of a worker may wait for the image to be built
]

# Hangs until the file is there, then writes a line.
TEARDOWN = f"echo begun >> {PROJECT}/begun; test -e {PROJECT}/go || sleep 600; echo torn >> {PROJECT}/torn"
AGENT = "echo draft > draft.new; mv draft.new draft; exec sleep 600"
RUN = ["ralph-wrap", "run", "--", "/bin/sh", "-c", AGENT]


@pytest.fixture
def project(repo: Repo) -> Repo:
    """Return a project with a teardown that hangs."""
    repo.write(".gitignore", ".ralph/\nbegun\ntorn\ngo\n")
    repo.commit("a project")
    repo.write(".ralph/config.toml", f"teardown = {json.dumps(TEARDOWN)}\n")
    return repo


def await_draft(box: Box, repo: Repo) -> None:
    """Wait until the agent has written its file."""
    box.eventually(lambda: next(repo.path.glob(".ralph/worktrees/*/draft"), None), "the agent")


def test_docker_stop_leaves_a_hanging_teardown_to_the_next_start(start_box: StartBox, project: Repo) -> None:
    """The work is saved within ten seconds; the container that starts again runs it."""
    box = start_box(project.path)
    box.start(*RUN)
    await_draft(box, project)
    begun = time.monotonic()
    assert box.end() == 0, box.log()
    assert time.monotonic() - begun < 10
    (report,) = box.reports()
    assert (report["ended_by"], report["teardown"]["result"]) == ("signal", "later")
    assert project.git("show", f"{report['saved']}:draft") == "draft"
    assert (project.path / "begun").read_text() == "begun\n"
    (project.path / "go").touch()
    box.container.start()
    box.eventually(lambda: not project.worktrees(), "the sweep of the next start")
    box.eventually(lambda: box.reports()[0]["teardown"]["result"] == "passed", "the report")
    assert (project.path / "torn").read_text() == "torn\n"


def test_a_kill_of_the_container_leaves_it_to_the_next_start(start_box: StartBox, project: Repo) -> None:
    """Which runs it in the worktree, and saves the work."""
    (project.path / "go").touch()
    box = start_box(project.path)
    box.start(*RUN)
    await_draft(box, project)
    box.container.kill()
    box.wait()
    assert not (project.path / "torn").exists()
    box.container.start()
    box.eventually(lambda: box.reports() and not project.worktrees(), "the sweep of the next start")
    (report,) = box.reports()
    assert (report["ended_by"], report["teardown"]["result"]) == ("killed", "passed")
    assert project.git("show", f"{report['saved']}:draft") == "draft"
    assert (project.path / "torn").read_text() == "torn\n"


def test_without_init_a_hanging_teardown_has_three_seconds(start_box: StartBox, project: Repo) -> None:
    """There is no second signal before SIGKILL; the session saves and removes its worktree in time."""
    box = start_box(
        project.path, "run", "--", "/bin/sh", "-c", AGENT, entrypoint="ralph-wrap", env={"RALPH_TRUST": "1"}
    )
    await_draft(box, project)
    assert box.end() == 143, box.log()
    (report,) = box.reports()
    assert report["teardown"]["result"] == "failed"
    assert 3 <= report["teardown"]["seconds"] < 6
    assert project.git("show", f"{report['saved']}:draft") == "draft"
    assert project.worktrees() == []


def test_the_host_does_not_run_what_belongs_in_a_container(start_box: StartBox, project: Repo) -> None:
    """A kept worktree of a container: rm on the host saves and removes it, and says that it was not run."""
    (project.path / "go").touch()
    box = start_box(project.path)
    assert box.run("ralph-wrap", "run", "--keep-worktree", "-n", "1", "--", "true").status == 0
    removed = command("rm", box.reports()[0]["id"], cwd=project.path)
    assert removed.status == 0, removed.stderr
    assert "teardown was not run" in removed.stderr
    assert not (project.path / "torn").exists()
