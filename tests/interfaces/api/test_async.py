"""Worktrees for asynchronous Python programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from ralph_wrap import (
    Worktree,
    run_agent,
)
from ralph_wrap.errors import (
    NotFoundError,
)
from tests.interfaces.api.project import current_branch, default_path, names_in, trees_of, untracked
from tests.support.git_shim import shim_git
from tests.support.repo import Repo

PWD = ("sh", "-c", "pwd; cat")


# async


def _finish(work: Awaitable[None]) -> None:
    async def run() -> None:
        await asyncio.wait_for(work, 60)

    asyncio.run(run())


def test_an_async_block(project: Repo) -> None:
    """As the other one: current inside, cleaned up after."""

    async def work() -> None:
        async with Worktree("outer") as outer, Worktree("inner", cleanup=True) as inner:
            assert (outer.path, inner.path) == (
                default_path(project, "outer"),
                default_path(project, "inner"),
            )
            assert current_branch() == "inner"
            assert (await asyncio.to_thread(run_agent, "", PWD)).output == f"{inner.path}\n"
        assert current_branch() is None

    _finish(work())
    assert trees_of(project) == [default_path(project, "outer")]


@pytest.mark.usefixtures("project")
def test_tasks_see_their_own() -> None:
    """Whatever others enter and leave meanwhile."""

    async def one(name: str, entered: asyncio.Barrier) -> str | None:
        async with Worktree(name):
            await entered.wait()
            return current_branch()

    async def work() -> None:
        names = ["a", "b", "c", "a"]
        async with Worktree("outer"):
            entered = asyncio.Barrier(len(names))
            assert await asyncio.gather(*(one(name, entered) for name in names)) == names
            assert current_branch() == "outer"

    _finish(work())


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Have checkout and status say that they have begun, by a file, and wait for another; return both."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    wait = f'*" read-tree --reset "*|*" status "*) touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done ;;'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "slow", wait))
    yield begun, go
    go.touch()


@pytest.mark.usefixtures("project")
def test_others_go_on_while_git_works(slow_git: tuple[Path, Path]) -> None:
    """The event loop is not blocked."""
    begun, go = slow_git

    async def enter() -> str | None:
        async with Worktree("topic"):
            return current_branch()

    async def work() -> None:
        entering = asyncio.create_task(enter())
        while not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        assert not entering.done()
        go.touch()
        assert await entering == "topic"

    _finish(work())


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_task_that_is_cancelled_while_git_works(
    project: Repo, slow_git: tuple[Path, Path], cleanup: bool
) -> None:
    """What git makes in the end is not lost sight of."""
    begun, go = slow_git

    async def work() -> None:
        tree = Worktree("topic", cleanup=cleanup)
        entering = asyncio.create_task(tree.__aenter__())
        while not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        entering.cancel()
        go.touch()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert tree.state == "error"

    _finish(work())
    assert bool(trees_of(project)) is not cleanup
    if not cleanup:
        assert project.git("status", "--porcelain", cwd=default_path(project, "topic")) == ""


def test_an_async_failure_to_clean_up_is_a_warning(project: Repo) -> None:
    """And the worktree stays."""

    async def work() -> None:
        async with Worktree("topic", cleanup=True) as tree:
            untracked(tree.path)

    with pytest.warns(RuntimeWarning, match="uncommitted: new"):
        _finish(work())
    assert trees_of(project) == [default_path(project, "topic")]


def test_a_task_that_is_cancelled_while_it_cleans_up(project: Repo, slow_git: tuple[Path, Path]) -> None:
    """It does so to the end, and still tells what was kept."""
    begun, go = slow_git

    async def end(tree: Worktree) -> None:
        async with tree:
            untracked(tree.path)
            begun.unlink()
            go.unlink()

    async def work() -> None:
        go.touch()
        ending = asyncio.create_task(end(Worktree("topic", cleanup=True)))
        while go.exists() or not begun.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        ending.cancel()
        go.touch()
        with pytest.raises(asyncio.CancelledError):
            await ending

    with pytest.warns(RuntimeWarning, match="uncommitted: new"):
        _finish(work())
    assert trees_of(project) == [default_path(project, "topic")]


@pytest.mark.usefixtures("project")
def test_an_async_error() -> None:
    """The callback gets it, then it is raised."""
    seen: list[Exception] = []

    async def work() -> None:
        async with Worktree("topic", base="nowhere", on_error=seen.append):
            pass

    with pytest.raises(NotFoundError) as caught:
        _finish(work())
    assert seen == [caught.value]


def test_many_want_the_same_branch_at_once(project: Repo) -> None:
    """One makes the worktree, the others find it whole."""
    found: list[tuple[Path, list[str]]] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        with Worktree("topic") as tree:
            found.append((tree.path, names_in(tree.path)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(default_path(project, "topic"), [".git", "file.txt"])] * 6
