"""The current worktree of a Python program: nested blocks, threads, iterations."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ralph_wrap import (
    AgentResult,
    Session,
    Settings,
    Worktree,
    run_agent,
)
from ralph_wrap.errors import (
    NotFoundError,
)
from tests.interfaces.api.project import current_branch, default_path, trees_of
from tests.support.repo import Repo

PWD = ("sh", "-c", "pwd; cat")


# Context propagation, nested shadowing, explicit cwd wins


@pytest.mark.usefixtures("project")
def test_the_inner_worktree_shadows_the_outer() -> None:
    """None outside; after the inner block the outer one is back."""
    seen = [current_branch()]
    with Worktree("outer"):
        seen.append(current_branch())
        with Worktree("inner"):
            seen.append(current_branch())
        seen.append(current_branch())
    assert [*seen, current_branch()] == [None, "outer", "inner", "outer", None]


@pytest.mark.usefixtures("project")
def test_blocks_that_end_in_another_order() -> None:
    """One that has ended never comes back."""
    outer, inner = Worktree("outer"), Worktree("inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__()
    assert current_branch() == "inner"
    inner.__exit__()
    assert current_branch() is None


@pytest.mark.usefixtures("project")
def test_a_block_within_itself() -> None:
    """It would end twice; the same object may be used again afterwards."""
    tree = Worktree("topic")
    with tree, pytest.raises(RuntimeError, match="is already in the block of"), tree:
        pass
    with tree:
        assert current_branch() == "topic"


@pytest.mark.usefixtures("project")
def test_threads_that_copy_the_context_see_their_own() -> None:
    """A plain thread starts outside, one with a copy of the context inside; it enters for itself alone."""
    seen: dict[str, str | None] = {}

    def enter() -> None:
        with Worktree("inner"):
            seen["entered"] = current_branch()

    with Worktree("outer"):
        one, other = contextvars.copy_context(), contextvars.copy_context()
        works: list[Callable[[], object]] = [
            lambda: seen.update(plain=current_branch()),
            lambda: one.run(lambda: seen.update(copied=current_branch())),
            lambda: other.run(enter),
        ]
        for work in works:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert seen == {"plain": None, "copied": "outer", "entered": "inner"}
        assert current_branch() == "outer"


@pytest.mark.usefixtures("project")
def test_an_agent_works_in_the_current_worktree() -> None:
    """The innermost; outside of all in the current directory."""
    with Worktree("outer"), Worktree("inner") as tree:
        assert run_agent("the prompt", PWD) == AgentResult(0, f"{tree.path}\nthe prompt")
    assert run_agent("", PWD) == AgentResult(0, f"{Path.cwd()}\n")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("kind", [str, Path])
def test_an_explicit_cwd_wins(tmp_path: Path, kind: type) -> None:
    """Also over the current worktree."""
    with Worktree("topic"):
        assert run_agent("", PWD, cwd=kind(tmp_path)).output == f"{tmp_path}\n"


def test_a_straggler_never_works_in_the_users_files(project: Repo) -> None:
    """A task that outlives its block, and the worktree, finds no directory rather than another one."""
    with Worktree("topic", cleanup=True):
        context = contextvars.copy_context()
    with pytest.raises(NotFoundError, match=str(default_path(project, "topic"))):
        context.run(run_agent, "", PWD)


# Persists across loop iterations


def test_a_sessions_worktree_persists_across_loop_iterations(
    project: Repo, script: Callable[[str], str]
) -> None:
    """What one iteration leaves, the next one finds."""
    settings = Settings(project=project.path, command=(script("echo x >> log; cat log"),), max_iterations=3)
    with Session(settings) as session:
        session.run()
    assert session.report is not None
    assert project.show(f"{session.report.saved}:log") == b"x\nx\nx\n"


def test_a_context_persists_across_iterations_of_a_program(project: Repo) -> None:
    """A loop around the block works in the same worktree each time."""
    seen = []
    for _ in range(3):
        with Worktree("topic") as tree:
            seen.append(run_agent("", ("sh", "-c", "echo x >> log; cat log")).output)
    assert seen == ["x\n", "x\nx\n", "x\nx\nx\n"]
    assert trees_of(project) == [tree.path]
