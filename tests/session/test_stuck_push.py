"""A remote that never answers: the push is ended, the session says so, and tries again."""

from __future__ import annotations

import math
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.session.remote import mirror, push
from ralph_wrap.session.remote.submodules import SubmoduleWatch
from ralph_wrap.session.remote.view import RemoteView
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import Log
from tests.support.cancelling import cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.repo import Repo

HURRIED = cancelled(signal.SIGTERM, signal.SIGTERM)
ID, SESSION = "aaaa", "20260714T093005Z-aaaa"


class Pushes:
    """The pids of the pushes that were started, and what the log got."""

    def __init__(self, log: Path) -> None:
        self.pids: list[int] = []
        self._log = log
        self.descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)

    def spare(self, *pids: int) -> None:
        """Note a push."""
        self.pids += pids

    @property
    def text(self) -> str:
        """What was logged."""
        return self._log.read_text()


@pytest.fixture
def pushes(tmp_path: Path) -> Iterator[Pushes]:
    """Return an empty list of pushes."""
    made = Pushes(tmp_path / "log")
    with Log(made.descriptor, terminal=False, colour=False).in_use():
        yield made
    os.close(made.descriptor)


@pytest.fixture
def hanging(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> Git:
    """Return git in a project whose remote hangs; its branch has a commit."""
    repo.git("init", "-q", "--bare", tmp_path / "remote.git")
    repo.git("remote", "add", "origin", tmp_path / "remote.git")
    for key in ("receivepack", "uploadpack"):
        repo.git("config", "--global", f"remote.origin.{key}", script("exec sleep 600"))
    repo.git("branch", f"ralph/{ID}")
    return Git(repo.path, git_environment(os.environ))


class Looks(NamedTuple):
    """What a session calls to push, and what ends the push."""

    look: Callable[[], object]
    end: Callable[[], object]


def _branch_push(git: Git, pushes: Pushes) -> Looks:
    made = push.BranchPush(git, "origin", f"ralph/{ID}", "0" * 40, is_own=True, spare=pushes.spare)
    return Looks(made.start, lambda: made.finish(HURRIED))


def _mirror(git: Git, pushes: Pushes) -> Looks:
    made = mirror.Mirror(
        git,
        "origin",
        RemoteClaim(ID, SESSION, f"ralph/{ID}", "0" * 40),
        RemoteView(ID, SESSION, f"ralph/{ID}", None, {}),
        fence=lambda: None,
        cost=lambda: None,
        submodules=SubmoduleWatch("", CancelToken()),
        cancel=CancelToken(),
    )
    made.spare = pushes.spare

    def look() -> None:
        made.schedule.due = 0.0
        made.go_on(1, None)

    return Looks(look, made.give_up)


BOTH = pytest.mark.parametrize("make", [_branch_push, _mirror])


@BOTH
def test_a_push_that_is_stuck_is_ended_and_tried_again(
    hanging: Git, pushes: Pushes, monkeypatch: pytest.MonkeyPatch, make: Callable[[Git, Pushes], Looks]
) -> None:
    """The limit is over at once: each look ends a push and says so, or starts the next one."""
    for module in (push, mirror):
        monkeypatch.setattr(module, "LONGEST_SILENCE", 0.0)
    monkeypatch.setattr(push, "_FIRST_WAIT", 0.0)
    look, end = make(hanging, pushes)
    for _ in range(4):
        look()
    end()
    assert len({*pushes.pids}) > 1
    assert "for 0 s" in pushes.text


@BOTH
def test_without_the_limit_a_push_runs_for_ever(
    hanging: Git, pushes: Pushes, monkeypatch: pytest.MonkeyPatch, make: Callable[[Git, Pushes], Looks]
) -> None:
    """No look starts another push, and nothing is said."""
    for module in (push, mirror):
        monkeypatch.setattr(module, "LONGEST_SILENCE", math.inf)
    look, end = make(hanging, pushes)
    for _ in range(4):
        look()
    assert (len(pushes.pids), pushes.text) == (1, "")
    end()
