"""Root in another user's project: as its owner, it may be unable to read where Python stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interfaces.web.serving import Served
from tests.support.agent_script import PROMISE, TRUSTED, result_line
from tests.support.needs import needs_other_users
from tests.support.orphans import orphan
from tests.support.submodules import make_project
from tests.support.trees import owners
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.support.submodules import Project

pytestmark = [
    needs_other_users,
    pytest.mark.usefixtures("ended"),
]

UID = 12345

LOADS_NOTHING_AS_OWNER = """
import os, sys

class Unreadable:
    def find_spec(self, name, path=None, target=None):
        os.write(2, f"unreadable: {name}\\n".encode())
        raise ModuleNotFoundError(name)

def become(*ids, become=os.setresuid):
    become(*ids)
    sys.meta_path.insert(0, Unreadable())

os.setresuid = become
from ralph_wrap.__main__ import main
main()
"""


@pytest.fixture
def project() -> Iterator[Project]:
    """Return a project with submodules in a place that everybody can reach."""
    with tempfile.TemporaryDirectory(prefix="test-owner-", dir="/tmp") as temporary:
        Path(temporary).chmod(0o755)
        yield make_project(Path(temporary))


def _owned(project: Project) -> dict[str, str]:
    """Give a project and what is around it away, and return the environment for a process in it.

    The state directory in it stays one that only root can see.
    """
    top = project.repo.path
    subprocess.run(("chown", "-R", f"{UID}:{UID}", top.parent), check=True)
    return {**os.environ, **TRUSTED, "HOME": os.fspath(top.parent), "GIT_CONFIG_GLOBAL": os.devnull}


def _as_owner(project: Project, *arguments: str, accept: Collection[int] = (0,), before: str = "") -> str:
    """Run a command as root that may load nothing once it is the owner, and return its stdout.

    Arguments:
        project: in which it runs.
        arguments: of ralph-wrap.
        accept: exit statuses.
        before: Python code that runs first.

    """
    done = subprocess.run(
        (sys.executable, "-c", before + LOADS_NOTHING_AS_OWNER, *arguments),
        cwd=project.repo.path,
        env=_owned(project),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert re.findall(r"unreadable: (.+)", done.stderr) == [], done.stderr
    assert done.returncode in accept, done.stdout + done.stderr
    assert owners(project.repo.path) == {(UID, UID)}
    return done.stdout


def _session(project: Project, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run a session like that; return its report and its stdout."""
    before = {*project.repo.path.glob(".ralph/run/sessions/*")}
    stdout = _as_owner(project, "run", *arguments)
    (directory,) = {*project.repo.path.glob(".ralph/run/sessions/*")} - before
    return json.loads((directory / "report.json").read_text()), stdout


def test_nothing_is_loaded_after_the_change(project: Project) -> None:
    """Of a plain session, which leaves something to save."""
    report, stdout = _session(project, "-n", "1", "--", "sh", "-c", "id -u; echo new > new")
    assert (stdout, report["saved_paths"], report["kept"]) == (f"{UID}\n", ["new"], None)


def test_a_worktree_is_deleted_without_a_python_that_the_owner_can_run(
    project: Project, tmp_path: Path
) -> None:
    """The session deletes it then."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "python").symlink_to(sys.executable)
    other_python = f"import sys; sys.executable = {os.fspath(private / 'python')!r}\n"
    _as_owner(project, "run", "-n", "1", "--", "sh", "-c", "echo new > new", before=other_python)
    trash = project.repo.path / ".ralph/run/trash"
    eventually(lambda: not [*trash.iterdir()], "the deletion to end")
    assert [*project.repo.path.glob(".ralph/worktrees/*")] == []


def test_nothing_is_loaded_for_what_few_sessions_do(project: Project) -> None:
    """Nor where a dead one is finished, the configuration is used, and the branch lands at the end."""
    repo = project.repo
    dead = orphan(repo)
    agent = repo.path.parent / "agent"
    agent.write_text(f"#!/bin/sh\necho more > more; echo new > vendor/x/new\n{result_line(PROMISE)}")
    agent.chmod(0o755)
    repo.write(".worktreeinclude", "*.env\n")
    repo.write("local.env", "secret\n")
    repo.write(
        ".ralph/config.toml",
        'setup = "test -e vendor/x/deep/deep.txt"\ncheck = "test -e more"\nsubmodules = "init"\n'
        'push = "origin"\ncommit_each = true\nmerge_on_complete = "main"\n'
        f'[agents.claude]\ncommand = ["{agent}"]\n',
    )
    repo.write(".git/info/exclude", "local.env\n.worktreeinclude\n")
    repo.git("init", "--quiet", "--bare", repo.path.parent / "origin.git")
    repo.git("remote", "add", "origin", repo.path.parent / "origin.git")
    job = repo.write(".ralph/job.json", '{"prompt": "do it"}')
    report, _ = _session(project, "-a", "claude", "--job", os.fspath(job), "--preamble", "on")
    assert (report["ended_by"], report["cost_usd"]) == ("promise", 0.25)
    assert dead.directory.joinpath("report.json").exists()
    assert (repo.path / "more").read_text() == "more\n"


def test_a_batch_loads_nothing_after_the_change(project: Project) -> None:
    """Neither for a new session, nor for one that goes on."""
    project.repo.write("TASKS.md", "- [ ] a task\n")
    agent = "[ -e failed ] || { touch failed; exit 1; }; echo '" + PROMISE + "'"
    words = ("batch", "TASKS.md", "--max-failures", "1", "--", "sh", "-c", agent)
    _as_owner(project, *words, accept=(1,))
    assert "a task" in _as_owner(project, *words)


@pytest.mark.timeout(300)
def test_no_other_command_loads_anything_after_the_change(project: Project) -> None:
    """Each of them once, where it has something to do."""
    project.repo.write(".ralph/config.toml", "[agents.codex]\noutput = 'text'\n")
    works = ("echo new > new", "echo new > file; git add -A; git commit -qm x")
    saved, landed = (_session(project, "-n", "1", "--", "sh", "-c", work)[0]["id"] for work in works)
    made = json.loads(_as_owner(project, "worktree", "create", "a task"))["data"]["path"]
    for command in (
        "ps --all",
        f"logs {saved}",
        "review",
        f"diff {saved}",
        "trust --show",
        "config show",
        "stop --all",
        f"merge {landed}",
        f"drop {landed}",
        f"restore {landed}",
        f"apply {saved}",
        "worktree list",
        f"worktree cleanup {made}",
        "pool",
        "sweep",
    ):
        _as_owner(project, *command.split())
    _as_owner(project, "quickstart", "--agent", "claude", "--yes", accept=(0, 1))
    _as_owner(project, "doctor", accept=(0, 1))  # by what this machine is
    assert (project.repo.path / "new").read_text() == "new\n"
    assert (project.repo.path / "file").read_text() == "new\n"


@contextmanager
def _server(project: Project, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command like that, and kill what is left of it at the end."""
    argv = (sys.executable, "-c", LOADS_NOTHING_AS_OWNER, name)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(argv, cwd=project.repo.path, env=_owned(project), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_tools_load_nothing_after_the_change(project: Project) -> None:
    """Neither to answer nor at the first call."""
    information = {"name": "by hand", "version": "1"}
    started = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": information}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": started},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "enter_worktree", "arguments": {"name": "try"}}},
    ]
    with _server(project, "mcp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for one in said:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        _, stderr = process.communicate(timeout=CAP)
    assert b"unreadable" not in stderr
    assert Path(answers[1]["result"]["structuredContent"]["path"]).is_dir()


def test_the_pages_load_nothing_after_the_change(project: Project) -> None:
    """Neither for the first one nor for the end."""
    with _server(project, "web") as process:
        assert process.stdout is not None
        served = Served(process, process.stdout.readline().decode().strip())
        entry = served.ask("GET", served.url.partition(str(served.port))[2])
        cookie = entry.headers["set-cookie"].partition(";")[0]
        assert served.ask("GET", entry.headers["location"], Cookie=cookie).status == 200
        process.terminate()
        _, stderr = process.communicate(timeout=CAP)
    assert stderr == b""
