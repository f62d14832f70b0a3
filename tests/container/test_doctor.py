"""`ralph-wrap doctor` in real containers: what their PID 1 is decides."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import docker
import pytest

from tests.container.box import PROJECT, Box
from tests.support.needs import needs_other_users
from tests.support.repo import Repo

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
]

Start = Callable[..., Box]


@pytest.fixture
def start(engine: docker.DockerClient, image: str, repo: Repo) -> Iterator[Start]:
    """Return a function that starts a container on the repository; it takes options of the engine."""
    with ExitStack() as stack:

        def run(mode: str = "rw", **options: Any) -> Box:
            container = engine.containers.create(
                image,
                volumes={str(repo.path): {"bind": PROJECT, "mode": mode}},
                network_mode="none",
                labels=["ralph-wrap-test"],
                **options,
            )
            stack.callback(container.remove, force=True, v=True)
            container.start()
            return Box(engine, container, repo.path)

        yield run


def examined(box: Box, user: str = "") -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status, and the checks by name."""
    ended = box.run("ralph-wrap", "doctor", "--json", user=user)
    return ended.status, {row["check"]: row for row in json.loads(ended.stdout)["data"]}


def failing(checks: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of the checks that failed."""
    return [name for name, row in checks.items() if not row["ok"]]


@pytest.mark.parametrize("below", [False, True], ids=["as PID 1", "below docker's own"])
def test_our_init(start: Start, repo: Repo, below: bool) -> None:
    """All is well in a container as the README starts it, also with `docker run --init`; nothing is made."""
    before = sorted(repo.path.rglob("*"))
    status, checks = examined(start(init=below))
    assert (status, failing(checks)) == (0, [])
    assert checks["PID 1"]["found"] == ("ralph-wrap init, below docker-init" if below else "ralph-wrap init")
    assert checks["stop time-out"]["found"] == "init gives sessions 8 s, docker gives 10 s by default"
    assert sorted(repo.path.rglob("*")) == before


@pytest.mark.parametrize("below", [False, True], ids=["as PID 1", "below docker's own"])
def test_another_first_process(start: Start, below: bool) -> None:
    """`docker stop` would kill every session: that alone fails, and what to do is said."""
    status, checks = examined(start(init=below, entrypoint=["sleep"], command=["infinity"]))
    assert (status, failing(checks)) == (1, ["PID 1"])
    row = checks["PID 1"]
    assert "sleep infinity; this is a container (/.dockerenv)" in row["found"]
    assert row["fix"].startswith("docker run -d --entrypoint ralph-wrap IMAGE init")


@pytest.mark.skipif(os.geteuid() != 0, reason="a project of root")
def test_an_init_of_another_user(start: Start) -> None:
    """It has no right to signal a session of root."""
    status, checks = examined(start(user="1000:1000"), user="0")
    assert (status, failing(checks)) == (1, ["PID 1"])
    assert checks["PID 1"]["fix"] == "docker run without --user, or docker exec --user 1000"


def test_another_time_out(start: Start) -> None:
    """One that docker would cut short is a note."""
    box = start(command=["--stop-timeout", "55s"])
    box.eventually(lambda: "interfaces.init" in box.run("cat", "/proc/1/cmdline").stdout, "init")
    status, checks = examined(box)
    row = checks["stop time-out"]
    assert (status, row["ok"], row["fix"]) == (0, True, "docker stop --time 57")


def test_a_read_only_mount(start: Start) -> None:
    """No session would be isolated."""
    status, checks = examined(start(mode="ro"))
    assert (status, checks["mounts"]["found"]) == (1, f"{PROJECT} is mounted read-only")


@needs_other_users
def test_a_container_without_capabilities(start: Start, repo: Repo) -> None:
    """If root cannot become the owner of the project, one check says so."""
    for path in (repo.path, *repo.path.rglob("*")):
        os.chown(path, 1000, 1000)
    status, checks = examined(start(cap_drop=["SETUID", "SETGID"]))
    assert (status, checks["owner"]["ok"]) == (1, False)
    assert checks["owner"]["fix"].startswith("docker run --user 1000:1000")


def test_a_session_may_ask(start: Start, repo: Repo) -> None:
    """An agent that examines its own project finds all well, and leaves nothing there."""
    ended = start().run("ralph-wrap", "run", "-n", "1", "--", "ralph-wrap", "doctor", "-C", PROJECT)
    assert (ended.status, "FAIL" in ended.stdout) == (0, False), ended
    assert list(repo.path.rglob(".ralph-wrap-doctor-*")) == []
