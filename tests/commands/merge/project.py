"""A project to merge in."""

from __future__ import annotations

import json
from typing import Any

from tests.support.repo import Repo
from tests.support.sessions import command


def merge(repo: Repo, *arguments: str, **env: str) -> tuple[int, Any]:
    """Run ``ralph-wrap merge --json``; return its status and the envelope."""
    ended = command("merge", *arguments, "--json", cwd=repo.path, env=env)
    return ended.status, json.loads(ended.stdout)
