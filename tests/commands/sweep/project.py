"""Projects to sweep."""

from __future__ import annotations

from tests.support.directory_listing import listing
from tests.support.repo import Repo

NESTED = "echo new > new; git init -q inner; git -C inner commit -q --allow-empty -m inner"
"""Work that cannot be saved."""


def state(repo: Repo) -> dict[str, object]:
    """Return everything that a sweep could change."""
    return {"files": listing(repo.path), **repo.fingerprint()}
