"""The compose project for each worktree, as it stands on its page, with a real engine."""

import shutil
import subprocess
from pathlib import Path

import docker
import pytest

from tests.docs.documents import DOCS, section
from tests.support.needs import skip_or_fail
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

pytestmark = [pytest.mark.container, pytest.mark.timeout(300, func_only=True)]

PAGE = section(DOCS / "services.md", "A compose project")
ANSWERS = 'until curl -s "http://127.0.0.1:$RALPH_PORT/" > page; do sleep 0.1; done; cat .env'


def block(language: str) -> str:
    """Return a block of the page."""
    return PAGE.split(f"```{language}\n", 1)[1].split("```", 1)[0]


@pytest.fixture
def compose() -> str:
    """Return the command of compose: of the plugin, or the program of its own."""
    if subprocess.run(("docker", "compose", "version"), capture_output=True, check=False).returncode == 0:
        return "docker compose"
    if not shutil.which("docker-compose"):
        skip_or_fail("compose is not installed: apt-get install docker-compose", "REQUIRE_DOCKER")
    return "docker-compose"


@pytest.fixture
def project(repo: Repo, image: str, compose: str, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a project with the files of the page; only the image is one that is here."""
    monkeypatch.setenv("RALPH_TRUST", "1")
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)  # Debian 12 has an old docker-compose
    assert "python:3.13-slim" in block("yaml")
    repo.write("compose.yaml", block("yaml").replace("python:3.13-slim", image))
    repo.write(".gitignore", ".env\n.ralph/\npage\n")
    repo.commit("a project")
    repo.write(".ralph/config.toml", block("toml").replace("docker compose", compose))
    return repo


def of_sessions(engine: docker.DockerClient, agent_ids: list[str]) -> list[str]:
    """Return the containers, networks and volumes of sessions."""
    names = []
    for agent_id in agent_ids:
        label: dict[str, str | list[str] | bool] = {"label": f"com.docker.compose.project=app-{agent_id}"}
        names += [str(found.name) for found in engine.containers.list(all=True, filters=label)]
        names += [str(found.name) for found in engine.networks.list(filters=label)]
        names += [str(found.name) for found in engine.volumes.list(filters=label)]
    return names


def test_each_worktree_has_its_project(engine: docker.DockerClient, project: Repo) -> None:
    """Two sessions at once have servers at their own ports; afterwards nothing of them is left."""
    line = ("-n", "1", "--", "sh", "-c", ANSWERS)
    with Session(project.path, *line) as first, Session(project.path, *line) as second:
        results = [first.finish(patience=120), second.finish(patience=120)]
    for result in results:
        assert result.status == 0, result.stderr
        assert result.stdout.decode() == f"COMPOSE_PROJECT_NAME=app-{result.report['id']}\n"
        assert result.report["teardown"]["result"] == "passed", result.output_log.decode()
    assert of_sessions(engine, [result.report["id"] for result in results]) == []


def test_a_sweep_takes_the_project_of_a_killed_session(engine: docker.DockerClient, project: Repo) -> None:
    """Its containers are no processes of the session, so only the teardown ends them."""
    with Session(
        project.path, "-n", "1", "--", "sh", "-c", f"{ANSWERS}; touch up; exec sleep 600"
    ) as session:
        up = project.path / ".ralph/worktrees" / session.directory.name / "up"
        eventually(up.exists, "the server", cap=120)
        session.process.kill()
        session.process.wait()
    agent_id = session.directory.name[-4:]
    assert len(of_sessions(engine, [agent_id])) == 3
    assert command("sweep", cwd=project.path).status == 0
    assert of_sessions(engine, [agent_id]) == []


def test_the_line_of_a_failed_teardown_works_by_hand(engine: docker.DockerClient, project: Repo) -> None:
    """In the checkout, where the worktree is gone."""
    config = project.path / ".ralph/config.toml"
    config.write_text(config.read_text().replace("teardown = '", "teardown = 'test -e worktree-is-gone; "))
    config.write_text(config.read_text().replace("gone; ", "gone && "))
    result = run(project.path, "-n", "1", "--", "sh", "-c", ANSWERS)
    agent_id = result.report["id"]
    assert result.report["teardown"]["result"] == "failed"
    assert len(of_sessions(engine, [agent_id])) == 3
    [hint] = [event["hint"] for event in result.warnings if event["event"] == "teardown.failed"]
    Path(project.path / "worktree-is-gone").touch()
    line = hint.splitlines()[1].removeprefix("to run it by hand: ")
    subprocess.run(("sh", "-c", line), check=True, cwd="/", capture_output=True)
    assert of_sessions(engine, [agent_id]) == []
