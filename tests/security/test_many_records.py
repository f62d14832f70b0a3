"""An agent forges records of sessions that have not ended: they cost files, and no git process each."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches import read
from ralph_wrap.branches.intake import keep_bases
from ralph_wrap.commands import review
from ralph_wrap.commands.sweep import sweep
from ralph_wrap.git import compare
from ralph_wrap.state import inventory
from ralph_wrap.state.project import find_project, registries
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.liveness import myself

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.state.project import Project
    from tests.support.repo import Repo

FEW, MANY = 3, 20


def _forge(project: Project, numbers: range, branch: str, base: str, state: str = "running") -> None:
    """Write records without a worktree; ``{}`` in the branch is the id."""
    [home, *_] = registries(project)
    for directory in (home.agents, home.sessions, home.replicas):
        directory.mkdir(parents=True, exist_ok=True)
    owner = myself()._replace(start_time=0.5)
    for number in numbers:
        agent_id = f"{number:04x}"
        record = SessionRecord(
            agent_id,
            f"20260101T000000Z-{agent_id}",
            **owner._asdict(),
            state=state,
            branch=branch.format(agent_id),
            base=base,
        )
        (home.sessions / record.session).mkdir(exist_ok=True)
        (home.agents / f"{agent_id}.json").write_bytes(record.to_json())
        (home.agents / f"{agent_id}.lock").touch()


def _ps(project: Project) -> None:
    inventory.sessions(project, datetime.now(UTC), finished=False)


def _sweep(project: Project) -> None:
    assert {entry.action for entry in sweep(project)} == {"finished"}


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that says how many git processes started since its last call."""
    traces = tmp_path / "traces"
    traces.mkdir()
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(traces))

    def count() -> int:
        found = [*traces.iterdir()]
        for trace in found:
            trace.unlink()
        return len(found)

    return count


@pytest.mark.parametrize("branch", ["ralph/{}", "main"])
@pytest.mark.parametrize("state", ["starting", "running"])
@pytest.mark.parametrize("work", [_ps, _sweep, review.look, keep_bases])
def test_forged_records_cost_no_process_each(
    repo: Repo, processes: Callable[[], int], work: Callable[[Project], object], state: str, branch: str
) -> None:
    """Git lists the refs once, whether the records name one branch or different ones."""
    base = repo.head
    repo.write("file", "new")
    repo.commit("new")
    spent = []
    for number in (FEW, MANY):
        project = find_project(repo.path, os.environ)
        _forge(project, range(number), branch, base, state)
        processes()
        work(project)
        spent.append(processes())
    assert spent[0] == spent[1] <= 15


def test_different_bases_have_a_limit(
    repo: Repo, processes: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each base needs a walk; after the limit the number of commits is unknown."""
    monkeypatch.setattr(compare, "MOST_COUNTS", 5)
    project = find_project(repo.path, os.environ)
    for number in range(10):
        _forge(project, range(number, number + 1), "main", f"{number:040x}")
    processes()
    _ps(project)
    assert processes() <= 5 + 2


def test_many_names_do_not_fill_a_command_line(repo: Repo) -> None:
    """1,200 names of 2,000 characters are more than the kernel passes to a program (execve(2))."""
    project = find_project(repo.path, os.environ)
    _forge(project, range(1200), "{}" + f"/{'n' * 199}" * 10, repo.head)
    assert read(project) == []
