"""The remote of several machines, and what sessions have there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.repo import Repo


def refs(remote: Repo) -> dict[str, str]:
    """Return the refs of the remote that belong to sessions."""
    rows = remote.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/ralph", "refs/ralph")
    return dict(row.split(" ", 1) for row in rows.splitlines())


def claim_of(remote: Repo, agent_id: str) -> dict[str, Any]:
    """Return the claim on a session."""
    found: dict[str, Any] = json.loads(remote.show(f"refs/ralph/claims/{agent_id}"))
    return found
