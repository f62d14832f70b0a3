"""The OOM killer: it takes an agent, a session, or with PID 1 the whole container."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.container.test_init import records, work

if TYPE_CHECKING:
    from tests.container.box import Box, StartBox
    from tests.support.repo import Repo

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

MEMORY = "192m"
GREEDY = 'python3 -c "hold = bytearray(1 << 30)"'
"""Takes more than there is, and is the largest process by far."""
FIRST = "echo 1000 > /proc/{pid}/oom_score_adj"
"""Have a process be the one that the OOM killer takes (proc(5): oom_score_adj)."""


def _saved_drafts(repo: Repo, box: Box) -> dict[str, str]:
    """Return what ended each session whose draft was saved, by its id."""
    reports = [json.loads(path.read_text()) for path in repo.path.glob(".ralph/run/sessions/*/report.json")]
    for report in reports:
        assert repo.git("show", f"ralph/{report['id']}-wip:draft.txt") == "draft", box.log()
    assert [*repo.path.glob(".ralph/worktrees/*"), *repo.worktrees(), *records(repo)] == []
    return {report["id"]: report["ended_by"] for report in reports}


def test_an_agent_that_is_killed_has_failed(start_box: StartBox, repo: Repo) -> None:
    """As any other that ends with 137: its session goes on, and saves what is there."""
    box = start_box(repo.path, memory=MEMORY)
    ended = box.run(
        *("ralph-wrap", "run", "--max-failures", "1", "--"),
        *("sh", "-c", f"echo draft > draft.txt; exec {GREEDY}"),
    )
    assert ended.status == 137, ended.stderr
    assert [*_saved_drafts(repo, box).values()] == ["max-failures"]


def test_a_session_that_is_killed_is_finished_by_a_sweep(start_box: StartBox, repo: Repo) -> None:
    """Its agent, orphaned, is ended; the other session goes on."""
    box = start_box(repo.path, memory=MEMORY)
    work(box, 2)
    first, second = (json.loads(record.read_text()) for record in records(repo))
    box.run("sh", "-c", FIRST.format(pid=first["pid"]))
    box.run("sh", "-c", GREEDY)
    swept = box.run("ralph-wrap", "sweep")
    assert swept.status == 0, swept.stderr
    assert [json.loads(record.read_text())["id"] for record in records(repo)] == [second["id"]]
    assert box.end() == 0
    assert _saved_drafts(repo, box) == {first["id"]: "killed", second["id"]: "signal"}


def test_a_container_that_is_killed_is_finished_by_its_next_start(start_box: StartBox, repo: Repo) -> None:
    """With PID 1 everything dies at once."""
    box = start_box(repo.path, memory=MEMORY)
    work(box, 2)
    box.run("sh", "-c", FIRST.format(pid=1))
    box.start("sh", "-c", GREEDY)
    assert box.wait() == 137
    assert len(records(repo)) == 2
    box.container.start()
    box.eventually(lambda: not records(repo), "the sweep")
    assert [*_saved_drafts(repo, box).values()] == ["killed"] * 2
