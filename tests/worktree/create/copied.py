"""Which files a session has copied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.sessions import Result

if TYPE_CHECKING:
    from tests.support.repo import Repo


def configure(repo: Repo, *patterns: str) -> None:
    """Have files copied that match."""
    repo.write(".ralph/config.toml", f"copy = {json.dumps(patterns)}\n")


def files_in(ended: Result) -> list[str]:
    """Return what an agent that lists its files has found, but for what is committed."""
    assert ended.status == 0, ended.stderr
    found = {line.removeprefix("./") for line in ended.stdout.decode().splitlines()}
    return sorted(found - {".gitignore", ".env.example", "file.txt"})


def left_out(ended: Result) -> list[str]:
    """Return what a session has said of files that it did not copy."""
    return [event["message"] for event in ended.warnings if event["event"] == "files.not_copied"]


def copied(ended: Result) -> list[int]:
    """Return how many files it says it has copied."""
    return [event["count"] for event in ended.events if event["event"] == "files.copied"]
