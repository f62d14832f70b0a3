"""Pools, filled and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import left
from tests.support.sessions import command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result


def configure(repo: Repo, *lines: str) -> None:
    """Write the configuration."""
    (repo.path / ".ralph" / "config.toml").write_text("".join(f"{line}\n" for line in lines))


def settle(tmp_path: Path) -> None:
    """Wait until nothing runs that was started in the background."""
    eventually(lambda: left(tmp_path / "home") == {}, "the pool to be filled", 30)


def fill(repo: Repo) -> list[dict[str, Any]]:
    """Fill the pool, and return what is in it."""
    result = command("pool", "--fill", "--json", cwd=repo.path)
    assert result.status == 0, result.stderr
    entries: list[dict[str, Any]] = json.loads(result.stdout)["data"]
    return entries


def warm(repo: Repo) -> list[Path]:
    """Return the directories in the pool."""
    return sorted((repo.path / ".ralph/run/pool").glob("warm-*"))


def run(repo: Repo, script: str, *options: str) -> Result:
    """Run one iteration of a script in a session that must be isolated."""
    return command(
        "run", "--isolation", "require", "-n", "1", *options, "--", "sh", "-c", script, cwd=repo.path
    )
