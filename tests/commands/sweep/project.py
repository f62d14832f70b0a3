"""Projects to sweep."""

from __future__ import annotations

from tests.support.directory_listing import listing
from tests.support.repo import Repo


def state(repo: Repo) -> dict[str, object]:
    """Return everything that a sweep could change."""
    return {"files": listing(repo.path), **repo.fingerprint()}
