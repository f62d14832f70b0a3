"""``ralph-wrap drop --forever``: what goes cannot be restored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands import drop as dropping
from ralph_wrap.state.project import find_project
from tests.commands.drop.dropping import drop_some, refs
from tests.support.histories import grow, record
from tests.support.sessions import PROGRAM, command
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("trusted")


def _forever(repo: Repo, *words: str, status: int = 0) -> None:
    assert command("drop", "--forever", "--yes", *words, cwd=repo.path).status == status


def test_a_branch_is_dropped_for_ever(repo: Repo) -> None:
    """With its saved work and its snapshots; another id keeps its own."""
    tip = grow(repo, "ralph/aaaa", "main", {"new": "new\n"})
    grow(repo, "ralph/aaaa-wip", tip, {"more": "more\n"})
    repo.git("branch", "ralph/bbbb")
    for agent_id in ("aaaa", "bbbb"):
        repo.git("update-ref", f"refs/ralph/snapshots/{agent_id}/1", repo.head)
    _forever(repo, "aaaa", status=5)
    assert "heads/ralph/aaaa" in refs(repo)
    _forever(repo, "aaaa", "--force")
    assert [*refs(repo)] == ["heads/ralph/bbbb", "ralph/snapshots/bbbb/1"]


def test_what_was_dropped_before_goes_for_ever(repo: Repo) -> None:
    """By its id; what was dropped and is not named can still come back."""
    for agent_id in ("aaaa", "bbbb"):
        repo.git("branch", f"ralph/{agent_id}")
        assert drop_some(repo, agent_id) is None
    _forever(repo, "aaaa")
    assert [*refs(repo)] == ["ralph/dropped/bbbb"]


def test_the_branch_that_is_there_goes_and_not_the_one_dropped_before(repo: Repo) -> None:
    """Both have the id; they are at the same commit."""
    repo.git("branch", "ralph/aaaa")
    assert drop_some(repo, "aaaa") is None
    repo.git("branch", "ralph/aaaa")
    project = find_project(repo.path, os.environ)
    assert dropping.dropped_before(project, ["aaaa"]) == {}


def test_a_selection_goes_for_ever(repo: Repo) -> None:
    """``--merged``: what has not landed stays."""
    repo.git("branch", "ralph/aaaa")
    tip = grow(repo, "ralph/bbbb", "main", {"new": "new\n"})
    _forever(repo, "--merged")
    assert refs(repo) == {"heads/ralph/bbbb": tip}


def test_nothing_goes_for_ever_without_a_word(repo: Repo) -> None:
    """Neither without a selection, nor without a yes: a script has to say it, and a person is asked."""
    repo.git("branch", "ralph/aaaa")
    _forever(repo, status=2)
    assert command("drop", "--forever", "aaaa", cwd=repo.path).status == 2
    with Terminal(PROGRAM, "drop", "--forever", "aaaa", cwd=repo.path) as terminal:
        terminal.wait_for("delete 1 for ever?")
        terminal.type(b"n\n")
        assert terminal.finish() == 5
    assert refs(repo) == {"heads/ralph/aaaa": repo.head}
    _forever(repo, "aaaa")
    assert refs(repo) == {}


def test_its_hints_repeat_it(repo: Repo) -> None:
    """Pasted, they do what was asked for: what goes cannot come back."""
    grow(repo, "ralph/aaaa", "main", {"new": "new\n"})
    one = command("drop", "--forever", "--yes", "aaaa", cwd=repo.path).stderr
    assert "to drop it: ralph-wrap drop --forever --force aaaa" in one
    every = command("drop", "--forever", "--yes", "--all", cwd=repo.path).stderr
    assert "to drop them, too: ralph-wrap drop --all --forever --force" in every


@pytest.mark.parametrize("words", [("drop", "--forever", "--yes"), ("drop",), ("restore",), ("diff",)])
def test_what_is_gone_for_ever_is_said(repo: Repo, words: tuple[str, ...]) -> None:
    """A session knows its branch longer than git does."""
    session = record(repo, "aaaa", repo.head, branch="ralph/aaaa")
    repo.git("branch", "ralph/aaaa")
    _forever(repo, "aaaa")
    result = command(*words, "aaaa", cwd=repo.path)
    assert result.status == 4
    assert "branch ralph/aaaa does not exist any more, and cannot be restored" in result.stderr
    assert f"to see what its session printed: ralph-wrap logs {session}" in result.stderr
