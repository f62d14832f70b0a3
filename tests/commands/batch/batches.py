"""A project with tasks, and batches of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.agent_script import PROMISE
from tests.support.sessions import Result, start
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.fork_server import ForkedCommand
    from tests.support.repo import Repo

TASKS = "# Plan\n\n- [ ] one\n- [ ] two\n  with a detail\n- [ ] three\n"

WORK = f"""#!/bin/sh
task=$(head -n 1)
echo "$task" >> "$RALPH_PROJECT/calls"
[ ! -e "$RALPH_PROJECT/during" ] || . "$RALPH_PROJECT/during"
echo "$task" > "$task.txt" && git add . && git commit -qm "$task"
echo '{PROMISE}'
"""
"""An agent: its task is the first line of its prompt. A test can have it do more by a file ``during``."""


class Batch(NamedTuple):
    """A project, its tasks, and an agent that does them.

    Attributes:
        repo: the project.
        agent: the agent's command.

    """

    repo: Repo
    agent: str

    @classmethod
    def make(cls, repo: Repo, directory: Path) -> Batch:
        """Write tasks and agent."""
        repo.write(".gitignore", ".ralph/worktrees/\ncalls\nduring\n")
        repo.write("TASKS.md", TASKS)
        repo.commit("tasks")
        agent = directory / "agent.sh"
        agent.write_text(WORK)
        agent.chmod(0o755)
        return cls(repo, str(agent))

    def start(
        self, *options: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes] | ForkedCommand:
        """Start the batch."""
        words = ("batch", str(self.repo.path / "TASKS.md"), *options, "--", self.agent)
        return start(*words, cwd=cwd or self.repo.path, env=env)

    def run(self, *options: str, **more: Any) -> Result:
        """Run the batch to its end."""
        return result_of(self.start(*options, **more))

    def during(self, script: str) -> None:
        """Have the agent do this before its work, from its next start on."""
        self.repo.write("during", script)

    @property
    def calls(self) -> list[str]:
        """The task of each start of the agent, in no order."""
        path = self.repo.path / "calls"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def wait_for_calls(self, count: int) -> None:
        """Wait until the agent was started so often."""
        eventually(lambda: len(self.calls) >= count, f"{count} starts of the agent")

    @property
    def commits(self) -> list[str]:
        """The subjects of all commits on branches of sessions."""
        listed = self.repo.git("log", "--format=%s", "--branches=ralph/*", "--not", "HEAD")
        return sorted(listed.splitlines())

    @property
    def ids(self) -> set[str]:
        """The agent ids of all branches."""
        return {name.removeprefix("ralph/")[:4] for name in self.repo.branches() if name.startswith("ralph/")}

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The reports of all sessions, the oldest first."""
        paths = sorted(self.repo.path.glob(".ralph/run/sessions/*/report.json"))
        return [json.loads(path.read_text()) for path in paths]

    @property
    def state(self) -> Path:
        """The file with the state."""
        (path,) = self.repo.path.glob(".ralph/run/batches/*/state.json")
        return path


def result_of(process: subprocess.Popen[bytes] | ForkedCommand) -> Result:
    """Wait for the end of a batch."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=CAP * 3)
        finally:
            process.kill()
        return Result(process.wait(), stdout or b"", stderr.decode(errors="replace"), None)
