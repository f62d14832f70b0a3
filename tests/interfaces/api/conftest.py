"""The project of a Python program."""

from __future__ import annotations

import pytest

from tests.support.repo import Repo


@pytest.fixture
def project(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return the repository, as the current directory of this process."""
    monkeypatch.chdir(repo.path)
    return repo
