"""A repository that an agent has added to its branch: review and merge name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commands.review.reviewing import look_at, rows_of
from tests.support.merging import land
from tests.support.repo import Repo, make_repo

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.system.log import Log


pytestmark = pytest.mark.usefixtures("trusted")


@pytest.fixture
def added(repo: Repo) -> Repo:
    """Return a project in which a branch has the repository ``sub``."""
    repo.git("worktree", "add", "-q", "-b", "ralph/aaaa", "../elsewhere")
    inside = Repo(repo.path.parent / "elsewhere")
    make_repo(inside.path / "sub")
    inside.git("add", "sub")
    inside.git("commit", "-q", "-m", "add sub")
    return repo


def test_review_names_it(added: Repo) -> None:
    """Its files do not come along, so whoever decides has to know before."""
    why = "it is a git repository that .gitmodules does not name"
    note = f"ralph/aaaa: a merge does not bring the files in sub: {why}"
    assert note in look_at(added).notes
    (touch,) = rows_of(added)["aaaa"].touches or ()
    assert touch == ("sub", "gitlink")


def test_review_does_not_repeat_it_after_the_merge(added: Repo) -> None:
    """Nothing can be decided any more."""
    land(added, "aaaa")
    assert not any("sub" in note for note in look_at(added).notes)


def test_merge_names_it(added: Repo, log: Log, tmp_path: Path) -> None:
    """The landed branch has an empty directory there."""
    events = tmp_path / "events.jsonl"
    log.attach(events)
    (landed,) = land(added, "aaaa")
    assert (landed.outcome, landed.gitlinks) == ("landed", ("sub",))
    assert "the files in sub have not come along with ralph/aaaa" in events.read_text()
    assert not [*(added.path / "sub").iterdir()]
