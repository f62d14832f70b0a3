"""What a person reads at the end: what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.state.report import SessionReport, summary

OURS, THEIRS = {"branch": "ralph/a3f2"}, {"branch": "topic;x"}
COMMITS: dict[str, Any] = {"commits": 2}
SAVED: dict[str, Any] = {"saved": "ralph/a3f2-wip", "saved_paths": ("a",)}


def _rows(location: str = "", **facts: Any) -> list[str]:
    """Return the lines of a summary."""
    report = SessionReport(
        id="a3f2",
        session="20261121T203045Z-a3f2",
        agent="x",
        started="",
        ended="",
        exit_status=0,
        iterations=1,
        base="0123456789abcdef",
        **{"ended_by": "promise"} | facts,
    )
    return summary(report, Path("/log"), location).splitlines()


def _next(location: str = "", **facts: Any) -> list[str]:
    """Return what stands behind the path of the output."""
    rows = _rows(location, **facts)
    return rows[rows.index("  output     /log") + 1 :]


@pytest.mark.parametrize(
    ("facts", "commands"),
    [
        (OURS | COMMITS, ["ralph-wrap diff a3f2", "ralph-wrap merge a3f2"]),
        (OURS | SAVED, ["ralph-wrap diff --saved a3f2", "ralph-wrap apply a3f2"]),
        (
            OURS | COMMITS | SAVED,
            ["ralph-wrap diff --saved a3f2", "ralph-wrap merge a3f2", "ralph-wrap apply a3f2"],
        ),
        (
            {"branch": "ralph/x;y"} | COMMITS,
            ["ralph-wrap diff 'ralph/x;y'", "ralph-wrap merge 'ralph/x;y'"],
        ),
        (THEIRS | COMMITS, ["ralph-wrap diff 'topic;x'", "ralph-wrap merge 'topic;x'"]),
        (THEIRS | SAVED, ["ralph-wrap diff --saved 'topic;x'", "ralph-wrap apply 'topic;x'"]),
        (OURS | {"commits": 0, "resumes": "s"}, ["ralph-wrap diff a3f2", "ralph-wrap merge a3f2"]),
        ({"saved": "a;b", "saved_paths": ("a",)}, ["git diff 'a;b'^ 'a;b'"]),
    ],
)
def test_each_line_is_a_command_for_the_next_step(facts: dict[str, Any], commands: list[str]) -> None:
    """What has come of the session decides, whatever its branch is called; earlier sessions count."""
    labels = ["next", *[""] * len(commands)]
    assert _next(**facts) == [
        f"  {label:<10} {words}" for label, words in zip(labels, commands, strict=False)
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        THEIRS,
        OURS | {"saved": "ralph/a3f2-wip"},
        OURS | {"snapshots": ("refs/ralph/snapshots/a3f2/commit-1",)},
        COMMITS,
    ],
    ids=repr,
)
def test_nothing_came_of_it(facts: dict[str, Any]) -> None:
    """So nothing is next."""
    assert _next(**facts) == []


LIMITS = ["max-iterations", "max-failures", "max-stalls", "max-time", "max-cost", "max-tokens"]


@pytest.mark.parametrize("ended_by", [*LIMITS, "usage-limit", "leak", "stop", "signal"])
def test_a_session_that_did_not_finish_can_go_on(ended_by: str) -> None:
    """Its id is enough, also on a branch of the user. A worktree that was kept goes first."""
    kept = {"kept": "it is dirty", "workspace": "/w"}
    assert _next(ended_by=ended_by, branch="topic;x")[0] == "  go on      ralph-wrap resume a3f2"
    assert _next(ended_by=ended_by, branch="topic;x", **kept) == [
        "  go on      ralph-wrap rm a3f2",
        "             ralph-wrap resume a3f2",
    ]


def test_another_way_out_is_the_only_command() -> None:
    """Until then, rm and resume refuse."""
    kept = {"kept": "it is damaged", "workspace": "/w", "way_out": "ralph-wrap sweep"}
    assert _next(ended_by="max-iterations", branch="topic;x", **kept) == ["  remove     ralph-wrap sweep"]


@pytest.mark.parametrize("facts", [{"branch": "topic"}, {"ended_by": "signal"}], ids=repr)
def test_a_session_that_has_finished_does_not_go_on(facts: dict[str, Any]) -> None:
    """Nor one whose branch is gone."""
    assert _next(**facts) == []


def test_every_command_finds_the_project() -> None:
    """From where the user stands."""
    facts = OURS | COMMITS | {"ended_by": "signal", "kept": "it is dirty", "workspace": "/w"}
    commands = [row[13:] for row in _next("-C ../p", **facts)]
    assert commands == [f"ralph-wrap {verb} -C ../p a3f2" for verb in ("diff", "merge", "rm", "resume")]


@pytest.mark.parametrize("ended_by", ["signal", "stop", "killed", "promise"])
@pytest.mark.parametrize(
    ("branch", "name"), [("ralph/a3f2", "a3f2"), ("ralph/x;y", "'ralph/x;y'")], ids=["own", "named"]
)
def test_a_branch_without_work_can_be_dropped(ended_by: str, branch: str, name: str) -> None:
    """The whole command is there; a session that a limit has ended goes on with that branch instead."""
    assert _next(branch=branch, commits=0, ended_by=ended_by)[-1] == f"  drop       ralph-wrap drop {name}"
    rows = _next(branch=branch, commits=0, ended_by="max-iterations")
    assert [row.split()[0] for row in rows] == ["go"]


def test_a_branch_that_was_resumed_is_not_offered_for_deletion() -> None:
    """The sessions before have their work on it."""
    rows = _next(**OURS, commits=0, ended_by="signal", resumes="20260102T030405Z-a3f2")
    assert [row.split()[0] for row in rows] == ["next", "ralph-wrap", "go"]


def test_what_came_back_from_a_snapshot_has_a_row() -> None:
    """So have the files that did not come back, because the branch has newer ones."""
    work = {"session": "20261121T203045Z-a3f2", "snapshot": "0123456789abcdef", "older": ["a", "b"]}
    assert _rows(taken_up=work)[2:4] == [
        "  taken up   snapshot 0123456789ab of session 20261121T203045Z-a3f2",
        "  older      not put back from it: a, b",
    ]
    assert not [row for row in _rows(taken_up=work | {"older": []}) if row.startswith("  older")]
