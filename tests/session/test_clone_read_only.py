"""Sessions in private clones of a project that is mounted read-only, as in a container."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.security.test_hostile_clones import refs, review
from tests.support.mounts import mounted, read_only
from tests.support.needs import needs_mounts
from tests.support.sessions import Session, command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo


@pytest.fixture
def mount(repo: Repo) -> Iterator[Path]:
    """Yield the project as a container sees it: read-only, with its directory of clones on top."""
    clones = repo.path / ".ralph" / "clones"
    clones.mkdir(parents=True)
    with read_only(repo.path), mounted(clones, "--bind", os.fspath(clones)):
        subprocess.run(("mount", "-o", "remount,bind,rw", clones), check=True)
        yield repo.path


@needs_mounts
def test_a_session_works_in_a_read_only_project(repo: Repo, mount: Path) -> None:
    """Records, logs and the bundle are beside the clone; the host takes the work in."""
    work = "echo a > a; git add a; git commit -qm a; echo b > b; ! touch ../../../x"
    state = mount / ".ralph" / "clones" / "run"
    with Session(mount, "-n", "1", "--isolation", "clone", "--", "sh", "-ec", work, state=state) as session:
        result = session.finish()
    assert result.status == 0, result.stderr
    agent_id = result.report["session"][-4:]
    assert f"refs/heads/ralph/{agent_id}" not in refs(repo)
    assert (state / "bundles" / f"{result.report['session']}.bundle").is_file()
    subprocess.run(("mount", "-o", "remount,bind,rw", mount), check=True)
    assert review(repo).status == 0
    assert repo.show(f"ralph/{agent_id}:a") == b"a\n"
    assert repo.show(f"ralph/{agent_id}-wip:b") == b"b\n"


@needs_mounts
def test_a_session_in_a_read_only_project_pushes_its_branch(
    repo: Repo, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each commit, from the replica, to the address that the project names; the work comes out as well."""
    origin = tmp_path / "origin.git"
    repo.git("clone", "-q", "--bare", repo.path, origin)
    repo.git("remote", "add", "origin", origin)
    repo.write(".ralph/config.toml", 'push = "origin"\n')
    mount = request.getfixturevalue("mount")
    work = "echo $RALPH_ITERATION > a; git add a; git commit -qm a; echo b > b"
    state, line = mount / ".ralph" / "clones" / "run", ("-n", "2", "--isolation", "clone", "--")
    trust = {"RALPH_TRUST": "1"}
    with Session(mount, *line, "sh", "-ec", work, state=state, env=trust) as session:
        result = session.finish()
    assert (result.status, result.warnings) == (0, []), result.stderr
    branch = result.report["branch"]
    assert repo.git("-C", origin, "log", "--format=%s", f"main..{branch}") == "a\na"
    subprocess.run(("mount", "-o", "remount,bind,rw", mount), check=True)
    assert review(repo).status == 0
    assert repo.git("rev-parse", branch) == repo.git("-C", origin, "rev-parse", branch)


@needs_mounts
def test_a_session_killed_in_a_read_only_project_is_swept_on_the_host(repo: Repo, mount: Path) -> None:
    """The replica that the agent could write is only read: the sweep makes one where it could not."""
    state = mount / ".ralph" / "clones" / "run"
    line = ("--delay", "1h", "--isolation", "clone", "--", "sh", "-ec", "echo a > a")
    with Session(mount, *line, state=state) as session:
        session.wait_for("work.bundled")
        session.send(signal.SIGKILL)
        session.process.wait()
        name = session.directory.name
    subprocess.run(("mount", "-o", "remount,bind,rw", mount), check=True)
    (state / "replicas" / name / "config").write_text("[broken\n")
    assert command("sweep", cwd=repo.path).status == 0
    assert repo.show(f"ralph/{name[-4:]}-wip:a") == b"a\n"
    assert [*(state / "replicas").iterdir(), *(mount / ".ralph" / "run" / "replicas").iterdir()] == []
