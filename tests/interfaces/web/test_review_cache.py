"""The review that the page keeps is made again after each change of a session."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralph_wrap.interfaces.web.review_cache import ReviewCache
from ralph_wrap.state.claim import claim_id
from ralph_wrap.state.project import find_project, register_session
from ralph_wrap.system.liveness import myself

if TYPE_CHECKING:
    from tests.support.repo import Repo


def test_a_state_written_in_the_place_of_the_old_one_is_a_change(repo: Repo) -> None:
    """No entry of the directory of records changes then."""
    project = find_project(repo.path, os.environ)
    claim, _ = register_session(
        project, lambda home: claim_id(home, myself(), lambda _="": set(), time.time(), lambda new: new)
    )
    cache = ReviewCache(project)
    assert cache.get(60).fresh
    assert cache.get(0).fresh
    claim.update(state="running")
    assert not cache.get(0).fresh
