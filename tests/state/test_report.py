"""What a person reads at the end: what to type next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.state.report import SessionReport, UnreadableReport, read, summary

OURS, THEIRS = {"branch": "ralph/a3f2"}, {"branch": "topic;x"}
COMMITS: dict[str, Any] = {"commits": 2}
SAVED: dict[str, Any] = {"saved": "ralph/a3f2-wip", "saved_paths": ("a",)}


def _report(**facts: Any) -> SessionReport:
    """Return the report of a session."""
    given: dict[str, Any] = {"ended_by": "promise", "iterations": 1} | facts
    return SessionReport(
        id="a3f2",
        session="20261121T203045Z-a3f2",
        agent="x",
        started="",
        ended="",
        exit_status=0,
        base="0123456789abcdef",
        **given,
    )


def _rows(location: str = "", **facts: Any) -> list[str]:
    """Return the lines of a summary."""
    return summary(_report(**facts), Path("/log"), location).splitlines()


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


def test_a_report_with_many_paths_is_short_and_has_all(tmp_path: Path) -> None:
    """1,000 of them and their number; the others are in a file beside it, one JSON text a line."""
    paths = tuple(f"gen/{'x' * 100}\n\udcff{number}" for number in range(9000))
    path = tmp_path / "report.json"
    _report(saved="ralph/a3f2-wip", saved_paths=paths, leaks=paths[:3]).write(path)
    assert path.stat().st_size < 1 << 20
    found = read(path)
    assert isinstance(found, SessionReport)
    assert (tuple(found.saved_paths), dict(found.cut)) == (paths[:1000], {"saved_paths": 9000})
    assert (found.count("saved_paths"), found.count("leaks"), found.count("tampering")) == (9000, 3, 0)
    lines = (tmp_path / "saved_paths.jsonl").read_text().splitlines()
    assert tuple(json.loads(line) for line in lines) == paths
    assert "  saved      ralph/a3f2-wip, 9000 paths not committed" in summary(found, Path("/log"))


def test_a_report_names_no_file_after_a_field_that_it_does_not_have(tmp_path: Path) -> None:
    """An agent can write the report, which a sweep completes; the list that a report does have is kept."""
    path = tmp_path / "report.json"
    many = [*map(str, range(1500))]
    work = {"session": "20261121T203045Z-a3f2", "snapshot": "0123456789abcdef", "older": many}
    _report(taken_up={"a/b": many, "../c": many, "d": many, **work}).write(path)
    assert isinstance(read(path), SessionReport)
    assert [found.name for found in tmp_path.rglob("*.jsonl")] == ["taken_up.older.jsonl"]


def test_a_report_is_written_although_no_list_can_be(tmp_path: Path) -> None:
    """How the session ended is worth more than the names of all paths."""
    (tmp_path / "leaks.jsonl").mkdir()
    path = tmp_path / "report.json"
    _report(leaks=tuple(map(str, range(1001)))).write(path)
    found = read(path)
    assert isinstance(found, SessionReport)
    assert found.count("leaks") == 1001


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"version": 9}', "version 9"),
        (b" " * (8 << 20) + b"{}", "it has more than 8388608 bytes"),
        (_report(ended_by=["promise"]).to_json(), "ended_by: Expected `str`, got `array`"),
        (_report(iterations="1").to_json(), "iterations: Expected `int`, got `str`"),
    ],
    ids=["empty", "newer", "large", "list", "text"],
)
def test_a_report_that_cannot_be_read_is_not_a_missing_one(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    """A missing one says that the session did not end; this one may say that its task is done."""
    path = tmp_path / "report.json"
    assert read(path) is None
    path.write_bytes(content)
    assert read(path) == UnreadableReport(path, reason)


LEAK = {"ended_by": "leak", "leaks": ("during iteration 1: file.txt (modified)",)}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (LEAK, "--on-leak stop: a file outside the worktree changed"),
        (LEAK | {"lost": "what was not committed"}, "the worktree was deleted or replaced"),
        ({"ended_by": "leak", "leaks": ()}, "the worktree was deleted or replaced"),
    ],
)
def test_the_limit_names_the_option_only_if_that_ended_the_loop(facts: dict[str, Any], words: str) -> None:
    """A worktree that an agent has deleted or replaced ends the loop without --on-leak."""
    assert f"  limit      {words}" in _rows(**facts)
