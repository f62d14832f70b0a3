"""How many git processes a session starts: beside busy agents, each one costs time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.git.repository import parse_version
from tests.support.sessions import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

_COUNTS_SYNCS = (2, 36)


@pytest.mark.parametrize(
    ("script", "most"),
    [("true", 15), ("echo new > new", 24), ("git commit -q --allow-empty -m work", 24)],
    ids=["no change", "a new file", "a commit"],
)
def test_git_processes_of_a_session(repo: Repo, tmp_path: Path, script: str, most: int) -> None:
    """The processes that git starts itself count, and those of the agent do not."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project that has run sessions before")
    trace = tmp_path / "trace"
    # A file younger than a tick of the clock costs one more look.
    agent = f"unset GIT_TRACE2_EVENT; {script}; sleep 0.05"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent, env={"GIT_TRACE2_EVENT": str(trace)})
    assert ended.status == 0
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    commands = [event["argv"] for event in events if event["event"] == "start"]
    # The dates in the environment of the tests are checked by one more.
    commands = [command for command in commands if command[-2:] != ["var", "GIT_COMMITTER_IDENT"]]
    assert 0 < len(commands) <= most, commands


@pytest.mark.parametrize(
    ("script", "most"),
    [
        ("true", 2),
        ("echo $RALPH_ITERATION > new", 6),  # the process that reads the snapshot back leaves no trace
        ("[ $RALPH_ITERATION != 1 ] || echo new > new", 3),
        (
            "git commit -q --allow-empty -m work; echo $RALPH_ITERATION > new; git add new; git commit -qm b",
            6,
        ),
    ],
    ids=["no change", "a file", "the same work as before", "a commit"],
)
def test_git_processes_of_one_more_iteration(repo: Repo, tmp_path: Path, script: str, most: int) -> None:
    """A session iterates a hundred times; the number of files that changed does not matter."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project that has run sessions before")
    counts = []
    for iterations in (3, 4):
        trace = tmp_path / f"trace-{iterations}"
        agent = ("--", "sh", "-c", f"unset GIT_TRACE2_EVENT; {script}")
        options = ("-n", str(iterations), "--max-stalls", "9")
        assert run(repo.path, *options, *agent, env={"GIT_TRACE2_EVENT": str(trace)}).status == 0
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        counts.append(sum(event["event"] == "start" for event in events))
    assert counts[1] - counts[0] <= most


def test_a_save_syncs_what_it_stores_and_not_its_copy_of_the_index(repo: Repo, tmp_path: Path) -> None:
    """Git writes each object out, and the sync of the commit or pack that follows is for all of them."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project that has run sessions before")
    trace = tmp_path / "trace"
    agent = "unset GIT_TRACE2_EVENT; for i in 1 2 3; do echo $i > new-$i; done; sleep 0.05"
    assert (
        run(repo.path, "-n", "1", "--", "sh", "-c", agent, env={"GIT_TRACE2_EVENT": str(trace)}).status == 0
    )
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    number = next(event["exe"] for event in events if event["event"] == "version")
    if parse_version(f"git version {number}".encode()) < _COUNTS_SYNCS:
        pytest.skip(f"git {number} counts no syncs: git 2.36 is the first that does")
    started = [event for event in events if event["event"] == "cmd_name"]
    names = {event["sid"]: event["name"] for event in started if "/" not in event["sid"]}  # no git of a git
    synced: dict[str, list[dict[str, int]]] = {}
    for sid, name in names.items():
        counted = [event for event in events if event["sid"] == sid and event.get("category") == "fsync"]
        counts = dict(map(_count, counted))
        synced.setdefault(name, []).append(counts)
    assert synced["update-index"] == [{"writeout-only": 3}]
    assert synced["write-tree"] == [{}, {"writeout-only": 1}]  # that of the index is known
    assert all("hardware-flush" in counts for counts in synced["pack-objects"])
    assert synced["commit-tree"] == [{"hardware-flush": 1}] * 2
    assert synced["update-ref"] == [{"writeout-only": 1}, {"hardware-flush": 1}]  # we sync the new branch


def _count(event: dict[str, Any]) -> tuple[str, int]:
    """Return what was synced, and how often: in an event *counter*, up to git 2.39 in an event *data*."""
    if event["event"] == "counter":
        return event["name"], event["count"]
    return event["key"].removeprefix("fsync/"), int(event["value"])
