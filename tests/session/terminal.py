"""Reports of sessions on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.repo import Repo


def report_of(repo: Repo) -> dict[str, object]:
    """Return the report of the only session."""
    (path,) = (repo.path / ".ralph" / "run" / "sessions").glob("*/report.json")
    loaded: dict[str, object] = json.loads(path.read_text())
    return loaded
