"""``ralph-wrap ps --json``: what a program reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.git_shim import shim_git
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
from tests.interfaces.cli.project import Yard, ended_report

NOT_JSON = "not a record of this version: Expecting value: line 1 column 1 (char 0)"


def _envelope(stdout: bytes) -> dict[str, Any]:
    """Return what was printed, sessions by id; their ages and what they use are checked and taken out."""
    envelope: dict[str, Any] = json.loads(stdout)
    for row in envelope["data"]:
        age = row.pop("age")
        usage = [row.pop(name) for name in ("cpu_seconds", "cpu_percent", "memory_bytes", "processes")]
        assert all(usage) if row["verdict"] == "live" else usage == [None] * 4
        if row["session"] is not None:
            began = datetime.strptime(row["session"][:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            assert 0 <= (datetime.now(UTC) - began).total_seconds() - age < 60
            row["session"] = row["session"].partition("-")[2]
    return envelope


def _row(agent_id: str, verdict: str, **known: object) -> dict[str, object]:
    unknown = dict.fromkeys(
        (
            "agent",
            "iteration",
            "branch",
            "ahead",
            "commits",
            "port",
            "workspace",
            "note",
            "ended_by",
            "exit_status",
            "saved",
            "kept",
        )
    )
    session = None if verdict == "unknown" else agent_id
    return {
        **unknown,
        "id": agent_id,
        "session": session,
        "verdict": verdict,
        "title": "",
        "state": None,
        "waits_until": None,
        "waits_for_room": False,
        "branch_gone": False,
        "messages": 0,
        "agent_now": None,
        "question": None,
        **known,
    }


def test_ps_json_is_the_envelope(full: Repo) -> None:
    """Numbers as numbers, names as they are, ``null`` for what is not known."""
    result = command("ps", "--json", cwd=full.path)
    data = [
        _row("dead", "unknown", note=NOT_JSON),
        _row(
            "0b0b",
            "orphan",
            agent="claude",
            iteration=1,
            branch="ralph/0b0b",
            state="ending",
        ),
        _row(
            "a3f2",
            "live",
            agent="claude",
            iteration=12,
            branch="ralph/a3f2",
            ahead=2,
            commits=2,
            state="running",
            title="Login\x1bpage",
        ),
        _row("f0f0", "foreign", agent="sh -c 'a\n\x1b[2J'", iteration=0, state="starting"),
    ]
    expected = {"version": 1, "success": True, "tool": "ps", "data": data}
    assert (_envelope(result.stdout), result.status, result.stderr) == (expected, 0, "")


def _how_it_ended(repo: Repo) -> dict[str, Any]:
    """Return what ``ps --all --json`` tells of the end of the only finished session."""
    data = json.loads(command("ps", "--all", "--json", cwd=repo.path).stdout)["data"]
    (row,) = (row for row in data if row["verdict"] == "finished")
    return {name: row[name] for name in ("ended_by", "exit_status", "saved", "kept")}


UNTOLD = {"ended_by": None, "exit_status": None, "saved": None, "kept": None}


def test_ps_all_tells_how_a_session_ended(full: Repo) -> None:
    """As its report does."""
    assert _how_it_ended(full) == {
        "ended_by": "signal",
        "exit_status": 143,
        "saved": "ralph/e0e0-wip",
        "kept": "a file cannot\nbe read",
    }


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"garbage",
        b"[]",
        b'{"version": 1}',
        ended_report().to_json().replace(b'"version": 1', b'"version": 2'),
        ended_report(ended_by=7, exit_status="0", saved=["x"], kept={}).to_json(),
    ],
    ids=["none", "garbage", "no object", "half of one", "a newer one", "wrong kinds"],
)
def test_a_report_that_cannot_be_read_tells_nothing(
    repo: Repo, yard: Callable[[Path], Yard], content: bytes | None
) -> None:
    """The session is listed all the same."""
    path = yard(repo.path).finished("e0e0", "2d")
    if content is not None:
        path.write_bytes(content)
    assert _how_it_ended(repo) == UNTOLD


def test_the_ends_of_sessions_cost_no_git(full: Repo, tmp_path: Path) -> None:
    """As many calls as without them: one for the repository, one for each branch that is counted."""
    calls = tmp_path / "calls"
    path = shim_git(tmp_path / "bin", f"*) echo x >> {calls} ;;")
    command("ps", "--all", cwd=full.path, env={"PATH": path})
    printed = len(calls.read_text())
    for report in full.path.glob(".ralph/run/sessions/*/report.json"):
        report.unlink()
    calls.unlink()
    command("ps", "--all", cwd=full.path, env={"PATH": path})
    assert len(calls.read_text()) == printed
