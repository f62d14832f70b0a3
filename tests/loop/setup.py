"""Sessions of a project with a ``setup``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.sessions import Result

if TYPE_CHECKING:
    from tests.support.repo import Repo


def configure(repo: Repo, setup: str, **more: Any) -> None:
    """Have a command run in each new worktree."""
    rows = {"setup": setup, **more}
    repo.write(".ralph/config.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items()))


def ended(result: Result) -> list[tuple[int, str | None]]:
    """Return status and cut of each setup that has ended."""
    return [(event["status"], event["cut"]) for event in result.events if event["event"] == "setup.ended"]
