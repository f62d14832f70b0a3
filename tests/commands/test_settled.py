"""The claim of a session that never stops to push."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.fetch.remote import RemoteSessions
from ralph_wrap.errors import ConflictError
from ralph_wrap.state.project import find_project
from ralph_wrap.state.remote_claim import RemoteClaim

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.mark.timeout(20)
def test_a_claim_that_moves_at_each_look_is_given_up(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live session can push as often as we fetch: taking it over ends with an error, and not never."""
    repo.git("remote", "add", "origin", str(repo.path))
    sessions, numbers = RemoteSessions(find_project(repo.path, os.environ), "origin"), count()
    claim = RemoteClaim("3f9a", "20260101T000000Z-3f9a", "ralph/3f9a", repo.head)
    monkeypatch.setattr(sessions, "fetch_one", lambda _: (f"{next(numbers):040x}", claim))
    with pytest.raises(ConflictError, match="runs on another machine"):
        sessions.settled("3f9a", "", at_once=True)
