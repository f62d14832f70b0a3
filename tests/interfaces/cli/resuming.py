"""Sessions of one iteration, and what goes on from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.sessions import command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

COUNT = 'cat > "$RALPH_PROJECT/prompt-$RALPH_ITERATION"; pwd >> "$RALPH_PROJECT/places"; echo x >> new'
"""An agent that shows its prompt and its directory, and leaves one more line in a new file."""


def first(repo: Repo, *options: str, script: str = COUNT, cwd: Path | None = None) -> Result:
    """Run a session of one iteration, and return it."""
    return run(repo.path, "-n", "1", *options, "--", "sh", "-c", script, cwd=cwd)


def id_of(result: Result) -> str:
    """Return the agent id of a session."""
    agent_id: str = result.report["id"]
    return agent_id


def resume(repo: Repo, *arguments: str, cwd: Path | None = None, **env: str) -> Result:
    """Run ``ralph-wrap resume`` to its end."""
    return command("resume", *arguments, cwd=cwd or repo.path, env=env)


def newest(repo: Repo, agent_id: str) -> dict[str, Any]:
    """Return the report of the newest session with an id."""
    path = max(repo.path.glob(f".ralph/run/sessions/*-{agent_id}/report.json"))
    report: dict[str, Any] = json.loads(path.read_text())
    return report
