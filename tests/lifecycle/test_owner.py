"""Root in somebody else's project: as its owner, it may be unable to read where Python stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.orphans import orphan
from tests.support.scripted import PROMISE, TRUSTED, result_line
from tests.support.submodules import make_project
from tests.support.trees import owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.submodules import Project

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

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
    with tempfile.TemporaryDirectory(prefix="test-owner-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        yield make_project(Path(place))


def _as_owner(project: Project, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run a session as root that may load nothing once it is the owner; return its report and its stdout."""
    top = project.repo.path
    subprocess.run(("chown", "-R", f"{UID}:{UID}", top.parent), check=True)
    before = {*top.glob(".ralph/run/sessions/*")}
    done = subprocess.run(
        (sys.executable, "-c", LOADS_NOTHING_AS_OWNER, "run", *arguments),
        cwd=top,
        env={**os.environ, **TRUSTED, "HOME": os.fspath(top.parent), "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert re.findall(r"unreadable: (.+)", done.stderr) == [], done.stderr
    assert done.returncode == 0, done.stderr
    assert owners(top) == {(UID, UID)}
    (directory,) = {*top.glob(".ralph/run/sessions/*")} - before
    return json.loads((directory / "report.json").read_text()), done.stdout


def test_nothing_is_loaded_after_the_change(project: Project) -> None:
    """Of a plain session, which leaves something to save."""
    report, stdout = _as_owner(project, "-n", "1", "--", "sh", "-c", "id -u; echo new > new")
    assert (stdout, report["saved_paths"], report["kept"]) == (f"{UID}\n", ["new"], None)


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
    report, _ = _as_owner(project, "-a", "claude", "-p", "do it", "--preamble", "on")
    assert (report["ended_by"], report["cost_usd"]) == ("promise", 0.25)
    assert dead.directory.joinpath("report.json").exists()
    assert (repo.path / "more").read_text() == "more\n"
