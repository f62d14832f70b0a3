"""What ``ralph-wrap worktree`` answers to a program."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.repo import Repo
from tests.support.sessions import Result, command


def envelope_of(result: Result) -> dict[str, Any]:
    """Return the envelope, which is all of stdout."""
    [line] = result.stdout.decode().splitlines()
    envelope: dict[str, Any] = json.loads(line)
    assert (envelope["version"], envelope["tool"]) == (1, "worktree")
    return envelope


def data(result: Result) -> Any:
    """Return the data of an answer that is no error."""
    envelope = envelope_of(result)
    assert (result.status, envelope["success"]) == (0, True), (envelope, result.stderr)
    assert envelope.keys() == {"version", "success", "tool", "data"}
    return envelope["data"]


def create(repo: Repo, *words: str | os.PathLike[str], cwd: Path | None = None) -> Any:
    """Create a worktree, and return its data."""
    return data(command("worktree", "create", *words, cwd=cwd or repo.path))
